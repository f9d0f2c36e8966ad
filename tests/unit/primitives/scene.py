"""A process and its neighbour on one memory store, in a time that only their waits move, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from math import inf
from threading import get_ident
from typing import Any

from django_redis_locks import LockBackendError
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.client import Locks
from django_redis_locks.conf import AliasSettings
from django_redis_locks.core import clock, owners
from django_redis_locks.core.commands import Command
from django_redis_locks.core.effects import LeaveQueue, Wait
from django_redis_locks.core.hold import Hold, State
from django_redis_locks.core.queue_values import Waiter
from django_redis_locks.core.registry import registry
from django_redis_locks.core.runner import run
from django_redis_locks.engine import engine
from django_redis_locks.primitives.lock import Lock
from django_redis_locks.primitives.shared.requests import AcquireRequest

_numbers = itertools.count()


class StoppedClock:
    """The test's own sleeps move it; a maintenance thread that an earlier test began sleeps in real time."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._thread = get_ident()

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def wait(self, lock: Any, seconds: float) -> None:
        if get_ident() != self._thread:
            clock.SYSTEM.wait(lock, seconds)
        elif not lock.acquire(blocking=False):
            self.time += seconds


class FaultyBackend(MemoryBackend):
    """``fates`` are those of the next commands with a name: "ok", "lost", "dropped", "late", "stale", "down",
    "loading" or "refused"."""

    def __init__(self, location: str, time: StoppedClock) -> None:
        super().__init__(location)
        self.fates: dict[str, list[str]] = {}
        self.delays: list[float] = []
        """Seconds that the next answers take."""
        self._late: list[Command[Any]] = []
        self._time = time

    def call(self, command: Command[Any]) -> Any:
        fates = self.fates.get(command.name)
        fate = fates.pop(0) if fates else "ok"
        if fate in {"down", "loading", "refused"}:
            raise LockBackendError(f"it is {fate}", transient=fate != "refused", unreachable=fate == "down")
        reply = super().call(command) if fate in {"ok", "lost"} else None
        if fate == "late":
            self._late.append(command)
        self._time.time += self.delays.pop(0) if self.delays else 0.0
        if fate != "ok":
            raise LockBackendError(
                "no answer",
                outcome_unknown=True,
                transient=True,
                unreachable=True,
                on_reused_connection=fate == "stale",
            )
        return reply

    def probe(self) -> None:
        if self.fates.get("probe"):
            raise LockBackendError(f"it is {self.fates['probe'].pop(0)}", transient=True, unreachable=True)

    def carry_out_late(self) -> None:
        """The copies of requests that were given up arrive."""
        while self._late:
            super().call(self._late.pop())

    def call_many(self, commands: Any, timeout: float) -> list[Any]:
        return [MemoryBackend.call(self, command) for command in commands]


class Process:
    """An engine without a maintenance thread. Its effects are noted, and an exception may strike at one of them.

    Attributes:
        effects: their kinds, and the names of commands.
        strike: the number of the effect, whether it is carried out before, and what is raised.
        waits: what happens when a caller begins to wait, the first time, the second time, …
    """

    def __init__(self, location: str, time: StoppedClock) -> None:
        self.backend = FaultyBackend(location, time)
        self.time = time
        self.engine = engine.Engine(self.backend)
        del engine._queues[self.backend.identity]  # each process has its own
        self._maintenance = self.engine._maintenance
        self.outage = self.engine._outage
        self.outage._thread.start = lambda: None  # type: ignore[method-assign]
        self._maintenance._thread.start = lambda: None  # type: ignore[method-assign]
        settings = ("default", MemoryBackend, location, {}, "lock", 10_000, 3.0, 60.0, False, True, False, (), "answer")
        self.locks = Locks(AliasSettings(*settings), self.engine)
        self.effects: list[str] = []
        self.renewed: list[Hold] = []
        self.strike: tuple[int, bool, BaseException] | None = None
        self.waits: list[Callable[[], object]] = []
        self._aside = False
        """Somebody else of this process acts."""
        watch, unwatch = self.engine.watch, self.engine.unwatch
        self.engine.watch = lambda hold, *about: self._noting(watch, "watch", hold, *about)
        self.engine.unwatch = lambda hold: self._noting(unwatch, "unwatch", hold)
        self.engine.call_at = self._call_at  # type: ignore[method-assign, assignment]
        handlers, ahandlers = self.engine.handlers, self.engine.ahandlers
        for kind, perform in list(handlers.items()):
            handlers[kind] = lambda effect, perform=perform: self._noting(perform, self._name(effect), effect)
        for kind, perform in list(ahandlers.items()):
            ahandlers[kind] = lambda effect, perform=perform: self._anoting(perform, self._name(effect), effect)

    def _call_at(self, at: float, ring: Callable[[], object]) -> Callable[[], object]:
        """Of a task: time passes unless something wakes it within a few turns of its loop."""
        loop = asyncio.get_running_loop()
        handles: list[asyncio.Handle] = []

        def attempt(left: int) -> None:
            if left:
                handles[:] = [loop.call_soon(attempt, left - 1)]
            else:
                self.time.time = max(self.time.time, at)
                ring()

        def cancel() -> None:
            handles[0].cancel()

        attempt(8)
        return cancel

    def _name(self, effect: Any) -> str:
        if isinstance(effect, Wait) and self.waits:
            self.waits.pop(0)()
        return effect.name if isinstance(effect, Command) else type(effect).__name__

    def _begin(self, name: str, hold: Any) -> bool:
        if self._aside:
            return False
        if name == "watch":
            self.renewed.append(hold)
        here = self.strike is not None and len(self.effects) == self.strike[0]
        self.effects.append(name)
        if here and not self.strike[1]:  # type: ignore[index]
            raise self.strike[2]  # type: ignore[index]
        return here

    def _noting(self, perform: Any, name: str, *about: Any) -> Any:
        here = self._begin(name, about[0])
        try:
            return perform(*about)
        finally:
            if here:
                raise self.strike[2]  # type: ignore[index]

    async def _anoting(self, perform: Any, name: str, *about: Any) -> Any:
        here = self._begin(name, about[0])
        try:
            return await perform(*about)
        finally:
            if here:
                raise self.strike[2]  # type: ignore[index]

    def lock(self, **options: Any) -> Lock:
        return self.locks.rlock("a", **options) if options.pop("reentrant", False) else self.locks.lock("a", **options)

    def hold(self, loop: Any = None, **options: Any) -> Hold:
        """Somebody else of this process acquires the lock."""
        hold = self._else(self.lock(**options).acquiring(AcquireRequest(0.0, owners.current_owner(), loop)))
        assert isinstance(hold, Hold)
        return hold

    def free(self, hold: Hold) -> bool:
        """And gives it back."""
        assert hold.release_grant(next(iter(hold.open_grants)))
        return self._else(self.lock().releasing(hold, hold.loop))

    def _else(self, program: Any) -> Any:
        self._aside = True
        try:
            return run(program, self.engine)
        finally:
            self._aside = False

    def sit(self, loop: Any = None) -> Waiter:
        """Somebody else of this process waits."""
        lock = self.lock()
        waiter = Waiter(lock.lock_id, loop, lock.keys.inbox, 10_000)
        self.engine._queues._enqueue(waiter, self.engine)
        return waiter

    def stand(self, waiter: Waiter) -> None:
        self.engine._queues.leave(LeaveQueue(waiter, 0.0), self.engine)

    def wait_until_idle(self) -> None:
        """Late copies arrive, and the janitor does what was left to it."""
        self.backend.carry_out_late()
        while self._maintenance._jobs:
            self._maintenance._jobs.popleft()()
        while self._maintenance._cleanups._due:
            self._maintenance._cleanups.run(inf, inf)


class Scene:
    def __init__(self, time: StoppedClock) -> None:
        self.location = f"scene {next(_numbers)}"
        self.time = time
        self.process, self.other = Process(self.location, time), Process(self.location, time)

    def forget(self) -> Any:
        return memory._stores.pop(self.location, None)

    def left_behind(self) -> list[str]:
        """What remains when the others are gone too, and the janitor has done its work."""
        self.process.strike = None
        for wait in self.process.waits:
            wait()
        left = [f"renewal of {hold.token}" for hold in self.process.renewed if hold.state is State.HELD]
        left += ["a queue"] * len(self.process.engine._queues)
        self.process.wait_until_idle()
        store = self.forget()
        left += [f"in the store: {record.token}" for record in store.records.values()]
        left += [f"queued: {name}" for queue in store.queues.values() for name in queue]
        grants = registry.at(self.process.lock().lock_id)
        return left + [f"a grant: {grant}" for grant in grants if grant.hold.live or not grant.released]
