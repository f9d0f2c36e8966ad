"""One local wait queue: the threads of this process that wait for one lock, or the tasks of one event loop."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol

from ..core import clock
from ..core.queue_values import Attempt, QueueOutage
from ..core.wait_events import TaskEvent, ThreadEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.keys import LockId
    from ..core.queue_values import HandedOverLock, QueuePosition, Waiter
    from ..core.tuning import Tuning


mint_number = count(1).__next__
"""Returns the number of a new queue."""


class QueueEngine(Protocol):
    """The methods of the engine that a wait queue uses."""

    @property
    def tuning(self) -> Tuning:
        """The tunables of the engine."""

    def subscribed_channel(self, channel: str, /) -> str:
        """Return the name of the process's inbox on a channel, or "" without a subscription."""

    def on_queue_emptied(self, lock_id: LockId, address: str, handed: HandedOverLock | None, /) -> object:
        """Clean up after the last waiter of a queue: its position in the store's wait queue, and a lock that was handed
        over to it. May be called twice."""

    def call_at(self, at: float, callback: Callable[[], object], /) -> Callable[[], object]:
        """Call ``callback`` in another thread at a time of the engine's clock. Returns a function that cancels the
        call."""

    def submit(self, job: Callable[[], object], /) -> object:
        """Have the maintenance thread call ``job``, if that thread runs. Safe in a finalizer."""

    def may_block(self) -> object:
        """Check that this thread may block.

        Raises:
            SynchronousOnlyOperation: this thread runs an event loop, which must not be blocked.
        """


class WaitQueue(QueueOutage):
    """The waiters of one lock, in the order of their arrival. Only the head sends requests.

    Args:
        loop: the event loop of the waiting tasks, or None for threads.
        next_try: the time of the head's next attempt, unless a wake-up comes earlier.
    """

    wakeups = 0
    """The number of wake-ups so far."""
    wakeups_seen = 0
    """The number of wake-ups when the last attempt began."""
    wakeups_answered = 0
    """The number of wake-ups when the last answered attempt began."""
    address = ""
    """The address under which the store may have registered this queue; "" if it hasn't, or has woken it since."""
    enqueued_at = 0
    """When the store registered this queue, on the store's clock; 0 if it isn't registered."""
    handed: HandedOverLock | None = None
    """The lock that was handed over to the head of this queue."""
    _number = ""

    def __init__(self, loop: object, next_try: float) -> None:
        self.loop = loop
        self.next_try = next_try
        self.waiters: list[Waiter] = []

    @property
    def number(self) -> str:
        """The number that identifies this queue of the process in the store. Numbers are never reused, because an entry
        of an earlier queue may be removed late, and that must not remove an entry of this queue."""
        if not self._number:
            self._number = f"{mint_number():x}"
        return self._number

    def attempt(self, waiter: Waiter, until: float, engine: QueueEngine) -> Attempt | float | None:
        """Decide whether a waiter may try to acquire now.

        Returns:
            An ``Attempt`` if the waiter must send a request or adopt a lock; None if ``until`` is over; otherwise the
            seconds that it may sleep at most, on its ``event``.
        """
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
        if waiter.event is None:
            loop = self.loop
            waiter.event = (
                TaskEvent(loop, engine.call_at) if isinstance(loop, asyncio.AbstractEventLoop) else ThreadEvent()
            )
        return seconds

    def record_reply(self, waiter: Waiter, position: QueuePosition) -> None:
        """Record the store's reply to the waiter's last attempt, if it made one."""
        attempt = waiter.attempt
        if attempt is None:
            return
        if attempt.adopted is None:
            self.wakeups_answered = self.wakeups_seen
        if attempt.address:  # else the store didn't change this queue's position
            self.address = attempt.address if position.enqueued_at else ""
            self.enqueued_at = position.enqueued_at
        if self.handed in (attempt.handed, attempt.adopted):
            self.handed = None

    def has_waiter(self) -> bool:
        """Return whether a caller waits here. First removes heads whose caller is gone: an exception interrupted their
        leaving."""
        while self.waiters and self.waiters[0].caller() is None:
            self.reject_hand_over(self.waiters.pop(0))
        return bool(self.waiters)

    def reject_hand_over(self, waiter: Waiter) -> None:
        """Record that the waiter's last attempt got no reply. If a lock was handed over to it, the next head gets that
        lock."""
        handed, attempt = self.handed, waiter.attempt
        if handed is not None and attempt is not None and handed in (attempt.handed, attempt.adopted):
            handed.rejected(attempt)

    def notify_all(self, _: object = None) -> None:
        """Wake all waiters, which then check whether they are the head. Safe in a finalizer."""
        for waiter in list(self.waiters):
            if waiter.event is not None:
                waiter.event.set()

    def notify_head(self) -> None:
        """Wake the head."""
        if self.has_waiter():
            event = self.waiters[0].event
            if event is not None:
                event.set()

    def loop_closed(self) -> bool:
        """Return whether the queue's event loop was closed without cancelling the tasks that wait here."""
        return isinstance(self.loop, asyncio.AbstractEventLoop) and self.loop.is_closed()

    def report_leftovers(self, lock_id: LockId, engine: QueueEngine) -> None:
        """Have the engine clean up after the last waiter, if the store may still count on this queue."""
        if self.address or self.wakeups != self.wakeups_answered or self.handed is not None:
            engine.on_queue_emptied(lock_id, self.address, self.handed)
            self.address, self.wakeups_answered, self.handed = "", self.wakeups, None

    def wake(self) -> None:
        """Record a wake-up from the store, and wake the head."""
        self.wakeups += 1
        self.notify_head()
