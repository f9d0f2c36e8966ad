"""One of the processes that contend for the lock, with four threads or four tasks.

    python -m tests.chaos.fuzz.worker '{"worker": 1, ...}'

It prints that it is ready, contends until its standard input is closed, and then ends with status 0. The nemesis kills
and stops it at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from time import monotonic as now
from typing import Any

from django_redis_locks import LockBackendError, LockLost, locks
from tests.chaos.fuzz.history import LOST, RELEASED, UNREACHABLE, Entry, Exit, Failed, History, Outcome, Refused, watch

LEASE = 1.0
PATIENCE = 30.0
"""The wait of a caller that waits. A caller without the lock in all that time has starved: that is a failure."""

SECTION = (0.0002, 0.002)
"""Seconds in the section."""

LONG_SECTION = 1.2
"""Longer than the lease: only a renewed lock survives it, so only where it is renewed,"""
LONG_SECTIONS = 1 / 1500
"""and so rarely that it costs little."""


def make_lock(maker: Any, kind: str, **options: Any) -> Any:
    """A lock of a kind with one holder at a time."""
    match kind:
        case "write":
            return maker.rwlock("fuzz", **options).write
        case "semaphore":
            return maker.semaphore("fuzz", 1, **options)
    return getattr(maker, kind)("fuzz", **options)


@dataclass(frozen=True)
class Config:
    """The configuration of one worker."""

    worker: int
    url: str
    history: str
    face: str
    """threads or tasks"""
    callers: int = 4
    renew: bool = False
    kind: str = "lock"
    seed: int = 0
    broken: str = ""
    """The name of a broken lock, to show that the checker finds it."""
    parent: int = 0

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def lock(self) -> Any:
        if self.broken:
            from tests.chaos.fuzz import broken_locks

            return broken_locks.LOCKS[self.broken](self.url)
        locks.configure({"default": {"LOCATION": self.url}})
        return make_lock(locks, self.kind, expire=LEASE, renew=self.renew, wait=PATIENCE)


class Caller:
    """One thread or task: the arguments of its calls, and its lines. It does no I/O."""

    def __init__(self, config: Config, number: int) -> None:
        self._random = Random(f"{config.seed} {config.worker} {number}")
        self._renew = config.renew
        self._worker = config.worker
        self._caller = number
        self._hold = 0
        self._asked = 0.0
        self._until = 0.0

    @property
    def _me(self) -> tuple[int, int, int]:
        return self._worker, self._caller, self._hold

    def wish(self) -> dict[str, Any]:
        """Return the arguments of an acquire: most wait, some give up soon, some don't wait."""
        draw = self._random.random()
        self._asked = now()
        if draw < 0.75:
            return {}
        return {"blocking": False} if draw < 0.8 else {"timeout": self._random.uniform(0, 0.05)}

    def enter(self, grant: Any) -> Entry:
        got = now()
        self._hold += 1
        self._until = deadline(grant)
        return Entry(*self._me, grant.fence, self._asked, got, self._until)

    def pauses(self, grant: Any) -> Iterator[float]:
        """Yield the sleeps of a section."""
        if not self._renew or self._random.random() > LONG_SECTIONS:
            yield self._random.uniform(*SECTION)
            return
        end = now() + LONG_SECTION
        while now() < end:
            yield 0.05
            self._until = max(self._until, deadline(grant))

    def leave(self, grant: Any) -> Exit:
        left = now()
        self._until = max(self._until, deadline(grant))
        lost = grant.lost
        return Exit(*self._me, left, self._until, lost, now())

    def outcome(self, result: str) -> Outcome:
        return Outcome(*self._me, result, now())

    def refused(self, error: Exception) -> Refused:
        return Refused(self._worker, self._caller, self._asked, now(), repr(error))

    def failed(self) -> Failed:
        return Failed(self._worker, self._caller, traceback.format_exc())


def deadline(grant: Any) -> float:
    """The end of the lease on our clock, less at most a millisecond; 0.0 if it is over.

    A process that is stopped between the two readings reads again.
    """
    while True:
        before = now()
        left = grant.remaining()
        if now() - before < 0.001:
            return before + left if left else 0.0


def contend(lock: Any, history: History, caller: Caller, over: threading.Event) -> None:
    while not over.is_set():
        try:
            grant = lock.acquire(**caller.wish())
        except LockBackendError as error:
            history.write(caller.refused(error))
            continue
        if grant is None:
            continue
        history.write(caller.enter(grant))
        for pause in caller.pauses(grant):
            time.sleep(pause)
        history.write(caller.leave(grant))
        result = RELEASED
        try:
            grant.release()
        except LockLost:
            result = LOST
        except LockBackendError:
            result = UNREACHABLE
        history.write(caller.outcome(result))


async def acontend(lock: Any, history: History, caller: Caller, over: threading.Event) -> None:
    while not over.is_set():
        try:
            grant = await lock.aacquire(**caller.wish())
        except LockBackendError as error:
            await history.awrite(caller.refused(error))
            continue
        if grant is None:
            continue
        await history.awrite(caller.enter(grant))
        for pause in caller.pauses(grant):
            await asyncio.sleep(pause)
        await history.awrite(caller.leave(grant))
        result = RELEASED
        try:
            await grant.arelease()
        except LockLost:
            result = LOST
        except LockBackendError:
            result = UNREACHABLE
        await history.awrite(caller.outcome(result))


class Worker:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._history = History(config.history)
        self._lock = config.lock()
        self._over = threading.Event()
        self._failed = False

    def run(self) -> int:
        done = threading.Event()
        watching = threading.Thread(target=watch, args=(self._history, done, self._config.worker))
        watching.start()
        threading.Thread(target=self._listen, daemon=True).start()
        callers = [Caller(self._config, number) for number in range(self._config.callers)]
        if self._config.face == "tasks":
            asyncio.run(self._tasks(callers))
        else:
            threads = [threading.Thread(target=self._thread, args=(caller,)) for caller in callers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        done.set()
        watching.join()
        self._history.close()
        return int(self._failed)

    def _listen(self) -> None:
        os.write(1, b"ready\n")
        os.read(0, 1)
        self._over.set()

    def _thread(self, caller: Caller) -> None:
        with self._noted(caller):
            contend(self._lock, self._history, caller, self._over)

    async def _tasks(self, callers: list[Caller]) -> None:
        await asyncio.gather(*(self._task(caller) for caller in callers))
        await self._history.aclose()

    async def _task(self, caller: Caller) -> None:
        with self._noted(caller):
            await acontend(self._lock, self._history, caller, self._over)

    @contextlib.contextmanager
    def _noted(self, caller: Caller) -> Iterator[None]:
        try:
            yield
        except BaseException:  # noqa: BLE001 - whatever ends a caller is a failure
            self._failed = True
            self._history.write(caller.failed())


def die_with(parent: int) -> None:
    """Linux ends this process when the one that started it dies, also if it is stopped. Elsewhere its input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit("The parent is gone.")


if __name__ == "__main__":
    config = Config(**json.loads(sys.argv[1]))
    die_with(config.parent)
    sys.exit(Worker(config).run())
