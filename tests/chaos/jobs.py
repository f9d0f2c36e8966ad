"""What a worker does in its process when a test tells it to; see ``workers``."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

from django_redis_locks import Grant, Lock, clock, locks
from tests.chaos import workers
from tests.probes.client import waiting_callers

LEASE = 60.0
"""A fixed lease: nobody renews it, and no waiter asks because it is over."""

grants: dict[str, Grant] = {}
gates = workers.Gates()


class Pass(NamedTuple):
    """One possession of a lock. Times are those of the machine's clock, the same in all processes."""

    asked: float
    got: float
    fence: int
    who: str


def _lock(key: str) -> Lock:
    return locks.lock(key, expire=LEASE, wait=LEASE)


def ping() -> float:
    return clock.now()


def take(key: str, timeout: float = LEASE) -> Pass | None:
    """Acquire, and keep it until ``give``."""
    asked = clock.now()
    return _took(key, asked, _lock(key).acquire(timeout=timeout))


async def atake(key: str, timeout: float = LEASE) -> Pass | None:
    asked = clock.now()
    return _took(key, asked, await _lock(key).aacquire(timeout=timeout))


def _took(key: str, asked: float, grant: Grant | None) -> Pass | None:
    got = clock.now()
    if grant is None:
        return None
    grants[key] = grant
    return Pass(asked, got, grant.fence or 0, "")


def give(key: str) -> float:
    """Release; returns when."""
    grant = grants.pop(key)
    now = clock.now()
    grant.release()
    return now


async def agive(key: str) -> float:
    grant = grants.pop(key)
    now = clock.now()
    await grant.arelease()
    return now


def queued(key: str) -> int:
    """How many callers of this process wait for the lock, in all its homes."""
    return waiting_callers(locks["default"], _lock(key))


# Loops that are blocked, or end.


def lift(gate: str) -> None:
    gates[gate].set()


def lifted(gate: str) -> bool:
    return gates[gate].wait(workers.PATIENCE)


async def block(gate: str, cancels: int | None = None, later: bool = False) -> None:
    """Block the loop until the gate is lifted. Then cancel the task that does a job: before anything else happens in
    the loop, or ``later``, when it has carried out what came meanwhile."""
    gates[f"{gate} is blocked"].set()
    lifted(gate)
    if cancels is not None:
        cancel = workers.tasks[cancels].cancel
        if later:
            asyncio.get_running_loop().call_soon(cancel)
        else:
            cancel()


def abandon(key: str, gate: str) -> None:
    """Close a loop in which a task waits for the lock, when the gate is lifted."""
    loop = asyncio.new_event_loop()
    workers.tasks[-1] = loop.create_task(_lock(key).aacquire(timeout=LEASE))
    loop.run_until_complete(asyncio.to_thread(lifted, gate))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


# Many.


class Crowd:
    """Callers that wait for one lock, numbered in the order in which they came."""

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
    """Have so many threads wait for the lock, and return when they do."""
    crowds[key] = crowd = Crowd(key, size)
    for number in range(size):
        threading.Thread(target=crowd.work, args=(number,), daemon=True).start()
        while queued(key) <= crowd.before + number:
            time.sleep(0.0002)


async def agather(key: str, size: int) -> None:
    """The same with tasks."""
    crowds[key] = crowd = Crowd(key, size)
    crowd.tasks = [asyncio.create_task(crowd.awork(number)) for number in range(size)]
    while queued(key) < crowd.before + size:  # noqa: ASYNC110 - the queue has no event for it
        await asyncio.sleep(0)


def order(key: str) -> list[int]:
    """The order in which they went through, as soon as all have."""
    crowds[key].through.wait(workers.PATIENCE)
    return crowds[key].order


passed: list[Pass] = []
"""What the competitors of this process have had."""


def passes() -> int:
    return len(passed)


def compete(key: str, who: str, section: float) -> list[Pass]:
    """Take and give, again and again, until the gate "stop" is lifted."""
    lock, own = _lock(key), []
    while not gates["stop"].is_set():
        asked = clock.now()
        with lock as grant:
            own.append(Pass(asked, clock.now(), grant.fence or 0, who))
            passed.append(own[-1])
            time.sleep(section)
    return own


async def acompete(key: str, who: str, section: float) -> list[Pass]:
    lock, own = _lock(key), []
    while not gates["stop"].is_set():
        asked = clock.now()
        async with lock as grant:
            own.append(Pass(asked, clock.now(), grant.fence or 0, who))
            passed.append(own[-1])
            await asyncio.sleep(section)
    return own
