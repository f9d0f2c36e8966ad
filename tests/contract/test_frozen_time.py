"""Frozen time in a test of the user's stops neither waiting nor renewal: the engine's clock is one that freezegun leaves
alone. Only the leases of the memory backend run on the frozen clock, so that ``freezer.tick()`` ends them."""

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
from tests.contract.matrix import BACKENDS, Caller, Face, eventually

BUSY = 0.1
"""Seconds of computing from which on a wait wasn't spent asleep; four of them share the half second."""

MEMORY = "django_redis_locks.backends.memory.MemoryBackend"


def real() -> float:
    """Seconds that no freezer stops."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def spent() -> float:
    """Seconds that this thread has computed."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def renewed(grant: Grant) -> None:
    """Wait until it was renewed some times."""
    end = grant.hold.deadline
    eventually(lambda: grant.hold.deadline > end + 0.8)


def told_by_a_thread(lock: Lock) -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        grant = elsewhere.submit(lock.acquire).result()
        start, cost = real(), spent()
        with pytest.raises(LockNotAcquired):
            lock.acquire()
        took, cost = real() - start, spent() - cost
        renewed(grant)
        grant.ensure_held(confirm=True)
        assert not grant.lost
        waiting = elsewhere.submit(lock.acquire, timeout=20)
        grant.release()
        waiting.result().release()
    assert 0.4 < took < 8
    assert cost < BUSY


def told_by_tasks(lock: Lock) -> None:
    async def story() -> None:
        grant = await asyncio.create_task(lock.aacquire())
        start, cost = real(), spent()
        with pytest.raises(LockNotAcquired):
            await lock.aacquire()
        took, cost = real() - start, spent() - cost
        await asyncio.get_running_loop().run_in_executor(None, renewed, grant)
        await grant.aensure_held(confirm=True)
        assert not grant.lost
        waiting = asyncio.create_task(lock.aacquire(timeout=20))
        await grant.arelease()
        await (await waiting).arelease()
        assert 0.4 < took < 8
        assert cost < BUSY

    asyncio.run(story())


@pytest.fixture
def uncollected() -> Iterator[None]:
    """A look at all objects of the test run takes longer than what is measured, in whichever thread it happens to begin."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("often", "uncollected")
def test_locks_live_on_while_time_is_frozen(redis_url: str, settings: Any) -> None:
    """[H14] Acquire, wait, renew, release of each backend and face: a lease is renewed again and again, a wait
    ends when it should and costs no CPU. All at once, because real seconds pass."""
    settings.REDIS_LOCKS = {"memory": {"BACKEND": MEMORY}, "redis": {"LOCATION": redis_url}}
    stories = [(alias, story) for alias in ("memory", "redis") for story in (told_by_a_thread, told_by_tasks)]
    with freeze_time("2012-01-14"), ThreadPoolExecutor(len(stories)) as threads:
        ends = [
            threads.submit(story, locks[alias].lock(story.__name__, expire=9, renew=True, wait=0.5))
            for alias, story in stories
        ]
        for end in ends:
            end.result()


@pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
def test_a_tick_ends_a_lease_in_memory(face: Face, alice: Caller, bob: Caller) -> None:
    """[H14] For tests of the user's that want a lease to end without waiting for it."""
    lock = face.lock(expire=30)
    with freeze_time("2012-01-14") as freezer:
        alice(lock.acquire)
        freezer.tick(29)
        assert bob(lock.acquire, timeout=0) is None
        freezer.tick(2)
        assert bob(lock.acquire, timeout=0)


@pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
def test_fences_rise_while_time_is_frozen(face: Face, alice: Caller) -> None:
    """[H1] [L41] Two holds in one instant of the clock have two fences."""
    lock = face.lock()
    fences: list[int] = []
    with freeze_time("2012-01-14"):
        for _ in range(3):
            fences.append(alice(lock.acquire).fence)
            alice(lock.release)
    assert fences == sorted(set(fences))
