"""Values of a local wait queue: a waiter, its attempts, its position, and a lock that is handed over."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from . import clock, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from .commands import Command
    from .hold import Hold
    from .keys import LockId


class QueueOutage:
    """How the last request for one key failed. Its sender notes it, so that no waiter behind it in the queue takes a store
    that is down for a busy lock."""

    failure: str | None = None


def _always() -> bool:
    """Of a seat whose caller isn't known."""
    return True


class Waiter:
    """A seat in the queue of one key in this process. ``home`` is an event loop, or None for threads: each has a queue
    of its own, so that a blocked loop holds up nobody else. ``channel`` is how the names of inboxes begin that may hear
    of this key, ``lease`` the milliseconds of the lease that is wished for, 0 if only the store can give it. Who made a
    seat can give it up at any moment, whether or not he got to join; the rest belongs to the queues. ``request`` is what only
    its caller keeps: once that is gone the seat is given up."""

    __slots__ = ("attempt", "caller", "channel", "gate", "home", "lease", "lock_id", "queue")

    def __init__(self, lock_id: LockId, home: object, channel: str, lease: int = 0, request: object = None) -> None:
        self.caller: Callable[[], object] = _always if request is None else weakref.ref(request)
        self.lock_id = lock_id
        self.home = home
        self.channel = channel
        self.lease = lease
        self.queue: Any = None
        self.gate: Any = None
        self.attempt: Attempt | None = None

    @property
    def gave_back(self) -> bool:
        """What it took over without asking the store is the queue's again."""
        adopted = None if self.attempt is None else self.attempt.adopted
        return adopted is not None and adopted.adopter is not self


class HandedOverLock:
    """A lock that a hold of this process gave back without telling the store: the next in the queue takes it over.

    Attributes:
        hold: whose it was; its token is still in the store.
        free: makes the command that frees the lock if it is still a token's.
        go_on: what the store would say to who takes it over as it is, with its token.
        taker: the seat that does so. Until its queue is told that this went well, it is the queue's.
        doubtful: an attempt to take it over went unanswered, so nothing can be said of a token that isn't there.
    """

    __slots__ = ("adopter", "doubtful", "free", "go_on", "hold")

    def __init__(self, hold: Hold, free: Callable[[str], Command[int]], go_on: Callable[[], Any]) -> None:
        self.hold = hold
        self.free = free
        self.go_on = go_on
        self.adopter: Waiter | None = None
        self.doubtful = False

    def rejected(self, attempt: Attempt) -> None:
        """Whose turn it was isn't heard of any more. The next one asks the store."""
        self.hold.reserved_fences = 0
        if attempt.adopted is self:
            self.adopter = None
        else:
            self.doubtful = True

    def gone(self) -> None:
        """It wasn't there any more: whether it was taken before its release or after it the store doesn't say."""
        hold = self.hold
        if not self.doubtful and not hold.release_failed and clock.now() < hold.deadline:
            events.emit(events.Vanished(hold.key, hold.name, hold.alias, hold.fence))


class Attempt(NamedTuple):
    """It is this seat's turn to ask the store, or to take over what it needn't ask for.

    Attributes:
        address: where the store reaches this queue, to be registered if the answer is "busy"; "" if nobody listens.
        arrival: when the queue lined up in the store, on its clock; 0 if it is to line up now.
        more: others wait behind this seat.
        handed: what to take over.
        taken: what is taken over as it is: there is nothing to ask.
    """

    address: str = ""
    enqueued_at: int = 0
    more: bool = False
    handed: HandedOverLock | None = None
    adopted: HandedOverLock | None = None


class QueuePosition(NamedTuple):
    """What the store says of the line of processes before a lock.

    Attributes:
        arrival: since when this queue stands in it, on the store's clock; 0 if it doesn't.
        others: other queues do.
    """

    enqueued_at: int = 0
    others: bool = False
