"""ManualClock: a user's test ends leases and waits without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from freezegun import freeze_time

from django_redis_locks import LockLost, LockNotAcquired, locks
from django_redis_locks.testing import ManualClock, capture_locks, hold_lock, override_locks
from tests.probes.django import waiters

HOUR = 3600


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_fixed_lease_ends_at_its_time_for_store_and_holder(manual_clock: ManualClock) -> None:
    grant = locks.lock("import", expire=30).acquire()
    manual_clock.advance(29)
    assert grant.remaining() == pytest.approx(0.7, abs=0.01), "1 % of the lease is for drift"
    assert locks.lock("import").holder().lease_left == pytest.approx(1, abs=0.03)
    assert not grant.lost
    manual_clock.advance(2)
    assert grant.lost
    assert locks.lock("import").acquire(timeout=0)
    with pytest.raises(LockLost):
        grant.release()


def test_renewed_lease_lasts_until_max_hold(manual_clock: ManualClock) -> None:
    lost: list[object] = []
    grant = locks.lock("import", on_lost=lost.append).acquire()
    manual_clock.advance(HOUR - 1)
    grant.ensure_held(confirm=True)
    assert lost == []
    with capture_locks() as seen:
        manual_clock.advance(60)
    assert grant.lost
    assert lost == [grant]
    assert seen.lost == ["import"]


def test_wait_in_the_tests_thread_moves_the_clock_to_its_end(manual_clock: ManualClock) -> None:
    begin = manual_clock.now()
    with hold_lock("import"), pytest.raises(LockNotAcquired):
        locks.lock("import", wait=25).acquire()
    assert manual_clock.now() - begin == pytest.approx(25, abs=0.01)


def test_waiting_threads_get_the_lock_when_a_lease_ends(manual_clock: ManualClock, pool: ThreadPoolExecutor) -> None:
    """Without a wake-up: nothing is released, and the waiters' next question finds the key free."""
    begin = manual_clock.now()
    locks.lock("import", expire=30).acquire()
    entered: list[float] = []

    def enter() -> None:
        with locks.lock("import", wait=HOUR):
            entered.append(manual_clock.now())

    calls = [pool.submit(enter) for _ in range(3)]
    while waiters("import") == 0:
        pass
    manual_clock.advance(29)
    assert entered == []
    manual_clock.advance(4)
    for call in calls:
        call.result(10)
    assert 30 <= entered[0] - begin <= 32.2, "a poll interval later at most"


def test_tasks_wait_and_time_out_or_are_served_or_cancelled(manual_clock: ManualClock) -> None:
    """One that is cancelled leaves nothing behind."""

    async def story() -> None:
        lock = locks.lock("import")
        async with hold_lock("import"):
            late, cancelled = (asyncio.create_task(lock.aacquire(timeout=25)) for _ in range(2))
            await manual_clock.aadvance(1)
            cancelled.cancel()
            await manual_clock.aadvance(23.9)
            assert cancelled.cancelled()
            assert not late.done()
            served = asyncio.create_task(lock.aacquire(timeout=25))
            await manual_clock.aadvance(0.2)
            assert late.done()
            assert await late is None
        grant = await served
        await manual_clock.aadvance(HOUR / 2)
        await grant.aensure_held(confirm=True)
        await grant.arelease()
        assert await lock.aacquire(timeout=0)

    asyncio.run(story())


def test_waiters_of_other_threads_time_out_when_time_has_passed(
    manual_clock: ManualClock, pool: ThreadPoolExecutor
) -> None:
    """A thread, and a task of another thread's loop, also while that loop ends."""

    async def wait_for_lock() -> object:
        return await locks.lock("import").aacquire(timeout=25)

    with hold_lock("import"):
        for call in (lambda: locks.lock("import").acquire(timeout=25), lambda: asyncio.run(wait_for_lock())):
            waiter = pool.submit(call)
            while not locks["default"].engine.queued(locks.lock("import").place):
                pass
            manual_clock.advance(24)
            assert not waiter.done()
            manual_clock.advance(2)
            assert waiter.result(10) is None


def test_manual_clock_wins_over_frozen_time(manual_clock: ManualClock) -> None:
    """[H14] freezegun stands still or ticks for all the rest, and leases follow the manual clock alone."""
    with freeze_time("2012-01-14") as frozen:
        grant = locks.lock("import", expire=30).acquire()
        frozen.tick(60)
        assert not grant.lost
        assert datetime.now() == datetime(2012, 1, 14, 0, 1)  # noqa: DTZ001, DTZ005 - the frozen time has no zone
        manual_clock.advance(31)
        assert locks.lock("import").acquire(timeout=0)


def test_real_time_goes_on_after_the_block() -> None:
    with override_locks():
        with ManualClock() as clock:
            clock.advance(HOUR)
            for seconds in (-1, float("nan")):
                with pytest.raises(ValueError, match="doesn't go back"):
                    clock.advance(seconds)
        with locks.lock("import", expire=30, renew=True) as grant:
            assert 29 < grant.remaining() <= 30
