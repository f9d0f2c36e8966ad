"""Two processes on one memory store, with a virtual clock and injected faults."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from math import inf
from threading import get_ident
from types import SimpleNamespace
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
from django_redis_locks.core.prepared import PreparedCommand
from django_redis_locks.core.queue_values import Waiter
from django_redis_locks.core.registry import registry
from django_redis_locks.core.runner import run
from django_redis_locks.engine import engine
from django_redis_locks.primitives.lock import Lock
from django_redis_locks.primitives.shared.acquire_program import acquiring
from django_redis_locks.primitives.shared.release import releasing
from django_redis_locks.primitives.shared.requests import AcquireRequest

_numbers = itertools.count()


class VirtualClock:
    """Only the test's own waits advance it; the maintenance thread of an earlier test sleeps in real time."""

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
    """A memory backend with faults. ``outcomes`` has those of the next commands, by name: "ok", "lost" (the reply),
    "dropped" (the request), "late" (executed later), "stale", "down", "loading" or "refused"."""

    def __init__(self, location: str, time: VirtualClock) -> None:
        super().__init__(location)
        self.outcomes: dict[str, list[str]] = {}
        self.delays: list[float] = []
        """Seconds that the next replies take."""
        self._late: list[Command[Any]] = []
        self._time = time

    def call(self, command: Command[Any]) -> Any:
        outcomes = self.outcomes.get(command.name)
        outcome = outcomes.pop(0) if outcomes else "ok"
        if outcome in {"down", "loading", "refused"}:
            raise LockBackendError(f"it is {outcome}", transient=outcome != "refused", unreachable=outcome == "down")
        reply = super().call(command) if outcome in {"ok", "lost"} else None
        if outcome == "late":
            self._late.append(command)
        self._time.time += self.delays.pop(0) if self.delays else 0.0
        if outcome != "ok":
            raise LockBackendError(
                "no answer",
                outcome_unknown=True,
                transient=True,
                unreachable=True,
                on_reused_connection=outcome == "stale",
            )
        return reply

    def probe(self) -> None:
        if self.outcomes.get("probe"):
            raise LockBackendError(f"it is {self.outcomes['probe'].pop(0)}", transient=True, unreachable=True)

    def execute_late_requests(self) -> None:
        """Execute the delayed requests."""
        while self._late:
            super().call(self._late.pop())

    def call_many(self, commands: Any, timeout: float) -> list[Any]:
        return [MemoryBackend.call(self, command) for command in commands]


class Process:
    """An engine without a maintenance thread. It records its effects, and may raise an exception at one of them.

    Attributes:
        effects: the types of the effects, and the names of commands.
        interruption: the number of an effect, whether it is performed first, and the exception to raise.
        waits: functions to call when a caller begins to wait: at its first wait, its second one, …
    """

    def __init__(self, location: str, time: VirtualClock) -> None:
        self.backend = FaultyBackend(location, time)
        self.time = time
        self.engine = engine.Engine(self.backend)
        del engine._queues[self.backend.identity]  # each process has its own queues
        self._maintenance = self.engine._maintenance
        self.outage = self.engine.outage
        self.outage._thread.start = lambda: None  # type: ignore[method-assign]
        self._maintenance._thread.start = lambda: None  # type: ignore[method-assign]
        settings = ("default", MemoryBackend, location, {}, "lock", 10_000, 3.0, 60.0, False, True, False, (), "answer")
        self.locks = Locks(AliasSettings(*settings), self.engine)
        self.effects: list[str] = []
        self.renewed: list[Hold] = []
        self.interruption: tuple[int, bool, BaseException] | None = None
        self.waits: list[Callable[[], object]] = []
        self.fair = False
        """Whether its locks are fair ones."""
        self._other_caller = False
        """Whether another caller of this process runs, whose effects aren't recorded."""
        watch, unwatch = self.engine.watch, self.engine.unwatch
        self.engine.watch = lambda hold, *about: self._recorded(watch, "watch", hold, *about)
        self.engine.unwatch = lambda hold: self._recorded(unwatch, "unwatch", hold)
        self.engine.call_at = self._call_at  # type: ignore[method-assign, assignment]
        handlers, ahandlers = self.engine.handlers, self.engine.ahandlers
        for kind, perform in list(handlers.items()):
            handlers[kind] = lambda effect, perform=perform: self._recorded(perform, self._name(effect), effect)
        for kind, perform in list(ahandlers.items()):
            ahandlers[kind] = lambda effect, perform=perform: self._arecorded(perform, self._name(effect), effect)
        executor = SimpleNamespace(call=handlers[Command], acall=ahandlers[Command])
        self.engine.prepare = partial(PreparedCommand, executor)  # type: ignore[assignment, arg-type]

    def _call_at(self, at: float, callback: Callable[[], object]) -> Callable[[], object]:
        """A timer of a task: time passes unless the task is woken within a few iterations of its loop."""
        loop = asyncio.get_running_loop()
        handles: list[asyncio.Handle] = []

        def attempt(left: int) -> None:
            if left:
                handles[:] = [loop.call_soon(attempt, left - 1)]
            else:
                self.time.time = max(self.time.time, at)
                callback()

        def cancel() -> None:
            handles[0].cancel()

        attempt(8)
        return cancel

    def _name(self, effect: Any) -> str:
        if isinstance(effect, Wait) and self.waits:
            self.waits.pop(0)()
        return effect.name if isinstance(effect, Command) else type(effect).__name__

    def _record(self, name: str, hold: Any) -> bool:
        if self._other_caller:
            return False
        if name == "watch":
            self.renewed.append(hold)
        here = self.interruption is not None and len(self.effects) == self.interruption[0]
        self.effects.append(name)
        if here and not self.interruption[1]:  # type: ignore[index]
            raise self.interruption[2]  # type: ignore[index]
        return here

    def _recorded(self, perform: Any, name: str, *about: Any) -> Any:
        here = self._record(name, about[0])
        try:
            return perform(*about)
        finally:
            if here:
                raise self.interruption[2]  # type: ignore[index]

    async def _arecorded(self, perform: Any, name: str, *about: Any) -> Any:
        here = self._record(name, about[0])
        try:
            return await perform(*about)
        finally:
            if here:
                raise self.interruption[2]  # type: ignore[index]

    def lock(self, **options: Any) -> Lock:
        make = self.locks.fair_lock if self.fair else self.locks.lock
        return self.locks.rlock("a", **options) if options.pop("reentrant", False) else make("a", **options)

    def hold(self, loop: Any = None, **options: Any) -> Hold:
        """Let another caller of this process acquire the lock."""
        hold = self._run_as_other_caller(
            acquiring(self.lock(**options).spec, AcquireRequest(0.0, owners.current_owner(), loop))
        )
        assert isinstance(hold, Hold)
        return hold

    def free(self, hold: Hold) -> bool:
        """Let it release the lock."""
        assert hold.release_grant(next(iter(hold.open_grants)))
        return self._run_as_other_caller(releasing(self.lock().spec, hold, hold.loop))

    def _run_as_other_caller(self, program: Any) -> Any:
        self._other_caller = True
        try:
            return run(program, self.engine)
        finally:
            self._other_caller = False

    def add_waiter(self, loop: Any = None) -> Waiter:
        """Let another caller of this process wait."""
        lock = self.lock()
        waiter = Waiter(lock.lock_id, loop, lock.keys.inbox, 10_000)
        self.engine._queues._enqueue(waiter, self.engine)
        return waiter

    def remove_waiter(self, waiter: Waiter) -> None:
        self.engine._queues.leave(LeaveQueue(waiter, 0.0), self.engine)

    def execute_due_jobs(self) -> None:
        """Let the maintenance thread do what is due."""
        while self._maintenance._jobs:
            self._maintenance._jobs.popleft()()
        self._maintenance._cleanups.run(clock.now(), inf)

    def wait_until_idle(self) -> None:
        """Execute late requests and pending cleanups."""
        self.backend.execute_late_requests()
        self.execute_due_jobs()
        while self._maintenance._cleanups._due:
            self._maintenance._cleanups.run(inf, inf)


class Scenario:
    def __init__(self, time: VirtualClock) -> None:
        self.location = f"scenario {next(_numbers)}"
        self.time = time
        self.process, self.other = Process(self.location, time), Process(self.location, time)

    def forget(self) -> Any:
        return memory._stores.pop(self.location, None)

    def leftovers(self) -> list[str]:
        """What remains after the end of all callers, late requests and cleanups."""
        self.process.interruption = None
        for wait in self.process.waits:
            wait()
        left = [f"renewal of {hold.token}" for hold in self.process.renewed if hold.state is State.HELD]
        queues = self.process.engine._queues
        left += ["a queue"] * len(queues) + ["a first waiter"] * len(queues._first_waiters)
        self.process.wait_until_idle()
        store = self.forget()
        left += [f"in the store: {record.token}" for record in store.records.values()]
        left += [f"queued: {name}" for queue in store.queues.values() for name in queue]
        grants = registry.at(self.process.lock().lock_id)
        return left + [f"a grant: {grant}" for grant in grants if grant.hold.live or not grant.released]
