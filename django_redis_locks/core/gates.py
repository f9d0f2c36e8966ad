"""Where waiters sleep: a thread, or a task."""

from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from . import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    Alarm: TypeAlias = Callable[[float, Callable[[], object]], Callable[[], object]]


class Gate:
    """Lets one thread sleep until it is opened, or for so long."""

    def __init__(self) -> None:
        self._closed = threading.Lock()
        self._closed.acquire()

    def open(self) -> None:
        try:
            self._closed.release()
        except RuntimeError:
            pass  # open already

    def sleep(self, seconds: float) -> None:
        self._closed.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class LoopGate:
    """Lets one task sleep until it is opened, from any thread, or for so long.

    An alarm rings on our own clock: a loop's timers stand still under freezegun, and the sleep would never end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, alarm: Alarm) -> None:
        self._loop = loop
        self._alarm = alarm
        self._opened = False
        self._future: asyncio.Future[None] | None = None

    def open(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._open)
        except RuntimeError:
            pass  # the loop is closed: nobody sleeps there any more

    def _open(self) -> None:
        self._opened = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def asleep(self, seconds: float) -> None:
        if not self._opened:
            self._future = self._loop.create_future()
            take_back = self._alarm(clock.now() + seconds, self.open) if seconds != inf else None
            try:
                await self._future
            finally:
                self._future = None
                if take_back is not None:
                    take_back()
        self._opened = False
