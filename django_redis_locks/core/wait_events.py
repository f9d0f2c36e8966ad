"""Auto-reset events that waiters sleep on, for a thread and for a task."""

from __future__ import annotations

import asyncio
import threading
import weakref
from math import inf
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from . import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    CallAt: TypeAlias = Callable[[float, Callable[[], object]], Callable[[], object]]


class ThreadEvent:
    """An event that one thread waits for, with a timeout.

    Attributes:
        on_set: wakes the thread when the event is set, if it sleeps elsewhere than in ``wait``.
    """

    on_set: Callable[[], object] | None = None

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the waiting thread, or the next one that waits. Safe in a signal handler and in a finalizer."""
        try:
            self._unset.release()
        except RuntimeError:
            pass  # it is set already
        on_set = self.on_set
        if on_set is not None:
            on_set()

    def take(self) -> bool:
        """Return whether the event is set, and reset it."""
        return self._unset.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Sleep until the event is set, at most for this many seconds of the engine's clock; then reset it."""
        clock.wait(self._unset, seconds)


def call_and_wait(submit: Callable[[Callable[[], object]], object], call: Callable[[], object], seconds: float) -> None:
    """Have ``submit`` run ``call`` in another thread, and wait until it returns, at most for ``seconds`` of the
    machine's clock."""
    done = threading.Lock()
    done.acquire()

    def make_call() -> None:
        call()
        done.release()

    submit(make_call)
    clock.SYSTEM.wait(done, seconds)


class TaskEvent:
    """An event that one task waits for, with a timeout. Any thread may set it.

    ``call_at`` provides the timeout, on the engine's clock. A loop's own timers stop under freezegun, and the wait
    would never end.
    """

    loops: ClassVar[weakref.WeakSet[asyncio.AbstractEventLoop]] = weakref.WeakSet()
    """The loops in which a task has waited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call_at: CallAt) -> None:
        self._loop = loop
        self._call_at = call_at
        self._is_set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiting task, or the next one that waits."""
        try:
            self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:
            pass  # the loop is closed, so no task waits

    def _set(self) -> None:
        self._is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Sleep until the event is set, at most for this many seconds of the engine's clock; then reset it."""
        if not self._is_set:
            self.loops.add(self._loop)
            self._future = self._loop.create_future()
            cancel = self._call_at(clock.now() + seconds, self.set) if seconds != inf else None
            try:
                await self._future
            finally:
                self._future = None
                if cancel is not None:
                    cancel()
        self._is_set = False
