"""The jobs that a worker executes in its process; see ``workers``."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

from django_redis_locks import Grant, Lock, ReadLock, WriteLock, clock, locks
from tests.chaos import workers
from tests.probes.client import waiting_callers

LEASE = 60.0
"""Seconds of a lease that isn't renewed, and doesn't end during a test."""

grants: dict[str, Grant] = {}
gates = workers.Gates()


class CompletedHold(NamedTuple):
    """One hold of a lock. Times are on the machine's clock, which all processes share."""

    asked: float
    got: float
    fence: int
    queue_name: str


FAIR = "fair"
"""The key of a fair lock. All other locks but those below are plain ones."""

READ, WRITE = "to read", "to write"
"""The two sides of the read-write lock "rw"."""


def _lock(key: str) -> Lock | ReadLock | WriteLock:
    if key in (READ, WRITE):
        both = locks.rwlock("rw", expire=LEASE, wait=LEASE)
        return both.read if key == READ else both.write
    make = locks.fair_lock if key == FAIR else locks.lock
    return make(key, expire=LEASE, wait=LEASE)


def ping() -> float:
    return clock.now()


def acquire(key: str, timeout: float = LEASE) -> CompletedHold | None:
    """Acquire a lock and hold it until ``release``."""
    asked = clock.now()
    return _took(key, asked, _lock(key).acquire(timeout=timeout))


async def aacquire(key: str, timeout: float = LEASE) -> CompletedHold | None:
    asked = clock.now()
    return _took(key, asked, await _lock(key).aacquire(timeout=timeout))


def _took(key: str, asked: float, grant: Grant | None) -> CompletedHold | None:
    got = clock.now()
    if grant is None:
        return None
    grants[key] = grant
    return CompletedHold(asked, got, grant.fence or 0, "")


def visit(key: str) -> CompletedHold | None:
    """Acquire a lock, and release it."""
    hold = acquire(key)
    release(key)
    return hold


async def avisit(key: str) -> CompletedHold | None:
    hold = await aacquire(key)
    await arelease(key)
    return hold


def release(key: str) -> float:
    """Release a lock; return the time."""
    grant = grants.pop(key)
    now = clock.now()
    grant.release()
    return now


async def arelease(key: str) -> float:
    grant = grants.pop(key)
    now = clock.now()
    await grant.arelease()
    return now


def queued(key: str) -> int:
    """Return the number of callers of this process that wait for the lock, in threads and loops."""
    return waiting_callers(locks["default"], _lock(key))


# Latches


def wait_for_latch(key: str) -> tuple[bool, float]:
    return locks.latch(key).wait(), clock.now()


async def await_latch(key: str) -> tuple[bool, float]:
    return await locks.latch(key).await_(), clock.now()


def count_down(key: str, participant: str) -> int:
    return locks.latch(key).count_down(participant)


# Loops that are blocked, or end.


def open_gate(gate: str) -> None:
    gates[gate].set()


def wait_for_gate(gate: str) -> bool:
    return gates[gate].wait(workers.PATIENCE)


async def block(gate: str, cancels: int | None = None, later: bool = False) -> None:
    """Block the loop until the gate opens. Then cancel the task of a job: before the loop does anything else, or, with
    ``later``, after it has run the pending callbacks."""
    gates[f"{gate} is blocked"].set()
    wait_for_gate(gate)
    if cancels is not None:
        cancel = workers.tasks[cancels].cancel
        if later:
            asyncio.get_running_loop().call_soon(cancel)
        else:
            cancel()


def abandon(key: str, gate: str) -> None:
    """Close a loop in which a task waits for the lock, when the gate opens."""
    loop = asyncio.new_event_loop()
    workers.tasks[-1] = loop.create_task(_lock(key).aacquire(timeout=LEASE))
    loop.run_until_complete(asyncio.to_thread(wait_for_gate, gate))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


# Crowds


class Crowd:
    """Callers that wait for one lock, numbered in the order of their arrival."""

    def __init__(self, key: str, size: int) -> None:
        self.lock = _lock(key)
        self.before = queued(key)
        self.size = size
        self.order: list[int] = []
        self.through = threading.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def work(self, number: int) -> None:
        with self.lock:
            self._pass(number)

    async def awork(self, number: int) -> None:
        async with self.lock:
            self._pass(number)

    def _pass(self, number: int) -> None:
        self.order.append(number)
        if len(self.order) == self.size:
            self.through.set()


crowds: dict[str, Crowd] = {}


def gather(key: str, size: int) -> None:
    """Start `size` threads that wait for the lock, and return when all wait."""
    crowds[key] = crowd = Crowd(key, size)
    for number in range(size):
        threading.Thread(target=crowd.work, args=(number,), daemon=True).start()
        while queued(key) <= crowd.before + number:
            time.sleep(0.0002)


async def agather(key: str, size: int) -> None:
    """Start `size` tasks that wait for the lock, and return when all wait."""
    crowds[key] = crowd = Crowd(key, size)
    crowd.tasks = [asyncio.create_task(crowd.awork(number)) for number in range(size)]
    while queued(key) < crowd.before + size:  # noqa: ASYNC110 - the queue has no event for it
        await asyncio.sleep(0)


def order(key: str) -> list[int]:
    """Wait until all callers have held the lock, and return their numbers in that order."""
    crowds[key].through.wait(workers.PATIENCE)
    return crowds[key].order


holds: list[CompletedHold] = []
"""The holds of the competitors of this process."""


def hold_count() -> int:
    return len(holds)


def compete(key: str, queue_name: str, section: float) -> list[CompletedHold]:
    """Acquire and release again and again until the gate "stop" opens."""
    lock, own = _lock(key), []
    while not gates["stop"].is_set():
        asked = clock.now()
        with lock as grant:
            own.append(CompletedHold(asked, clock.now(), grant.fence or 0, queue_name))
            holds.append(own[-1])
            time.sleep(section)
    return own


async def acompete(key: str, queue_name: str, section: float) -> list[CompletedHold]:
    lock, own = _lock(key), []
    while not gates["stop"].is_set():
        asked = clock.now()
        async with lock as grant:
            own.append(CompletedHold(asked, clock.now(), grant.fence or 0, queue_name))
            holds.append(own[-1])
            await asyncio.sleep(section)
    return own


class Share(NamedTuple):
    """A time in which permits of a semaphore were held, on the machine's clock."""

    begin: float
    end: float
    permits: int


def share(key: str, limit: int, seconds: float) -> list[Share]:
    """Hold one or two permits of a semaphore again and again."""
    until, shares = clock.now() + seconds, []
    for number in range(1_000_000):
        permits = 1 + number % 2
        with locks.semaphore(key, limit, expire=LEASE, wait=LEASE).acquire(permits=permits):
            begin = clock.now()
            time.sleep(0.002)
            shares.append(Share(begin, clock.now(), permits))
        if clock.now() > until:
            break
    return shares


async def ashare(key: str, limit: int, seconds: float) -> list[Share]:
    until, shares = clock.now() + seconds, []
    for number in range(1_000_000):
        permits = 1 + number % 2
        async with await locks.semaphore(key, limit, expire=LEASE, wait=LEASE).aacquire(permits=permits):
            begin = clock.now()
            await asyncio.sleep(0.002)
            shares.append(Share(begin, clock.now(), permits))
        if clock.now() > until:
            break
    return shares


def take(key: str, limit: int, expire: float) -> bool:
    """Hold a permit, renewed, until the process ends."""
    grant = locks.semaphore(key, limit, expire=expire, renew=True).acquire(timeout=0)
    if grant is not None:
        grants[f"{key} {grant.fence}"] = grant
    return grant is not None


class SeveralHolds(NamedTuple):
    """A time in which several locks were held, on the machine's clock, with the fence of each."""

    begin: float
    end: float
    fences: dict[str, int | None]


def hold_several(keys: tuple[str, ...], seconds: float) -> list[SeveralHolds]:
    """Hold several locks again and again."""
    until, holds = clock.now() + seconds, []
    while clock.now() < until:
        with locks.multi_lock(*keys, expire=LEASE, wait=LEASE) as grant:
            begin = clock.now()
            time.sleep(0.001)
            holds.append(SeveralHolds(begin, clock.now(), dict(grant.fences)))
    return holds


async def ahold_several(keys: tuple[str, ...], seconds: float) -> list[SeveralHolds]:
    until, holds = clock.now() + seconds, []
    while clock.now() < until:
        async with locks.multi_lock(*keys, expire=LEASE, wait=LEASE) as grant:
            begin = clock.now()
            await asyncio.sleep(0.001)
            holds.append(SeveralHolds(begin, clock.now(), dict(grant.fences)))
    return holds


def take_several(keys: tuple[str, ...], expire: float, timeout: float = 0) -> bool:
    """Hold several locks, renewed, until the process ends."""
    grant = locks.multi_lock(*keys, expire=expire, renew=True).acquire(timeout=timeout)
    if grant is not None:
        grants[grant.key] = grant
    return grant is not None
