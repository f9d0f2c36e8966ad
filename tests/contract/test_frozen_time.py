"""With time frozen by freezegun, waits end and leases are renewed: the engine's clock continues. Only the leases of the
memory backend use the frozen clock, so that ``freezer.tick()`` ends them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
from freezegun import freeze_time

from django_redis_locks import LockNotAcquired
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, on_memory

BUSY = 0.1
"""A wait with more than this many seconds of CPU time didn't sleep."""


def computed() -> float:
    """The CPU seconds of this thread, by a clock that freezegun doesn't freeze."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable the garbage collector, which could take longer than the measured time, in any thread."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("frequent_renewal", "uncollected")
@pytest.mark.exact("measures time")
def test_locks_are_waited_for_and_renewed_while_time_is_frozen(face: Face, alice: Caller, bob: Caller) -> None:
    """[H14] A wait costs no CPU time."""
    lock = face.lock(expire=9, renew=True, wait=0.5)
    with freeze_time("2012-01-14"):
        grant = alice(lock.acquire)
        begin, before = time.clock_gettime(time.CLOCK_MONOTONIC), bob(computed)
        with pytest.raises(LockNotAcquired):
            bob(lock.acquire)
        assert bob(computed) - before < BUSY
        assert 0.4 < time.clock_gettime(time.CLOCK_MONOTONIC) - begin < 8
        end = grant.hold.deadline
        eventually(lambda: grant.hold.deadline > end + 0.8)
        alice(grant.ensure_held, confirm=True)
        waiting = face.start_waiting(bob, lock, timeout=20)
        alice(grant.release)
        bob(waiting.result(PATIENCE).release)


@on_memory
def test_a_tick_ends_a_lease_in_memory(face: Face, alice: Caller, bob: Caller) -> None:
    """[H14] So users' tests needn't wait for the end of a lease. [H1] [L41] Two holds at the same time of the clock
    have different fences."""
    lock = face.lock(expire=30)
    with freeze_time("2012-01-14") as freezer:
        first = alice(lock.acquire)
        alice(lock.release)
        assert alice(lock.acquire).fence > first.fence
        freezer.tick(29)
        assert bob(lock.acquire, timeout=0) is None
        freezer.tick(2)
        assert bob(lock.acquire, timeout=0)
