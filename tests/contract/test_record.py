"""Records: compare-and-set with a lease, waiting for a change, the index that lists them, and their renewal."""

from __future__ import annotations

import datetime as dt
import gc
import threading
import weakref
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import LockBackendError, LockKeyError, RecordRef, locks
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import (
    PATIENCE,
    Caller,
    Face,
    eventually,
    on_memory,
    threads_only,
    wait_until_prolonged,
)
from tests.probes.engine import Event, Lost, forget_ended_entries, hold_of, index_entries, lose_one_reply

pytestmark = pytest.mark.needs("records")


@pytest.fixture
def record(face: Face) -> RecordRef:
    return face.record()


@pytest.fixture
def listed(face: Face) -> RecordRef:
    """A record of an alias with an index of its own."""
    face.isolate()
    return face.record()


# Compare and set


@pytest.mark.exact("counts commands")
def test_put_that_comes_second_returns_the_present_record(
    face: Face, record: RecordRef, alice: Caller, bob: Caller
) -> None:
    """With the present record, in one round trip."""
    assert alice(record.get) is None
    mine = alice(record.put, None, {"by": "alice", "n": 1})
    with face.commands() as commands:
        theirs = bob(record.put, None, {"by": "bob"})
    assert commands == ["record/put"]
    assert (mine.ok, theirs.ok) == (True, False)
    found = bob(record.get)
    for one in (mine.record, theirs.record, found):
        assert (one.version, one.fields) == (found.version, {"by": "alice", "n": 1})


@pytest.mark.exact("absent, after an answer that was lost, is what a drop's success looks like")
def test_put_touch_and_drop_of_an_old_version_are_refused(record: RecordRef, alice: Caller, bob: Caller) -> None:
    first = alice(record.put, None, {"n": 1}).record
    second = bob(record.put, first, {"n": 2}).record
    for refused in (alice(record.put, first, {"n": 3}), bob(record.drop, first), alice(record.touch, first, 90)):
        assert (refused.ok, refused.record.fields) == (False, {"n": 2})
    assert bob(record.drop, second)
    assert alice(record.get) is None
    again = bob(record.drop, second)
    assert (again.ok, again.record) == (False, None)


def test_versions_rise_after_a_drop(record: RecordRef, alice: Caller) -> None:
    """[H19b] A stale write can't overwrite a new record."""
    versions = []
    for _ in range(3):
        written = alice(record.put, None, {}).record
        versions.append(written.version)
        assert alice(record.drop, written)
    assert versions == sorted(set(versions))
    new = alice(record.put, None, {"new": True}).record
    assert not alice(record.put, written, {"stale": True})
    assert alice(record.get).version == new.version


def test_a_record_is_absent_after_its_lease(record: RecordRef, alice: Caller) -> None:
    alice(record.put, None, {"n": 1}, expire=0.1)
    eventually(lambda: alice(record.get) is None)
    assert alice(record.put, None, {"n": 2})


@pytest.mark.parametrize("method", ["put", "touch", "drop"])
def test_a_request_repeated_after_a_lost_reply_succeeds(
    listed: RecordRef, alice: Caller, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """[H19a] The store recognizes the nonce of the request. The record is listed once, or not at all."""
    known = None if method == "put" else alice(listed.put, None, {}, show_in_admin=True).record
    lose_one_reply(monkeypatch, f"record/{method}")
    if method == "put":
        written = alice(listed.put, None, {"mine": True}, show_in_admin=True)
        assert (written.ok, written.record.fields) == (True, {"mine": True})
    else:
        assert alice(listed.touch, known, 90) if method == "touch" else alice(listed.drop, known)
    assert list(index_entries(listed)) == ([] if method == "drop" else ["held"])


def test_an_unanswered_first_put_is_dropped(face: Face, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H19] [H2] Its caller got an error, so the record must not stay."""
    face.configure(WAIT=0)
    record = face.record()
    lose_one_reply(monkeypatch, "record/put")
    with pytest.raises(LockBackendError):
        alice(record.put, None, {})
    eventually(lambda: alice(record.get) is None)


@pytest.mark.exact("a forced release whose reply was lost may have freed the lock")
def test_a_lock_of_the_same_key_raises_LockKeyError(face: Face, record: RecordRef, alice: Caller) -> None:
    """[L45] The error names the value that was found, and nothing is overwritten."""
    grant = alice(face.lock().acquire)
    for call in [(record.get,), (record.put, None, {})]:
        with pytest.raises(LockKeyError, match="a lock of kind lock"):
            alice(*call)
    alice(grant.release)
    alice(record.put, None, {})
    with pytest.raises(LockKeyError, match="a record"):
        alice(face.lock().acquire)
    assert not alice(face.lock().force_release)


# Waiting for a change


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_wait_for_change_returns_each_change_to_all_waiters(face: Face, record: RecordRef, alice: Caller) -> None:
    now = None
    callers = [face.caller() for _ in range(3)]
    for step in (1, 2, "drop", 3):
        changes = [face.start_watching(caller, record, now, 2 * PATIENCE) for caller in callers]
        was, now = now, None
        if step == "drop":
            alice(record.drop, was)
        else:
            now = alice(record.put, was, {"n": step}).record
        found = [change.result(PATIENCE) for change in changes]
        assert [one and one.fields for one in found] == [now and now.fields] * 3, step


def test_wait_for_change_without_a_wait_returns_the_record(face: Face, record: RecordRef, alice: Caller) -> None:
    """After a change, and after its timeout."""
    first = alice(record.put, None, {"n": 1}).record
    assert alice(record.wait_for_change, first, 0.05).version == first.version
    alice(record.put, first, {"n": 2})
    assert alice(record.wait_for_change, first, 10).fields == {"n": 2}
    assert alice(record.wait_for_change, None, 0).fields == {"n": 2}
    assert face.queued(record) == 0


def test_wait_for_change_returns_None_after_the_lease(record: RecordRef, alice: Caller) -> None:
    first = alice(record.put, None, {"n": 1}, expire=0.2).record
    assert alice(record.wait_for_change, first, 10) is None


# The index


@threads_only
def test_each_put_moves_the_record_to_its_index(listed: RecordRef, alice: Caller, bob: Caller) -> None:
    """Any process may have written before, since the store knows which index lists the record. A drop removes it, and a
    refused put lists nothing."""
    was = None
    for place, expected in [
        (False, []),
        (True, ["held"]),
        (True, ["held"]),
        ("queued", ["queued"]),
        (True, ["held"]),
        (False, []),
        ("queued", ["queued"]),
    ]:
        alice(listed.put, was, {"listed": place}, show_in_admin=place)
        was = bob(listed.get)
        assert list(index_entries(listed)) == expected
        assert not alice(listed.put, None, {}, show_in_admin=place != "queued")
        assert list(index_entries(listed)) == expected
    alice(listed.drop, was)
    assert index_entries(listed) == {}


@threads_only
def test_an_entry_ends_with_the_lease_that_touch_shortens_only_with_shorten(listed: RecordRef, alice: Caller) -> None:
    """[H19] A late copy must not shorten a lease; an operator may."""
    written = alice(listed.put, None, {}, 60, show_in_admin="queued").record
    for how, least, most in (
        (None, 40, 60),
        ({"expire": 30}, 40, 60),
        ({"expire": dt.timedelta(seconds=90)}, 70, 90),
        ({"expire": 30, "shorten": True}, 10, 30),
    ):
        assert how is None or alice(listed.touch, written, **how)
        assert least < index_entries(listed)["queued"] <= most, how
        assert least < alice(listed.get).lease_left <= most, how
    unlisted = alice(listed.put, written, {}).record
    alice(listed.touch, unlisted, 90)
    assert index_entries(listed) == {}


@threads_only
def test_without_INDEX_nothing_is_listed(face: Face, alice: Caller) -> None:
    face.isolate(INDEX=False)
    record = face.record()
    written = alice(record.put, None, {}, show_in_admin=True).record
    assert index_entries(record) == {}
    assert alice(record.drop, alice(record.touch, written, 90).record)


@on_memory  # test_wire_format.py has it for Redis
@threads_only
def test_a_put_removes_old_entries(listed: RecordRef, alice: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H16] Jobs that died leave entries; without locks, no acquire removes them."""
    forget_ended_entries(monkeypatch)
    dead = [locks.record(f"dead:{n}") for n in range(3)]
    for one in dead:
        alice(one.put, None, {}, 0.01, show_in_admin=True)
    eventually(lambda: all(alice(one.get) is None for one in dead))
    was = alice(listed.put, None, {}, show_in_admin=True).record
    while was.version % 100:
        was = alice(listed.put, was, {}, show_in_admin=True).record
    assert [index_entries(one) for one in dead] == [{}, {}, {}]


# Renewal


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_continues_while_the_record_is_referenced(listed: RecordRef, alice: Caller, bob: Caller) -> None:
    """As for a lock, also while its writer lives. Its index entry is updated, so that operators don't see a live job as
    expired."""
    kept = [alice(listed.put, None, {}, expire=9, renew=True, show_in_admin=True).record]
    wait_until_prolonged(lambda: bob(listed.get).lease_left, lambda: index_entries(listed)["held"])
    assert not kept[0].lost
    hold = weakref.ref(hold_of(kept.pop()))
    for caller in (alice, bob):
        caller(listed.get)  # a task's frame keeps its last call
    eventually(lambda: [gc.collect(), hold()][1] is None)  # the renewal may be looking at it just now
    alice(listed.touch, alice(listed.get), 0.3, shorten=True)
    eventually(lambda: alice(listed.get) is None)


@on_memory
def test_renewal_ends_after_the_records_own_max_hold(
    face: Face, alice: Caller, events: list[Event], manual_clock: ManualClock
) -> None:
    """[F13] Shorter or longer than that of the alias, or unlimited."""
    face.configure(EXPIRE=30, MAX_HOLD=60)
    usual, short, long, endless = [
        alice(locks.record(f"{face.key}:{how}").put, None, {}, 30, renew=True, **how).record
        for how in ({}, {"max_hold": 40}, {"max_hold": 600}, {"max_hold": -1})
    ]
    manual_clock.advance(39)
    assert not short.lost
    manual_clock.advance(81)
    assert [one.lost for one in (usual, short, long, endless)] == [True, True, False, False]
    assert [event.why for event in events if isinstance(event, Lost)] == ["max_hold"] * 2


@pytest.mark.usefixtures("frequent_renewal")
def test_a_renewed_record_that_is_overwritten_is_lost(
    face: Face, record: RecordRef, alice: Caller, bob: Caller
) -> None:
    """[F11] on_lost is called once, with the written record, even if a touch returned another value since: in the
    maintenance thread, or in the loop of the writing task."""
    lost: SimpleQueue[Any] = SimpleQueue()

    def on_lost(seen: Any) -> None:
        lost.put((seen.version, seen.fields, seen.lost, threading.current_thread().name))

    mine = alice(record.put, None, {"n": 1}, 9, renew=True, on_lost=on_lost).record
    mine = alice(record.touch, mine, 10).record
    for caller in (alice, bob):
        caller(record.get)  # a task's frame keeps its last call
    gc.collect()
    bob(record.put, bob(record.get), {"by": "bob"})
    thread = "tests' loop" if face.is_async else "django-redis-locks notices"
    assert lost.get(timeout=PATIENCE) == (mine.version, {"n": 1}, True, thread)
    assert mine.lost
    assert lost.empty()


@on_memory
def test_on_lost_is_not_called_for_ones_own_put_or_drop(
    record: RecordRef, alice: Caller, manual_clock: ManualClock
) -> None:
    lost: SimpleQueue[Any] = SimpleQueue()
    first = alice(record.put, None, {}, 30, renew=True, on_lost=lost.put).record
    second = alice(record.put, first, {}, 30, renew=True, on_lost=lost.put).record
    manual_clock.advance(60)
    assert not second.lost
    alice(record.drop, second)
    manual_clock.advance(60)
    assert lost.empty()
