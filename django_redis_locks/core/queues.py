"""Who waits for what in this process: one queue per key and *home*.

A home is the threads of the process, or one event loop: a blocked loop at the head of a common queue would hold up
every thread behind it. Only the head of a queue asks the store; the others cost nothing. A queue counts its wake-ups,
and the head asks again whenever the count moved since it last asked, so a wake-up that comes while the head is asking
is not lost.

What comes for a waiter is the queue's: a wake-up, a place in the store's line, a lock that is handed over. Whoever is
head uses it, and what is left when the last one leaves goes to the janitor.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from itertools import count
from math import inf
from random import random
from typing import TYPE_CHECKING, Protocol, TypeAlias

from . import clock
from .constants import JITTER, POLITE
from .effects import Trouble, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .effects import Freed, Handed, HandOver, Join, Leave, LineUp, Place, Seat, Standing, Wait

    Hear: TypeAlias = Callable[[str], str]


mint_number = count(1).__next__
"""Numbers of queues."""


class Alarm(Protocol):
    """Calls back, from another thread, at a time of our clock; returns what takes it back."""

    def __call__(self, at: float, ring: Callable[[], object], /) -> Callable[[], None]: ...


class Left(Protocol):
    """Told what the last one in a queue leaves behind: its place in the store's line, and what was handed to it. May be
    told twice."""

    def __call__(self, place: Place, address: str, handed: Handed | None, /) -> None: ...


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
    def __init__(self, home: object, next_try: float) -> None:
        self.home = home
        self.number = f"{mint_number():x}"
        """Tells the queues of a process apart, in the store. No other queue ever gets it: what an earlier one left there
        is taken away later, and must not be taken for this one's."""
        self.seats: deque[Seat] = deque()
        self.wakes = 0
        self.seen = 0
        """The wake-ups that the last question knew of."""
        self.answered = 0
        """Those that the last question knew of that was answered."""
        self.next_try = next_try
        self.address = ""
        """Where the store may have registered this queue; "" if it has not, or has told it since."""
        self.arrival = 0
        self.handed: Handed | None = None
        self.trouble = Trouble()

    def turn(self, seat: Seat, until: float, now: float, hear: Hear) -> Turn | float | None:
        """A turn: ask now. None: too late. Else so many seconds of sleep at most."""
        if self.seats[0] is not seat:
            return until - now if now < until else None
        due = min(self.next_try, until)
        if self.handed is None and self.wakes == self.seen and now < due:
            return due - now
        self.seen = self.wakes
        channel = hear(seat.channel)
        if channel:
            self.address = f"{channel} {self.number}"
        seat.turn = Turn(self.address if channel else "", self.arrival, len(self.seats) > 1, self.handed)
        return seat.turn

    def told(self, seat: Seat, standing: Standing) -> None:
        """The store answered this seat's question."""
        turn = seat.turn
        if turn is None:
            return
        self.answered = self.seen
        if turn.address:  # else the store did nothing about our place in the line
            self.address = turn.address if standing.arrival else ""
            self.arrival = standing.arrival
        if self.handed is turn.handed:
            self.handed = None

    def unsettled(self) -> bool:
        """Something in the store, or on its way from it, counts on this queue."""
        return bool(self.address) or self.wakes != self.answered or self.handed is not None

    def closed(self) -> bool:
        """Its loop was closed, and the tasks that wait on it were never cancelled."""
        return isinstance(self.home, asyncio.AbstractEventLoop) and self.home.is_closed()

    def leave_behind(self, place: Place, left: Left) -> None:
        if self.unsettled():
            left(place, self.address, self.handed)
            self.address, self.answered, self.handed = "", self.wakes, None

    def wake(self) -> None:
        self.wakes += 1
        if self.seats:
            self.seats[0].gate.open()


class Queues:
    """All queues of one store in this process."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A fork's child has none of its parent's waiters."""
        self._mutex = threading.RLock()
        self._queues: dict[Place, dict[object, _Queue]] = {}
        self._polite: dict[Place, float] = {}

    def __len__(self) -> int:
        """How many keys somebody waits for."""
        return len(self._queues)

    def join(self, effect: Join, alarm: Alarm, left: Left) -> None:
        seat = effect.seat
        home = seat.home
        seat.gate = LoopGate(home, alarm) if isinstance(home, asyncio.AbstractEventLoop) else Gate()
        with self._mutex:
            homes = self._queues.setdefault(seat.place, {})
            queue = homes.get(home)
            if queue is None:
                self._drop_closed(seat.place, homes, left)
                next_try = self._polite.get(seat.place, -inf) if self._polite else -inf
                queue = homes[home] = _Queue(home, next_try)
            seat.queue = queue
            seat.trouble = queue.trouble
            queue.seats.append(seat)

    def leave(self, effect: Leave, left: Left) -> None:
        """Every step may be done again: a signal handler may have raised between any two of them."""
        seat = effect.seat
        queue: _Queue | None = seat.queue
        with self._mutex:
            if queue is not None:
                self._leave(queue, effect, left)
            homes = self._queues.get(seat.place)
            if homes is not None:
                found = homes.get(seat.home)
                if found is not None and not found.seats:
                    del homes[seat.home]
                if homes:
                    self._drop_closed(seat.place, homes, left)
                if not homes:
                    self._queues.pop(seat.place, None)

    def _drop_closed(self, place: Place, homes: dict[object, _Queue], left: Left) -> None:
        for stale in [queue for queue in homes.values() if queue.closed()]:
            stale.leave_behind(place, left)  # before it is forgotten: see leave()
            del homes[stale.home]

    def _leave(self, queue: _Queue, effect: Leave, left: Left) -> None:
        seat = effect.seat
        if effect.standing is not None:
            queue.told(seat, effect.standing)
        elif queue.handed is not None and seat.turn is not None and seat.turn.handed is queue.handed:
            queue.handed.doubtful = True
        if effect.pause is not None:
            queue.next_try = clock.now() + effect.pause
        if seat in queue.seats:
            queue.seats.remove(seat)
        if queue.seats:
            queue.seats[0].gate.open()
        else:
            queue.leave_behind(seat.place, left)

    def hand_over(self, effect: HandOver) -> bool:
        place = effect.handed.hold.place
        if place in self._queues:
            with self._mutex:
                queue = self._queues.get(place, {}).get(effect.home)
                if queue is not None and queue.seats:
                    queue.handed = effect.handed
                    queue.seats[0].gate.open()
                    return True
        return False

    def line_up(self, effect: LineUp, hear: Hear) -> str:
        with self._mutex:
            queue = self._queues.get(effect.place, {}).get(effect.home)
            if queue is None or not queue.seats:
                return ""
            channel = hear(queue.seats[0].channel)
            if channel:
                queue.address, queue.arrival = f"{channel} {queue.number}", 0
            return queue.address

    def freed(self, effect: Freed, left: Left) -> None:
        """Who hears of it from the store, because it is registered, is left to that."""
        place = effect.place
        if effect.address:
            number = effect.address.rpartition(" ")[2]
            with self._mutex:
                if not any(queue.number == number and queue.seats for queue in self._of(place)):
                    left(place, effect.address, None)
        if effect.woke:
            now = clock.now()
            with self._mutex:
                if len(self._polite) > 64:
                    self._polite = {place: until for place, until in self._polite.items() if until > now}
                self._polite[place] = now + POLITE
                for queue in self._of(place):
                    if not queue.address:
                        queue.next_try = min(queue.next_try, now + POLITE)
                        if queue.seats:
                            queue.seats[0].gate.open()
        elif place in self._queues:
            with self._mutex:
                for queue in self._of(place):
                    queue.wake()

    def wake(self, place: Place, number: str) -> bool:
        """The store has taken this queue out of the line, since the lock may be free; False if nobody waits there."""
        with self._mutex:
            for queue in self._of(place):
                if queue.number == number and queue.seats and not queue.closed():
                    queue.address = ""
                    queue.wake()
                    return True
        return False

    def wake_all(self) -> None:
        """Wake-ups may have been missed."""
        with self._mutex:
            for place in list(self._queues):
                for queue in self._of(place):
                    queue.wake()

    def _of(self, place: Place) -> Iterator[_Queue]:
        return iter(list(self._queues.get(place, {}).values()))

    def wait(self, effect: Wait, hear: Hear) -> Turn | None:
        seat = effect.seat
        self._begin(effect)
        while True:
            turn = self._turn(seat, effect.until, hear)
            if not isinstance(turn, float):
                return turn
            seat.gate.sleep(turn)

    async def await_(self, effect: Wait, hear: Hear) -> Turn | None:
        seat = effect.seat
        self._begin(effect)
        while True:
            turn = self._turn(seat, effect.until, hear)
            if not isinstance(turn, float):
                return turn
            await seat.gate.asleep(turn)

    def _begin(self, effect: Wait) -> None:
        seat = effect.seat
        if effect.standing is not None or effect.pause is not None:
            with self._mutex:
                queue: _Queue = seat.queue
                if effect.standing is not None:
                    queue.told(seat, effect.standing)
                if effect.pause is not None:
                    spread = random() * JITTER if effect.pause else 0.0  # noqa: S311 - no secret
                    queue.next_try = clock.now() + effect.pause + spread

    def _turn(self, seat: Seat, until: float, hear: Hear) -> Turn | float | None:
        with self._mutex:
            queue: _Queue = seat.queue
            return queue.turn(seat, until, clock.now(), hear)
