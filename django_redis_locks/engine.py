"""The world that programs run in: one store, its queues and its janitor, shared by all aliases on that store."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from .core import clock
from .core.constants import FIRST_RETRY
from .core.effects import Command, Effect, Join, Leave, Now, Pause, Sweep, Unwatch, Wait, Wake, Watch
from .core.owners import running_loop
from .core.queues import Gate, LoopGate, Queues
from .renewal import Janitor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backends.base import Backend

R = TypeVar("R")

POLL = 2 * FIRST_RETRY
"""How often the first waiter of a process asks a store that doesn't announce releases."""


class Engine:
    """Performs the effects of programs on one backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._queues = _queues.setdefault(backend.identity, Queues())
        self._janitor = Janitor(backend, self._queues)
        self._perform: dict[type[Effect[Any]], Callable[[Any], Any]] = {
            Now: lambda _: clock.now(),
            Command: self._call,
            Join: lambda effect: self._queues.join(effect, self._janitor.alarm),
            Wait: self._wait,
            Leave: self._queues.leave,
            Wake: lambda effect: self._queues.wake(effect.place),
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
            reply = await self._queues.await_(self._polling(effect))
        elif isinstance(effect, Pause):
            loop = running_loop()
            assert loop is not None  # noqa: S101 - we are in a coroutine
            await LoopGate(loop, self._janitor.alarm).asleep(effect.seconds)
            reply = None
        else:
            reply = self.perform(effect)
        return reply  # type: ignore[no-any-return]

    def settle(self, seconds: float) -> None:
        """Wait until what was left to the janitor so far has been tried, at most so long. A barrier for tests."""
        self._janitor.settle(seconds)

    def _call(self, command: Command[Any]) -> Any:
        _refuse_to_block_a_loop()
        return command.parse(self.backend.call(command))

    def _wait(self, effect: Wait) -> bool:
        _refuse_to_block_a_loop()
        return self._queues.wait(self._polling(effect))

    def _polling(self, effect: Wait) -> Wait:
        if self.backend.announces or effect.pause is None or effect.pause <= POLL:
            return effect
        return Wait(effect.seat, effect.until, POLL)

    def after_fork_in_child(self) -> None:
        self.backend.after_fork_in_child()
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
