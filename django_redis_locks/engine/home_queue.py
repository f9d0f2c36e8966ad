"""One queue of waiters of this process: the threads that wait for a key, or the tasks of one event loop that do."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol

from ..core import clock
from ..core.effects import Attempt, QueueOutage
from ..core.wakeup import TaskEvent, ThreadEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.effects import HandedOverLock, LockId, QueuePosition, Waiter
    from ..core.tuning import Tuning


mint_number = count(1).__next__  # numbers of queues


class Outside(Protocol):
    """What queues know of the process and the store around them."""

    @property
    def tuning(self) -> Tuning: ...

    def hear(self, channel: str, /) -> str:
        """The name of the process's inbox on a channel; "" while nobody listens there."""

    def left(self, place: LockId, address: str, handed: HandedOverLock | None, /) -> object:
        """Told what the last one in a queue leaves behind: its place in the store's line, and what was handed to it. May
        be told twice."""

    def alarm(self, at: float, ring: Callable[[], object], /) -> Callable[[], object]:
        """Call back, from another thread, at a time of our clock; returns what takes that back."""

    def put(self, job: Callable[[], object], /) -> object:
        """Have the maintenance thread do a job, if it runs. Safe in a finalizer."""

    def may_block(self) -> object:
        """Raise if this thread must not sleep."""


class _Queue(QueueOutage):
    wakes = 0
    seen = 0
    """The wake-ups that the last question knew of."""
    answered = 0
    """Those that the last question knew of that was answered."""
    address = ""
    """Where the store may have registered this queue; "" if it has not, or has told it since."""
    arrival = 0
    handed: HandedOverLock | None = None
    _number = ""

    def __init__(self, home: object, next_try: float) -> None:
        self.home = home
        self.next_try = next_try
        self.seats: list[Waiter] = []

    @property
    def number(self) -> str:
        """Tells the queues of a process apart, in the store. No other queue ever gets it: what an earlier one left there
        is taken away later, and must not be taken for this one's."""
        if not self._number:
            self._number = f"{mint_number():x}"
        return self._number

    def turn(self, seat: Waiter, until: float, outside: Outside) -> Attempt | float | None:
        """A turn: ask now, or take over. None: too late. Else so many seconds of sleep at most, and the seat has a gate."""
        if self.seats[0] is not seat:
            now = clock.now()
            return self._sleep(seat, until - now, outside) if now < until else None
        handed = self.handed
        if self.wakes == self.seen:
            if handed is not None and handed.hold.passes_on(seat.lease, outside.tuning.local_reuse_window):
                handed.taker = seat
                seat.turn = Attempt(taken=handed)
                return seat.turn
            if handed is None and (now := clock.now()) < self.next_try and now < until:
                return self._sleep(seat, min(self.next_try, until) - now, outside)
        self.seen = self.wakes
        channel = outside.hear(seat.channel)
        if channel:
            self.address = f"{channel} {self.number}"
        seat.turn = Attempt(self.address if channel else "", self.arrival, self.seats[-1] is not seat, handed)
        return seat.turn

    def _sleep(self, seat: Waiter, seconds: float, outside: Outside) -> float:
        if seat.gate is None:
            home = self.home
            seat.gate = TaskEvent(home, outside.alarm) if isinstance(home, asyncio.AbstractEventLoop) else ThreadEvent()
        return seconds

    def told(self, seat: Waiter, standing: QueuePosition) -> None:
        """The store answered this seat's question, or it had none."""
        turn = seat.turn
        if turn is None:
            return
        if turn.taken is None:
            self.answered = self.seen
        if turn.address:  # else the store did nothing about our place in the line
            self.address = turn.address if standing.arrival else ""
            self.arrival = standing.arrival
        if self.handed in (turn.handed, turn.taken):
            self.handed = None

    def occupied(self) -> bool:
        """Whether a caller waits here. A head whose caller is gone, since exceptions kept it from leaving, is taken out."""
        while self.seats and self.seats[0].caller() is None:
            self.give_up(self.seats.pop(0))
        return bool(self.seats)

    def give_up(self, seat: Waiter) -> None:
        """This seat's question has no answer: what was handed to it is the next one's, who asks the store."""
        handed, turn = self.handed, seat.turn
        if handed is not None and turn is not None and handed in (turn.handed, turn.taken):
            handed.spurned(turn)

    def rouse_all(self, _: object = None) -> None:
        """Every seat looks again whether it is its turn. Safe in a finalizer."""
        for seat in list(self.seats):
            if seat.gate is not None:
                seat.gate.set()

    def rouse(self) -> None:
        """The head looks again whether it is its turn."""
        if self.occupied():
            gate = self.seats[0].gate
            if gate is not None:
                gate.set()

    def closed(self) -> bool:
        """Its loop was closed, and the tasks that wait on it were never cancelled."""
        return isinstance(self.home, asyncio.AbstractEventLoop) and self.home.is_closed()

    def leave_behind(self, place: LockId, outside: Outside) -> None:
        if self.address or self.wakes != self.answered or self.handed is not None:  # something counts on this queue
            outside.left(place, self.address, self.handed)
            self.address, self.answered, self.handed = "", self.wakes, None

    def wake(self) -> None:
        self.wakes += 1
        self.rouse()
