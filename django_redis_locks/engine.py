"""The world that programs run in: one store, its queues and its janitor, shared by all aliases on that store."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from .core import clock
from .core.effects import (
    Command,
    Effect,
    Freed,
    HandOver,
    Join,
    Leave,
    LineUp,
    Listen,
    Now,
    Pause,
    Place,
    Sweep,
    Unwatch,
    Wait,
    Watch,
)
from .core.keys import waiters_of
from .core.owners import running_loop
from .core.queues import Gate, LoopGate, Queues
from .renewal import Janitor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backends.base import Backend
    from .core.effects import Handed

R = TypeVar("R")


class Engine:
    """Performs the effects of programs on one backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._queues = _queues.setdefault(backend.identity, Queues())
        self._janitor = Janitor(backend, self._freed)
        self._inbox = backend.inbox(self)
        hear = self._inbox.hears
        self._perform: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            Now: lambda _: clock.now(),
            Command: self._call,
            Join: lambda effect: self._queues.join(effect, self._janitor.alarm, self._left),
            Wait: self._wait,
            Leave: lambda effect: self._queues.leave(effect, self._left),
            Listen: self._listen,
            HandOver: self._queues.hand_over,
            LineUp: lambda effect: self._queues.line_up(effect, hear),
            Freed: self._freed,
            Watch: self._janitor.watch,
            Unwatch: lambda effect: self._janitor.unwatch(effect.hold),
            Sweep: self._janitor.sweep,
            Pause: lambda effect: Gate().sleep(effect.seconds),
        }
        _engines.add(self)

    def perform(self, effect: Effect[R]) -> R:
        reply: R = self._perform[type(effect)](effect)
        return reply

    async def aperform(self, effect: Effect[R]) -> R:
        reply: Any
        if isinstance(effect, Command):
            reply = effect.parse(await self.backend.acall(effect))
        elif isinstance(effect, Wait):
            reply = await self._queues.await_(effect, self._inbox.hears)
        elif isinstance(effect, Listen):
            gate = self._loop_gate()
            self._inbox.open(effect.channel, gate.open)
            await gate.asleep(effect.seconds)
            reply = bool(self._inbox.hears(effect.channel))
        elif isinstance(effect, Pause):
            await self._loop_gate().asleep(effect.seconds)
            reply = None
        else:
            reply = self.perform(effect)
        return reply  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close idle connections, and the inbox."""
        self._inbox.close()
        self.backend.close()

    def settle(self, seconds: float) -> None:
        """Wait until what was left to the janitor so far has been tried, at most so long. A barrier for tests."""
        self._janitor.settle(seconds)

    def _call(self, command: Command[Any]) -> Any:
        _refuse_to_block_a_loop()
        return command.parse(self.backend.call(command))

    def _wait(self, effect: Wait) -> Any:
        _refuse_to_block_a_loop()
        return self._queues.wait(effect, self._inbox.hears)

    def _listen(self, effect: Listen) -> bool:
        gate = Gate()
        self._inbox.open(effect.channel, gate.open)
        gate.sleep(effect.seconds)
        return bool(self._inbox.hears(effect.channel))

    def _loop_gate(self) -> LoopGate:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - we are in a coroutine
        return LoopGate(loop, self._janitor.alarm)

    # What an inbox tells.

    def told(self, number: str, lock: str) -> None:
        """A wake-up came; if nobody here waits any more it is somebody else's."""
        place = Place(self.backend.identity, lock)
        if not self._queues.wake(place, number):
            self._left(place, "", None)

    def missed(self) -> None:
        self._queues.wake_all()

    def waiting(self) -> bool:
        return len(self._queues) > 0

    def _freed(self, effect: Freed) -> None:
        self._queues.freed(effect, self._left)

    def _left(self, place: Place, address: str, handed: Handed | None) -> None:
        if handed is not None:
            hold = handed.hold
            self._janitor.sweep(Sweep(place, handed.free(hold.token), hold.lease / 1000))
        keys = place.lock, waiters_of(place.lock)
        self._janitor.send(Command("queue/leave", keys, (address,), int), place)

    def after_fork_in_child(self) -> None:
        self.backend.after_fork_in_child()
        self._inbox.after_fork_in_child()
        self._queues.clear()
        self._janitor.after_fork_in_child()


def _refuse_to_block_a_loop() -> None:
    if running_loop() is not None and not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise SynchronousOnlyOperation(
            "You cannot call this from an async context - use the a-twin of the method "
            "(acquire: aacquire, with: async with), or a thread or sync_to_async."
        )


_queues: dict[str, Queues] = {}
"""By the identity of the store: two aliases of one server queue up together."""

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for engine in list(_engines):
        engine.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
