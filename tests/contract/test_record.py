"""Records: compare-and-set with a lease, and waiting for a change."""

from __future__ import annotations

import datetime as dt
import gc
import weakref
from typing import Any

import pytest

from django_redis_locks import LockBackendError, LockKeyError, locks
from django_redis_locks.core import clock
from django_redis_locks.core.effects import Command
from tests.contract.matrix import PATIENCE, Caller, Face, eventually


def test_it_begins_absent(face: Face, alice: Caller) -> None:
    record = face.record()
    assert alice(record.get) is None
    written = alice(record.put, None, {"state": "running", "tries": 1})
    assert written
    assert written.record.fields == {"state": "running", "tries": 1}
    found = alice(record.get)
    assert (found.version, found.fields) == (written.record.version, written.record.fields)


@pytest.mark.exact("counts commands")
def test_only_one_of_two_begins(face: Face, alice: Caller, bob: Caller) -> None:
    """An absent-or-mine begin that returns the present record on conflict: one round trip."""
    record = face.record()
    mine = alice(record.put, None, {"by": "alice"})
    with face.commands() as commands:
        theirs = bob(record.put, None, {"by": "bob"})
    assert commands == ["record/put"]
    assert not theirs
    assert theirs.record.fields == {"by": "alice"}
    assert theirs.record.version == mine.record.version


def test_a_write_needs_the_version_that_is_there(face: Face, alice: Caller, bob: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    second = bob(record.put, first, {"n": 2})
    assert second
    stale = alice(record.put, first, {"n": 3})
    assert not stale
    assert stale.record.fields == {"n": 2}


def test_a_version_never_comes_twice(face: Face, alice: Caller) -> None:
    """[H19b] After a drop it goes on rising, so that a stale holder's write can't hit the new record."""
    record = face.record()
    versions = []
    for _ in range(3):
        written = alice(record.put, None, {}).record
        versions.append(written.version)
        assert alice(record.drop, written)
    assert versions == sorted(set(versions))
    new = alice(record.put, None, {"new": True}).record
    assert not alice(record.put, written, {"stale": True})
    assert alice(record.get).version == new.version


@pytest.mark.exact("absent, after an answer that was lost, is what a drop's success looks like")
def test_drop(face: Face, alice: Caller, bob: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    second = alice(record.put, first, {"n": 2}).record
    refused = bob(record.drop, first)
    assert (refused.ok, refused.record.fields) == (False, {"n": 2})
    assert bob(record.drop, second)
    assert alice(record.get) is None
    again = bob(record.drop, second)
    assert (again.ok, again.record) == (False, None)


def test_its_lease_ends(face: Face, alice: Caller) -> None:
    record = face.record()
    alice(record.put, None, {"n": 1}, expire=0.1)
    eventually(lambda: alice(record.get) is None)
    assert alice(record.put, None, {"n": 2})


def test_touch_never_shortens_unless_asked_to(face: Face, alice: Caller) -> None:
    """[H19] A copy that comes late must not cut a lease; an operator who wants to does."""
    record = face.record()
    written = alice(record.put, None, {}, expire=60).record
    assert alice(record.touch, written, 5)
    assert alice(record.get).lease_left > 50
    assert alice(record.touch, written, 90)
    assert alice(record.get).lease_left > 80
    assert alice(record.touch, written, 25, shorten=True)
    assert alice(record.get).lease_left <= 25
    other = alice(record.put, written, {"n": 2}).record
    assert not alice(record.touch, written, 90)
    assert alice(record.touch, other, dt.timedelta(seconds=90))


@pytest.mark.parametrize("method", ["put", "touch", "drop"])
def test_a_repeated_request_is_no_loss(face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """[H19a] Carried out, its answer lost, sent again: the caller must not take himself for the loser."""
    record = face.record()
    known = None if method == "put" else alice(record.put, None, {}).record
    lose_one_answer(face, monkeypatch, f"record/{method}")
    if method == "put":
        written = alice(record.put, None, {"mine": True})
        assert (written.ok, written.record.fields) == (True, {"mine": True})
    elif method == "touch":
        assert alice(record.touch, known, 90)
    else:
        assert alice(record.drop, known)


def test_what_an_unanswered_begin_may_have_left_is_dropped(
    face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H19] [H2] Its caller was told of an error: nobody counts on the record."""
    face.configure(WAIT=0)
    record = face.record()
    lose_one_answer(face, monkeypatch, "record/put")
    with pytest.raises(LockBackendError):
        alice(record.put, None, {})
    eventually(lambda: alice(record.get) is None)


def lose_one_answer(face: Face, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    backend = locks["default"].engine.backend
    lost: list[str] = []

    def lose(command: Command[Any], reply: Any) -> Any:
        if command.name == name and not lost:
            lost.append(name)
            raise LockBackendError("no answer", unanswered=True, passing=True)
        return reply

    call, acall = backend.call, backend.acall

    async def alosing(command: Command[Any]) -> Any:
        return lose(command, await acall(command))

    monkeypatch.setattr(backend, "call", lambda command: lose(command, call(command)))
    monkeypatch.setattr(backend, "acall", alosing)


def test_waiting_for_a_change(face: Face, alice: Caller, bob: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    change = face.start_watching(bob, record, first, 2 * PATIENCE)
    second = alice(record.put, first, {"n": 2}).record
    assert change.result(PATIENCE).version == second.version
    change = face.start_watching(bob, record, second, 2 * PATIENCE)
    alice(record.drop, second)
    assert change.result(PATIENCE) is None
    change = face.start_watching(bob, record, None, 2 * PATIENCE)
    alice(record.put, None, {"n": 3})
    assert change.result(PATIENCE).fields == {"n": 3}


def test_all_who_wait_are_told(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    changes = [face.start_watching(face.caller(), record, first, 2 * PATIENCE) for _ in range(5)]
    alice(record.put, first, {"n": 2})
    assert [change.result(PATIENCE).fields for change in changes] == [{"n": 2}] * 5


def test_a_change_that_was_is_told_at_once(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    alice(record.put, first, {"n": 2})
    assert alice(record.wait_for_change, first, 10).fields == {"n": 2}
    assert alice(record.wait_for_change, None, 0).fields == {"n": 2}


def test_without_a_change_it_returns_what_is_there(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    assert alice(record.wait_for_change, first, 0.05).version == first.version
    assert face.queued(record) == 0


def test_the_end_of_a_lease_is_a_change(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}, expire=0.2).record
    assert alice(record.wait_for_change, first, 10) is None


@pytest.mark.usefixtures("often")
def test_a_renewed_record_stays_while_somebody_has_it(face: Face, alice: Caller, bob: Caller) -> None:
    """Renewal serves it as it serves a lock: while its writer lives and the record is reachable."""
    record = face.record()
    kept = [alice(record.put, None, {}, expire=9, renew=True).record]
    begin = clock.now()
    eventually(lambda: begin + 9.3 - clock.now() < bob(record.get).lease_left)
    assert not kept[0].lost
    hold = weakref.ref(kept.pop()._hold)
    for caller in (alice, bob):
        caller(record.get)  # a task's frame keeps its last call
    eventually(lambda: [gc.collect(), hold()][1] is None)  # the renewal may be looking at it just now
    alice(record.touch, alice(record.get), 1.5, shorten=True)
    eventually(lambda: alice(record.get) is None)


def test_a_renewed_record_that_was_overwritten_is_lost(face: Face, alice: Caller, bob: Caller) -> None:
    record = face.record()
    mine = alice(record.put, None, {}, expire=0.3, renew=True).record
    bob(record.put, bob(record.get), {"by": "bob"})
    eventually(lambda: mine.lost)


@pytest.mark.exact("a force whose answer was lost may have freed something")
def test_it_excludes_a_lock_of_the_same_key(face: Face, alice: Caller) -> None:
    """[L45] A clear error, and nothing is overwritten."""
    record = face.record()
    grant = alice(face.lock().acquire)
    for call in [(record.get,), (record.put, None, {})]:
        with pytest.raises(LockKeyError, match="a lock of kind lock"):
            alice(*call)
    alice(grant.release)
    alice(record.put, None, {})
    with pytest.raises(LockKeyError, match="a record"):
        alice(face.lock().acquire)
    assert not alice(face.lock().force_release)


@pytest.mark.parametrize("fields", [{"a": object()}, {1: 2}, ["a"], "text", {"a": float("nan")}, None])
def test_fields_that_json_does_not_know(face: Face, alice: Caller, fields: Any) -> None:
    """Refused before anything is sent."""
    with face.commands() as commands, pytest.raises(TypeError, match="field"):
        alice(face.record().put, None, fields)
    assert commands == []


@pytest.mark.parametrize("expire", [0, -1, float("nan"), "5", True])
def test_expire_that_is_no_length_of_time(face: Face, alice: Caller, expire: Any) -> None:
    with pytest.raises(ValueError, match="expire"):
        alice(face.record().put, None, {}, expire=expire)
