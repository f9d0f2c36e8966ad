"""Records that are renewed: for how long, and how a loss is reported."""

from __future__ import annotations

import gc
import threading
import weakref
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import clock, locks
from tests.contract.matrix import PATIENCE, Caller, Face, eventually
from tests.probes.engine import Event, Lost, hold_of

pytestmark = pytest.mark.usefixtures("often")


def test_renewal_goes_on_while_the_record_is_reachable(face: Face, alice: Caller, bob: Caller) -> None:
    """As that of a lock: while its writer lives, too."""
    record = face.record()
    kept = [alice(record.put, None, {}, expire=9, renew=True).record]
    begin = clock.now()
    eventually(lambda: begin + 9.3 - clock.now() < bob(record.get).lease_left)
    assert not kept[0].lost
    hold = weakref.ref(hold_of(kept.pop()))
    for caller in (alice, bob):
        caller(record.get)  # a task's frame keeps its last call
    eventually(lambda: [gc.collect(), hold()][1] is None)  # the renewal may be looking at it just now
    alice(record.touch, alice(record.get), 1.5, shorten=True)
    eventually(lambda: alice(record.get) is None)


def test_renewal_ends_after_the_records_own_max_hold(face: Face, alice: Caller, happened: list[Event]) -> None:
    """[F13] Whatever the alias says."""
    face.isolate()
    record = face.record()
    for _ in range(5):  # a machine that stands still may end the lease before the renewal compares it with max_hold
        happened.clear()
        kept = alice(record.put, None, {}, 1.5, renew=True, max_hold=0.1).record
        eventually(lambda: happened)
        losses = [event.why for event in happened if isinstance(event, Lost)]
        assert kept.lost
        eventually(lambda: alice(record.get) is None)
        if losses != ["expired"]:
            break
    assert losses == ["max_hold"]


def test_renewal_with_a_longer_max_hold_outlives_that_of_the_alias(face: Face, alice: Caller) -> None:
    """60 seconds, or for ever."""
    face.configure(EXPIRE=0.05, MAX_HOLD=0.1)
    long = {max_hold: locks.record(f"{face.key}:{max_hold}") for max_hold in (-1, 60)}
    kept = {
        max_hold: alice(record.put, None, {}, 9, renew=True, max_hold=max_hold).record
        for max_hold, record in long.items()
    }
    short = alice(face.record().put, None, {}, 2, renew=True).record
    eventually(lambda: short.lost)
    for max_hold, record in long.items():
        eventually(
            lambda record=record: alice(record.get).lease_left > 8
        )  # two seconds after renewals would have ended
        assert not kept[max_hold].lost
        assert alice(record.get).version == kept[max_hold].version
        alice(record.drop, kept[max_hold])


def test_a_renewed_record_that_is_overwritten_is_lost(face: Face, alice: Caller, bob: Caller) -> None:
    """[F11] on_lost is called once, with what was written; also if a touch returned another value since."""
    record = face.record()
    lost: SimpleQueue[Any] = SimpleQueue()
    mine = alice(record.put, None, {"n": 1}, 9, renew=True, on_lost=lost.put).record
    mine = alice(record.touch, mine, 10).record
    for caller in (alice, bob):
        caller(record.get)  # a task's frame keeps its last call
    gc.collect()
    bob(record.put, bob(record.get), {"by": "bob"})
    seen = lost.get(timeout=PATIENCE)
    assert (seen.version, seen.fields, seen.lost) == (mine.version, {"n": 1}, True)
    assert mine.lost
    assert lost.empty()


def test_on_lost_is_called_in_the_maintenance_thread_or_the_loop(face: Face, alice: Caller, bob: Caller) -> None:
    """[F11] The loop of the task that wrote."""
    record = face.record()
    names: SimpleQueue[str] = SimpleQueue()
    mine = alice(
        record.put, None, {}, 9, renew=True, on_lost=lambda _: names.put(threading.current_thread().name)
    ).record
    bob(record.drop, bob(record.get))
    assert names.get(timeout=PATIENCE) == ("tests' loop" if face.is_async else "django-redis-locks janitor")
    assert mine.lost


def test_on_lost_is_not_called_for_ones_own_put_or_drop(face: Face, alice: Caller) -> None:
    record = face.record()
    lost: SimpleQueue[Any] = SimpleQueue()
    first = alice(record.put, None, {}, 9, renew=True, on_lost=lost.put).record
    second = alice(record.put, first, {}, 9, renew=True, on_lost=lost.put).record
    alice(record.drop, second)
    sentinel = alice(locks.record(f"{face.key}:2").put, None, {}, 0.6, renew=True, max_hold=0.1).record
    eventually(lambda: sentinel.lost)  # the maintenance thread was at work meanwhile
    assert lost.empty()
