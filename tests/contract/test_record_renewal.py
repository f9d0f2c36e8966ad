"""Records that are renewed: for how long, and how a loss is reported."""

from __future__ import annotations

import gc
import threading
import weakref
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import locks
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, on_memory, wait_until_prolonged
from tests.probes.engine import Event, Lost, hold_of


@pytest.mark.usefixtures("often")
def test_renewal_goes_on_while_the_record_is_reachable(face: Face, alice: Caller, bob: Caller) -> None:
    """As that of a lock: while its writer lives, too."""
    record = face.record()
    kept = [alice(record.put, None, {}, expire=9, renew=True).record]
    wait_until_prolonged(lambda: bob(record.get).lease_left)
    assert not kept[0].lost
    hold = weakref.ref(hold_of(kept.pop()))
    for caller in (alice, bob):
        caller(record.get)  # a task's frame keeps its last call
    eventually(lambda: [gc.collect(), hold()][1] is None)  # the renewal may be looking at it just now
    alice(record.touch, alice(record.get), 0.3, shorten=True)
    eventually(lambda: alice(record.get) is None)


@on_memory
def test_renewal_ends_after_the_records_own_max_hold(
    face: Face, alice: Caller, happened: list[Event], manual_clock: ManualClock
) -> None:
    """[F13] Whatever the alias says."""
    record = face.record()
    kept = alice(record.put, None, {}, 30, renew=True, max_hold=60).record
    manual_clock.advance(59)
    assert not kept.lost
    manual_clock.advance(40)
    assert kept.lost
    assert [event.why for event in happened if isinstance(event, Lost)] == ["max_hold"]
    assert alice(record.get) is None


@on_memory
def test_renewal_with_a_longer_max_hold_outlives_that_of_the_alias(
    face: Face, alice: Caller, manual_clock: ManualClock
) -> None:
    """600 seconds, or for ever."""
    face.configure(EXPIRE=30, MAX_HOLD=60)
    usual = alice(face.record().put, None, {}, 30, renew=True).record
    longer = [locks.record(f"{face.key}:{max_hold}") for max_hold in (-1, 600)]
    kept = [
        alice(record.put, None, {}, 30, renew=True, max_hold=max_hold).record
        for record, max_hold in zip(longer, (-1, 600), strict=True)
    ]
    manual_clock.advance(120)
    assert usual.lost
    assert not any(record.lost for record in kept)
    assert [alice(record.get).version for record in longer] == [record.version for record in kept]


@pytest.mark.usefixtures("often")
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


@pytest.mark.usefixtures("often")
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


@on_memory
def test_on_lost_is_not_called_for_ones_own_put_or_drop(face: Face, alice: Caller, manual_clock: ManualClock) -> None:
    record = face.record()
    lost: SimpleQueue[Any] = SimpleQueue()
    first = alice(record.put, None, {}, 30, renew=True, on_lost=lost.put).record
    second = alice(record.put, first, {}, 30, renew=True, on_lost=lost.put).record
    manual_clock.advance(60)
    assert not second.lost
    alice(record.drop, second)
    manual_clock.advance(60)
    assert lost.empty()
