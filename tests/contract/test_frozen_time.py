"""Time that freezegun stops ends neither waiting nor renewal: the engine's clock goes on. Only the leases of the memory
backend run on the frozen clock, so that ``freezer.tick()`` ends them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from freezegun import freeze_time

from django_redis_locks import Grant, Lock, LockNotAcquired, locks
from tests.contract.matrix import Caller, Face, eventually, on_memory

BUSY = 0.1
"""Seconds of computing from which on a wait wasn't spent asleep; four of them share the half second."""

MEMORY = "django_redis_locks.backends.memory.MemoryBackend"


def spent() -> tuple[float, float]:
    """Seconds that passed, by a clock that freezegun doesn't stop, and seconds that this thread has computed."""
    return time.clock_gettime(time.CLOCK_MONOTONIC), time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def check_wait(begin: tuple[float, float]) -> None:
    """It took half a second, asleep."""
    passed, computed = (after - before for before, after in zip(begin, spent(), strict=True))
    assert 0.4 < passed < 8
    assert computed < BUSY


def wait_for_renewals(grant: Grant) -> None:
    end = grant.hold.deadline
    eventually(lambda: grant.hold.deadline > end + 0.8)


def use_in_threads(lock: Lock) -> None:
    with ThreadPoolExecutor(1) as other:
        grant = other.submit(lock.acquire).result()
        begin = spent()
        with pytest.raises(LockNotAcquired):
            lock.acquire()
        check_wait(begin)
        wait_for_renewals(grant)
        grant.ensure_held(confirm=True)
        assert not grant.lost
        waiting = other.submit(lock.acquire, timeout=20)
        grant.release()
        waiting.result().release()


def use_in_tasks(lock: Lock) -> None:
    async def use() -> None:
        grant = await asyncio.create_task(lock.aacquire())
        begin = spent()
        with pytest.raises(LockNotAcquired):
            await lock.aacquire()
        check_wait(begin)
        await asyncio.get_running_loop().run_in_executor(None, wait_for_renewals, grant)
        await grant.aensure_held(confirm=True)
        assert not grant.lost
        waiting = asyncio.create_task(lock.aacquire(timeout=20))
        await grant.arelease()
        await (await waiting).arelease()

    asyncio.run(use())


@pytest.fixture
def uncollected() -> Iterator[None]:
    """A garbage collection of the test run would take longer than what is measured, in any of the threads."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("often", "uncollected")
def test_locks_are_waited_for_and_renewed_while_time_is_frozen(redis_url: str, settings: Any) -> None:
    """[H14] On each backend and behind each face; a wait costs no CPU. All at once, because real seconds pass."""
    settings.REDIS_LOCKS = {"memory": {"BACKEND": MEMORY}, "redis": {"LOCATION": redis_url}}
    uses = [(alias, use) for alias in ("memory", "redis") for use in (use_in_threads, use_in_tasks)]
    with freeze_time("2012-01-14"), ThreadPoolExecutor(len(uses)) as threads:
        ends = [
            threads.submit(use, locks[alias].lock(use.__name__, expire=9, renew=True, wait=0.5)) for alias, use in uses
        ]
        for end in ends:
            end.result()


@on_memory
def test_a_tick_ends_a_lease_in_memory(face: Face, alice: Caller, bob: Caller) -> None:
    """[H14] For users' tests that want a lease to end without waiting for it. [H1] [L41] Two holds in one instant of the
    clock have two fences."""
    lock = face.lock(expire=30)
    with freeze_time("2012-01-14") as freezer:
        first = alice(lock.acquire)
        alice(lock.release)
        assert alice(lock.acquire).fence > first.fence
        freezer.tick(29)
        assert bob(lock.acquire, timeout=0) is None
        freezer.tick(2)
        assert bob(lock.acquire, timeout=0)
