"""Records: compare-and-set with a lease, and waiting for a change."""

from __future__ import annotations

import datetime as dt

import pytest

from django_redis_locks import LockBackendError, LockKeyError
from tests.contract.matrix import PATIENCE, Caller, Face, eventually
from tests.probes.engine import index_entries, lose_one_reply


def test_put_of_an_absent_record_is_found_by_get(face: Face, alice: Caller) -> None:
    record = face.record()
    assert alice(record.get) is None
    written = alice(record.put, None, {"state": "running", "tries": 1})
    assert written
    assert written.record.fields == {"state": "running", "tries": 1}
    found = alice(record.get)
    assert (found.version, found.fields) == (written.record.version, written.record.fields)


@pytest.mark.exact("counts commands")
def test_put_that_comes_second_returns_the_present_record(face: Face, alice: Caller, bob: Caller) -> None:
    """In one round trip."""
    record = face.record()
    mine = alice(record.put, None, {"by": "alice"})
    with face.commands() as commands:
        theirs = bob(record.put, None, {"by": "bob"})
    assert commands == ["record/put"]
    assert not theirs
    assert theirs.record.fields == {"by": "alice"}
    assert theirs.record.version == mine.record.version


def test_put_over_an_old_version_is_refused(face: Face, alice: Caller, bob: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    second = bob(record.put, first, {"n": 2})
    assert second
    stale = alice(record.put, first, {"n": 3})
    assert not stale
    assert stale.record.fields == {"n": 2}


def test_versions_rise_after_a_drop(face: Face, alice: Caller) -> None:
    """[H19b] So a stale write doesn't hit the new record."""
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
def test_drop_of_an_old_version_is_refused(face: Face, alice: Caller, bob: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    second = alice(record.put, first, {"n": 2}).record
    refused = bob(record.drop, first)
    assert (refused.ok, refused.record.fields) == (False, {"n": 2})
    assert bob(record.drop, second)
    assert alice(record.get) is None
    again = bob(record.drop, second)
    assert (again.ok, again.record) == (False, None)


def test_a_record_is_absent_after_its_lease(face: Face, alice: Caller) -> None:
    record = face.record()
    alice(record.put, None, {"n": 1}, expire=0.1)
    eventually(lambda: alice(record.get) is None)
    assert alice(record.put, None, {"n": 2})


def test_touch_shortens_a_lease_only_with_shorten(face: Face, alice: Caller) -> None:
    """[H19] A late copy must not cut a lease; an operator may."""
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
def test_a_request_repeated_after_a_lost_reply_succeeds(
    face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """[H19a] The store finds the nonce of the same request. The record is listed once, or not at all."""
    face.isolate()
    record = face.record()
    known = None if method == "put" else alice(record.put, None, {}, listed=True).record
    lose_one_reply(monkeypatch, f"record/{method}")
    if method == "put":
        written = alice(record.put, None, {"mine": True}, listed=True)
        assert (written.ok, written.record.fields) == (True, {"mine": True})
    else:
        assert alice(record.touch, known, 90) if method == "touch" else alice(record.drop, known)
    assert list(index_entries(record)) == ([] if method == "drop" else ["held"])


def test_an_unanswered_first_put_is_dropped(face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H19] [H2] Its caller got an error, so it doesn't rely on the record."""
    face.configure(WAIT=0)
    record = face.record()
    lose_one_reply(monkeypatch, "record/put")
    with pytest.raises(LockBackendError):
        alice(record.put, None, {})
    eventually(lambda: alice(record.get) is None)


# Waiting for a change


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_wait_for_change_returns_each_change(face: Face, alice: Caller, bob: Caller) -> None:
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


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_wait_for_change_of_all_waiters_returns_the_change(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    changes = [face.start_watching(face.caller(), record, first, 2 * PATIENCE) for _ in range(5)]
    alice(record.put, first, {"n": 2})
    assert [change.result(PATIENCE).fields for change in changes] == [{"n": 2}] * 5


def test_wait_for_change_after_a_change_returns_at_once(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    alice(record.put, first, {"n": 2})
    assert alice(record.wait_for_change, first, 10).fields == {"n": 2}
    assert alice(record.wait_for_change, None, 0).fields == {"n": 2}


def test_wait_for_change_without_a_change_returns_the_record(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}).record
    assert alice(record.wait_for_change, first, 0.05).version == first.version
    assert face.queued(record) == 0


def test_wait_for_change_returns_None_after_the_lease(face: Face, alice: Caller) -> None:
    record = face.record()
    first = alice(record.put, None, {"n": 1}, expire=0.2).record
    assert alice(record.wait_for_change, first, 10) is None


# Locks of the same key


@pytest.mark.exact("a force whose answer was lost may have freed something")
def test_a_lock_of_the_same_key_raises_LockKeyError(face: Face, alice: Caller) -> None:
    """[L45] It names what it found, and overwrites nothing."""
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
