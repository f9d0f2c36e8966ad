"""Who waits for what in this process: one queue per key and *home*.

A home is the threads of the process, or one event loop: a blocked loop at the head of a common queue would hold up
every thread behind it. Only the head of a queue asks the store; the others cost nothing. A queue counts its wake-ups,
and the head asks again whenever the count moved since it last asked, so a wake-up that comes while the head is asking
is not lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from math import inf
from random import random
from typing import TYPE_CHECKING, Protocol

from . import clock
from .constants import JITTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from .effects import Join, Leave, Place, Seat, Wait


class Alarm(Protocol):
    """Calls back, from another thread, at a time of our clock; returns what takes it back."""

    def __call__(self, at: float, ring: Callable[[], object], /) -> Callable[[], None]: ...


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


class _Queue:
    def __init__(self) -> None:
        self.seats: deque[Seat] = deque()
        self.wakes = 0
        self.seen = 0
        self.next_try = -inf

    def turn(self, seat: Seat, until: float, now: float) -> bool | float:
        """True: ask now. False: too late. Else so many seconds of sleep at most."""
        if self.seats[0] is seat:
            due = min(self.next_try, until)
            if self.wakes == self.seen and now < due:
                return due - now
            self.seen = self.wakes
            return True
        return until - now if now < until else False


class Queues:
    """All queues of one store in this process."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A fork's child has none of its parent's waiters."""
        self._mutex = threading.RLock()
        self._queues: dict[Place, dict[object, _Queue]] = {}

    def join(self, effect: Join, alarm: Alarm) -> None:
        seat = effect.seat
        home = seat.home
        seat.gate = LoopGate(home, alarm) if isinstance(home, asyncio.AbstractEventLoop) else Gate()
        with self._mutex:
            seat.queue = self._queues.setdefault(seat.place, {}).setdefault(home, _Queue())
            seat.queue.seats.append(seat)

    def leave(self, effect: Leave) -> None:
        """Every step may be done again: a signal handler may have raised between any two of them."""
        seat = effect.seat
        queue = seat.queue
        if queue is None:
            return
        with self._mutex:
            if effect.pause is not None:
                queue.next_try = clock.now() + effect.pause
            if seat in queue.seats:
                queue.seats.remove(seat)
            if queue.seats:
                queue.seats[0].gate.open()
                return
            homes = self._queues.get(seat.place, {})
            if homes.get(seat.home) is queue:
                del homes[seat.home]
            if not homes:
                self._queues.pop(seat.place, None)

    def wake(self, place: Place) -> None:
        if place in self._queues:
            with self._mutex:
                for queue in self._queues.get(place, {}).values():
                    queue.wakes += 1
                    if queue.seats:
                        queue.seats[0].gate.open()

    def wait(self, effect: Wait) -> bool:
        seat = effect.seat
        self._set_pause(seat, effect.pause)
        while True:
            turn = self._turn(seat, effect.until)
            if isinstance(turn, bool):
                return turn
            seat.gate.sleep(turn)

    async def await_(self, effect: Wait) -> bool:
        seat = effect.seat
        self._set_pause(seat, effect.pause)
        while True:
            turn = self._turn(seat, effect.until)
            if isinstance(turn, bool):
                return turn
            await seat.gate.asleep(turn)

    def _set_pause(self, seat: Seat, pause: float | None) -> None:
        if pause is not None:
            with self._mutex:
                seat.queue.next_try = clock.now() + pause + random() * JITTER  # noqa: S311 - a spread, not a secret

    def _turn(self, seat: Seat, until: float) -> bool | float:
        with self._mutex:
            queue: _Queue = seat.queue
            return queue.turn(seat, until, clock.now())
