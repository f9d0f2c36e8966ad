"""One local wait queue: the threads of this process that wait for one lock, the tasks of one event loop, or a single
waiter that has a queue of its own."""

from __future__ import annotations

import asyncio
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from ..core import clock, tokens
from ..core.queue_entry import Entry
from ..core.queue_values import LAST, Attempt, DirectGrant, QueueOutage
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

    def wait_for_message(self, event: ThreadEvent, seconds: float, channel: str, /) -> object:
        """Sleep until an event is set, at most for this many seconds, then reset it. The calling thread may handle
        the messages of a channel until then."""

    def unregister(self, lock_id: LockId, keys: tuple[str, ...], address: str, /) -> object:
        """Remove an address from the store's wait queue, and free the lock if it was granted to the token of the
        address. The next waiter then gets the lock. May be called twice."""

    def return_grant(self, lock_id: LockId, keys: tuple[str, ...], token: str, fence: int, /) -> object:
        """Free a lock that was granted to a token, unless a request has claimed it. The next waiter then gets it. May
        be called twice."""

    def free_handed_over(self, handed: HandedOverLock, /) -> object:
        """Free a lock that was handed over to a queue without a waiter. May be called twice."""

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
        line: identifies the queue among the local queues of the lock, as ``Waiter.line``.
        loop: the event loop of the waiting tasks, or None for threads.
        keys: the keys of the command that removes the queue from the store's wait queue, as in ``GrantTerms``; empty if
            the store grants nothing to its waiters.
    """

    wakeups = 0
    """The number of wake-ups so far."""
    wakeups_seen = 0
    """The number of wake-ups when the last attempt began."""
    wakeups_answered = 0
    """The number of wake-ups when the last answered attempt began."""
    entry: Entry | None = None
    """The entry that the store may have of this queue; None if the store has none, or has removed it with a grant or a
    wake-up."""
    enqueued_at = 0
    """When the store registered this queue, on the store's clock; 0 if it isn't registered."""
    place = 0
    """When the first request of a waiter with a queue of its own arrived, on the store's clock: its place in the store's
    wait queue, also if it is registered later, or again."""
    asking: Waiter | None = None
    """The head whose request isn't answered yet."""
    granted: DirectGrant | None = None
    """The lock that the store granted to this queue, until the head has adopted it or sends a request."""
    handed: HandedOverLock | None = None
    """The lock that was handed over to this queue, until a reply or an adoption is recorded."""
    next_try = -inf
    """The time of the head's next attempt, unless a wake-up or a grant comes earlier."""
    conclusion: Any = None
    """What a head has learned that holds for its followers, too, so that they needn't ask."""

    def __init__(self, line: object, loop: object, keys: tuple[str, ...]) -> None:
        self.line = line
        self.loop = loop
        self.keys = keys
        self.waiters: list[Waiter] = []
        self.number = f"{mint_number():x}"
        """The number that identifies this queue of the process in the store. Numbers are never reused, because an entry
        of an earlier queue may be removed late, and that must not remove an entry of this queue."""

    def attempt(self, waiter: Waiter, until: float, engine: QueueEngine) -> Attempt | float | None:
        """Decide whether a waiter may try to acquire now.

        Returns:
            An ``Attempt`` if the waiter must send a request or adopt a lock; None if ``until`` is over; otherwise the
            seconds that it may sleep at most, on its ``event``.
        """
        if self.waiters[0] is not waiter and self.head() is not waiter:
            now = clock.now()
            return self._sleep(waiter, until - now, engine) if now < until else None
        if self.wakeups == self.wakeups_seen:
            if self.handed is None and self.granted is None:
                now = clock.now()
                if now < self.next_try and now < until:
                    return self._sleep(waiter, min(self.next_try, until) - now, engine)
            else:
                adoptable = self._adoptable(waiter, engine)
                if adoptable is not None:
                    waiter.attempt = Attempt(adopted=adoptable)
                    adoptable.adopter = waiter  # last: an interrupted caller that adopts a lock frees it
                    return waiter.attempt
        return self._new_request(waiter, until, engine)

    def _adoptable(self, waiter: Waiter, engine: QueueEngine) -> HandedOverLock | DirectGrant | None:
        """Return the lock that the head may adopt without a request."""
        handed, granted = self.handed, self.granted
        if handed is None:
            return granted if granted is not None and granted.can_be_adopted(waiter) else None
        if granted is not None or self.entry is not None:
            return None  # only a request removes the entry, to which the store may grant the lock later
        return handed if handed.hold.can_be_adopted(waiter.lease, engine.tuning.local_reuse_window) else None

    def _new_request(self, waiter: Waiter, until: float, engine: QueueEngine) -> Attempt:
        """Return an attempt in which the head sends a request. The request has the token of the queue's entry: if the
        store has granted the lock to it, the request claims the lock."""
        self.wakeups_seen = self.wakeups
        entry = self._entry_to_register(waiter, engine)
        token = ""
        if entry is not None:
            token = entry.token
        elif waiter.terms is not None:
            token = tokens.mint_token()
        self.asking = waiter
        others_behind = self.waiters[-1] is not waiter
        last = bool(token) and not others_behind and clock.now() >= until
        enqueued_at = LAST if last else self.enqueued_at or self.place
        waiter.attempt = Attempt(entry, enqueued_at, others_behind, self.handed, None, token)
        return waiter.attempt

    def _entry_to_register(self, waiter: Waiter, engine: QueueEngine) -> Entry | None:
        """Return the queue's entry, or a new one if there is none or it can't be used any more; None without a
        subscription."""
        if self.granted is not None:  # the reply shows whether the lock is still granted
            self.entry, self.granted = self.granted.entry, None
        channel = engine.subscribed_channel(waiter.channel)
        if self.entry is not None and (self.entry.invalid or (self.entry.token and not channel)):
            engine.unregister(waiter.lock_id, self.keys, self.entry.address)
            self.entry = None
        if not channel:
            return None
        if self.entry is None:
            self.entry = self.new_entry(channel, waiter)
        return self.entry

    def new_entry(self, channel: str, waiter: Waiter) -> Entry:
        """Return a new entry for the store's wait queue. It describes ``waiter`` as the holder, although another waiter
        of the queue may adopt the lock."""
        address, terms = f"{channel} {self.number}", waiter.terms
        if terms is None:
            return Entry(address)
        token = tokens.mint_token()
        return Entry(f"{address} {token} {terms.lease}{terms.more} {terms.holder}", token, terms.lease)

    def _sleep(self, waiter: Waiter, seconds: float, engine: QueueEngine) -> float:
        if waiter.event is None:
            loop = self.loop
            waiter.event = (
                TaskEvent(loop, engine.call_at) if isinstance(loop, asyncio.AbstractEventLoop) else ThreadEvent()
            )
        return seconds

    def record_reply(self, waiter: Waiter, position: QueuePosition) -> None:
        """Record the store's reply to the waiter's last attempt, if it made one."""
        if self.line is not self.loop:  # the queue of a single waiter
            self.place = self.place or position.enqueued_at
        attempt = waiter.attempt
        if attempt is None:
            return
        if attempt.adopted is None:
            self.wakeups_answered = self.wakeups_seen
        if attempt.entry is not None:  # else the store didn't change this queue's position
            self._record_position(attempt.entry, position, last=attempt.enqueued_at == LAST)
        if self.asking is waiter:  # not before: an interrupted caller gives its token up, see record_no_reply()
            self.asking = None
        if self.handed in (attempt.handed, attempt.adopted):
            self.handed = None
        if self.granted is not None and self.granted is attempt.adopted:
            self.granted.entry.used = True
            self.granted, self.enqueued_at = None, 0

    def _record_position(self, entry: Entry, position: QueuePosition, *, last: bool) -> None:
        """Record whether a request left this queue registered. A grant may have overtaken the reply."""
        busy = position.enqueued_at > 0 or position.fence > 0  # at maxmemory the arrival is 0
        self.enqueued_at = position.enqueued_at
        if busy and not last:
            entry.sent, entry.fence = position.sent, position.fence
            if self.granted is not None and self.granted.fence < entry.fence:
                self.granted = None
            if self.granted is None:
                self.entry = entry
            return
        entry.used = not busy
        self.entry = self.granted = None
        if last:
            self.next_try = clock.now()  # a waiter that has come since registers the queue again

    def knows(self, entry: Entry) -> bool:
        """Return whether the queue uses an entry of the store's wait queue."""
        return entry is self.entry or (self.granted is not None and self.granted.entry is entry)

    @property
    def has_own_line(self) -> bool:
        """Whether this is the queue of a single waiter."""
        return self.line is not self.loop

    def head(self) -> Waiter | None:
        """Return the first waiter, or None if no caller waits here. Waiters before it are removed if their caller is gone:
        an exception interrupted their leaving."""
        while self.waiters and self.waiters[0].caller() is None:
            self.record_no_reply(self.waiters.pop(0))
        return self.waiters[0] if self.waiters else None

    def record_no_reply(self, waiter: Waiter) -> None:
        """Record that the waiter's last attempt got no reply. If a lock was handed over or granted to it, the next head
        gets that lock."""
        handed, granted, attempt = self.handed, self.granted, waiter.attempt
        if attempt is None:
            return
        if handed is not None and handed in (attempt.handed, attempt.adopted):
            handed.rejected(attempt)
        if granted is not None and granted is attempt.adopted:
            granted.adopter = None
        if self.asking is waiter:
            self.asking = None
            if attempt.entry is not None:
                attempt.entry.invalid = bool(attempt.entry.token)

    def notify_all(self, _: object = None) -> None:
        """Wake all waiters, which then check whether they are the head. Safe in a finalizer."""
        for waiter in list(self.waiters):
            if waiter.event is not None:
                waiter.event.set()

    def notify_head(self) -> None:
        """Wake the head."""
        head = self.head()
        if head is not None and head.event is not None:
            head.event.set()

    def loop_closed(self) -> bool:
        """Return whether the queue's event loop was closed without cancelling the tasks that wait here."""
        return isinstance(self.loop, asyncio.AbstractEventLoop) and self.loop.is_closed()

    def loop_stopped(self, delay: float) -> bool:
        """Return whether the queue's event loop doesn't run, and hasn't run when the head's next attempt was due, for
        ``delay`` seconds. It may have been dropped without being closed, or run again later."""
        loop = self.loop
        return (
            isinstance(loop, asyncio.AbstractEventLoop)
            and not loop.is_running()
            and clock.now() > self.next_try + delay
        )

    def withdraw_entry(self) -> Entry | None:
        """Return the entry that the store may have of this queue, which no waiter uses any more from now on. None if
        there is none, or a waiter may be acquiring the lock with its token."""
        granted = self.granted
        entry = self.entry if granted is None else granted.entry
        if entry is None or self.asking is not None or (granted is not None and granted.adopter is not None):
            return None
        entry.invalid = True
        return entry

    def report_leftovers(self, lock_id: LockId, engine: QueueEngine) -> None:
        """Have the engine clean up after the last waiter, if the store may still count on this queue."""
        entry, handed = self.entry if self.granted is None else self.granted.entry, self.handed
        if entry is not None or self.wakeups != self.wakeups_answered or handed is not None:
            if handed is not None:
                engine.free_handed_over(handed)
            engine.unregister(lock_id, self.keys, "" if entry is None else entry.address)
            self.entry, self.granted, self.wakeups_answered, self.handed = None, None, self.wakeups, None

    def wake(self) -> None:
        """Record a wake-up from the store, and wake the head."""
        self.wakeups += 1
        self.notify_head()

    def receive(self, token: str, fence: int, lock_id: LockId, engine: QueueEngine) -> bool:
        """Record that the store granted the lock to the entry of this queue, and wake the head. Return False if the
        grant isn't to this entry, or has ended."""
        entry = self.entry
        if entry is None or entry.token != token or fence < entry.fence:
            return False
        self.granted, self.entry = DirectGrant(entry, fence), None
        head = self.head()
        if head is None or (self.loop is not None and self.loop_closed()):
            self.report_leftovers(lock_id, engine)
        elif head.event is not None:
            head.event.set()
        return True
