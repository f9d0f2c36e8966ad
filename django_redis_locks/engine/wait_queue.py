"""One queue of waiters of this process: the threads that wait for a key, or the tasks of one event loop that do."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol

from ..core import clock
from ..core.queue_values import Attempt, QueueOutage
from ..core.wakeup import TaskEvent, ThreadEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.keys import LockId
    from ..core.queue_values import HandedOverLock, QueuePosition, Waiter
    from ..core.tuning import Tuning


mint_number = count(1).__next__  # numbers of queues


class QueueEngine(Protocol):
    """What queues know of the process and the store around them."""

    @property
    def tuning(self) -> Tuning: ...

    def subscribed_channel(self, channel: str, /) -> str:
        """The name of the process's inbox on a channel; "" while nobody listens there."""

    def left(self, lock_id: LockId, address: str, handed: HandedOverLock | None, /) -> object:
        """Told what the last one in a queue leaves behind: its place in the store's line, and what was handed to it. May
        be told twice."""

    def call_at(self, at: float, ring: Callable[[], object], /) -> Callable[[], object]:
        """Call back, from another thread, at a time of our clock; returns what takes that back."""

    def put(self, job: Callable[[], object], /) -> object:
        """Have the maintenance thread do a job, if it runs. Safe in a finalizer."""

    def may_block(self) -> object:
        """Raise if this thread must not sleep."""


class WaitQueue(QueueOutage):
    wakeups = 0
    wakeups_seen = 0
    """The wake-ups that the last question knew of."""
    wakeups_answered = 0
    """Those that the last question knew of that was answered."""
    address = ""
    """Where the store may have registered this queue; "" if it has not, or has told it since."""
    enqueued_at = 0
    handed: HandedOverLock | None = None
    _number = ""

    def __init__(self, home: object, next_try: float) -> None:
        self.home = home
        self.next_try = next_try
        self.waiters: list[Waiter] = []

    @property
    def number(self) -> str:
        """Tells the queues of a process apart, in the store. No other queue ever gets it: what an earlier one left there
        is taken away later, and must not be taken for this one's."""
        if not self._number:
            self._number = f"{mint_number():x}"
        return self._number

    def attempt(self, waiter: Waiter, until: float, engine: QueueEngine) -> Attempt | float | None:
        """A turn: ask now, or take over. None: too late. Else so many seconds of sleep at most, and the seat has a gate."""
        if self.waiters[0] is not waiter:
            now = clock.now()
            return self._sleep(waiter, until - now, engine) if now < until else None
        handed = self.handed
        if self.wakeups == self.wakeups_seen:
            if handed is not None and handed.hold.can_be_adopted(waiter.lease, engine.tuning.local_reuse_window):
                handed.adopter = waiter
                waiter.attempt = Attempt(adopted=handed)
                return waiter.attempt
            if handed is None and (now := clock.now()) < self.next_try and now < until:
                return self._sleep(waiter, min(self.next_try, until) - now, engine)
        self.wakeups_seen = self.wakeups
        channel = engine.subscribed_channel(waiter.channel)
        if channel:
            self.address = f"{channel} {self.number}"
        waiter.attempt = Attempt(
            self.address if channel else "", self.enqueued_at, self.waiters[-1] is not waiter, handed
        )
        return waiter.attempt

    def _sleep(self, waiter: Waiter, seconds: float, engine: QueueEngine) -> float:
        if waiter.gate is None:
            home = self.home
            waiter.gate = (
                TaskEvent(home, engine.call_at) if isinstance(home, asyncio.AbstractEventLoop) else ThreadEvent()
            )
        return seconds

    def record_reply(self, waiter: Waiter, position: QueuePosition) -> None:
        """The store answered this seat's question, or it had none."""
        attempt = waiter.attempt
        if attempt is None:
            return
        if attempt.adopted is None:
            self.wakeups_answered = self.wakeups_seen
        if attempt.address:  # else the store did nothing about our place in the line
            self.address = attempt.address if position.enqueued_at else ""
            self.enqueued_at = position.enqueued_at
        if self.handed in (attempt.handed, attempt.adopted):
            self.handed = None

    def has_waiter(self) -> bool:
        """Whether a caller waits here. A head whose caller is gone, since exceptions kept it from leaving, is taken out."""
        while self.waiters and self.waiters[0].caller() is None:
            self.reject_hand_over(self.waiters.pop(0))
        return bool(self.waiters)

    def reject_hand_over(self, waiter: Waiter) -> None:
        """This seat's question has no answer: what was handed to it is the next one's, who asks the store."""
        handed, attempt = self.handed, waiter.attempt
        if handed is not None and attempt is not None and handed in (attempt.handed, attempt.adopted):
            handed.rejected(attempt)

    def notify_all(self, _: object = None) -> None:
        """Every seat looks again whether it is its turn. Safe in a finalizer."""
        for waiter in list(self.waiters):
            if waiter.gate is not None:
                waiter.gate.set()

    def notify_head(self) -> None:
        """The head looks again whether it is its turn."""
        if self.has_waiter():
            gate = self.waiters[0].gate
            if gate is not None:
                gate.set()

    def loop_closed(self) -> bool:
        """Its loop was closed, and the tasks that wait on it were never cancelled."""
        return isinstance(self.home, asyncio.AbstractEventLoop) and self.home.is_closed()

    def report_leftovers(self, lock_id: LockId, engine: QueueEngine) -> None:
        # Something counts on this queue
        if self.address or self.wakeups != self.wakeups_answered or self.handed is not None:
            engine.left(lock_id, self.address, self.handed)
            self.address, self.wakeups_answered, self.handed = "", self.wakeups, None

    def wake(self) -> None:
        self.wakeups += 1
        self.notify_head()
