"""Values of a local wait queue: a waiter, its attempts, its entry in the store's wait queue, and a lock that is handed
over or granted to it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from . import clock, events
from .hold import validity

if TYPE_CHECKING:
    from collections.abc import Callable

    from .commands import Command
    from .hold import Hold
    from .keys import LockId
    from .queue_entry import Entry, GrantTerms


class QueueOutage:
    """The error of the last request for one lock. It is shared by all waiters of a queue, so that waiters behind the
    head fail with the same error instead of reporting a busy lock."""

    failure: str | None = None


def _always() -> bool:
    """The ``caller`` of a waiter without a request object."""
    return True


class Waiter:
    """A waiter in the local wait queue of one lock. ``LeaveQueue`` removes it at any moment, even before it was added.

    Args:
        lock_id: the lock.
        loop: the event loop of the waiting task, or None for a thread. Each loop has a queue of its own, so that a
            blocked one holds up no other waiter.
        channel: the prefix of the inbox channels that receive messages about the lock.
        lease: the requested lease in milliseconds; 0 if the waiter must not adopt a lock without a request.
        request: the request object, which only the caller references. The waiter is removed when it is collected.
        own_line: identifies the local queue of this waiter alone; "" if it shares the queue of its loop or of the threads.

    Attributes:
        line: identifies its queue among the local queues of the lock: the loop, None for the threads, or ``own_line``.
        terms: the terms on which the store grants the lock to it; None if the store wakes it instead.
    """

    __slots__ = ("attempt", "caller", "channel", "event", "lease", "line", "lock_id", "loop", "queue", "terms")

    def __init__(
        self,
        lock_id: LockId,
        loop: object,
        channel: str,
        lease: int = 0,
        request: object = None,
        own_line: str = "",
    ) -> None:
        self.caller: Callable[[], object] = _always if request is None else weakref.ref(request)
        self.lock_id = lock_id
        self.loop = loop
        self.line: object = own_line or loop
        self.channel = channel
        self.lease = lease
        self.terms: GrantTerms | None = None
        self.queue: Any = None
        self.event: Any = None
        self.attempt: Attempt | None = None

    @property
    def gave_back(self) -> bool:
        """Whether the lock that this waiter was to adopt belongs to the queue again."""
        adopted = None if self.attempt is None else self.attempt.adopted
        return adopted is not None and adopted.adopter is not self


class HandedOverLock:
    """A lock that was released within this process without a request: the next waiter in the queue adopts it.

    Attributes:
        hold: the previous hold; its token is still in the store.
        make_release_command: makes the command that frees the lock if it still has a token.
        adopter: the waiter that adopts it. The lock belongs to the queue until the adoption is recorded.
        adoption_unanswered: a request to take it over wasn't answered, so a missing token doesn't prove a loss.
    """

    __slots__ = ("adopter", "adoption_unanswered", "hold", "make_release_command")

    def __init__(self, hold: Hold, make_release_command: Callable[[str], Command[int]]) -> None:
        self.hold = hold
        self.make_release_command = make_release_command
        self.adopter: Waiter | None = None
        self.adoption_unanswered = False

    @property
    def token(self) -> str:
        """The token that is still in the store."""
        return self.hold.token

    @property
    def fence(self) -> int:
        """The fence of the waiter that adopts the lock without a request: it is reserved."""
        assert self.hold.fence is not None  # noqa: S101 - it was held
        return self.hold.fence + 1

    def rejected(self, attempt: Attempt) -> None:
        """Record that the attempt wasn't completed, so that the next waiter sends a request."""
        self.hold.reserved_fences = 0
        if attempt.adopted is self:
            self.adopter = None
        else:
            self.adoption_unanswered = True

    def report_vanished(self) -> None:
        """Report that the lock was gone. Whether it was taken before its release or afterwards is unknown."""
        hold = self.hold
        if not self.adoption_unanswered and not hold.release_failed and clock.now() < hold.deadline:
            events.emit(events.Vanished(hold.key, hold.name, hold.alias, hold.fence))


@final
class DirectGrant:
    """A lock that the store granted to the entry of a local queue. The head of that queue adopts it.

    Attributes:
        entry: the entry, which has left the store's wait queue.
        fence: the fence of the grant.
        adopter: the waiter that adopts it. The lock belongs to the queue until the adoption is recorded.
    """

    __slots__ = ("adopter", "entry", "fence")

    def __init__(self, entry: Entry, fence: int) -> None:
        self.entry = entry
        self.fence = fence
        self.adopter: Waiter | None = None

    @property
    def token(self) -> str:
        """The token to which the store granted the lock."""
        return self.entry.token

    @property
    def deadline(self) -> float:
        """When the lease of the grant has ended, at the earliest. The message may be late, so the lease counts from the
        last request: it was answered, so the lock wasn't granted before it."""
        return self.entry.sent + validity(self.entry.lease)

    def can_be_adopted(self, waiter: Waiter) -> bool:
        """Return whether the waiter may adopt the lock without a request: two thirds of its lease must be left, and the
        waiter mustn't have requested a shorter one."""
        entry = self.entry
        if entry.invalid or waiter.lease < entry.lease:
            return False
        return self.deadline - clock.now() > 2 / 3 * entry.lease / 1000


LAST: Final = -1
"""The ``enqueued_at`` of an attempt that isn't registered again if the lock is busy."""


class Attempt(NamedTuple):
    """A waiter's attempt to acquire: by a request, or by adopting a lock without a request.

    Attributes:
        entry: the entry of this queue, which the store registers if the lock is busy; None without a subscription.
        enqueued_at: when the store registered the queue, or is to register it, on the store's clock; 0 for now. ``LAST``
            in the last attempt of the last waiter, which removes the entry.
        others_behind: other waiters are behind this one.
        handed: the lock to take over with this request.
        adopted: the lock to adopt without a request; all other attributes have their defaults then.
        token: the token to request the lock with: that of the entry, because the store may have granted the lock to it,
            or one that no other request has; "" for the token of the caller's request.
    """

    entry: Entry | None = None
    enqueued_at: int = 0
    others_behind: bool = False
    handed: HandedOverLock | None = None
    adopted: HandedOverLock | DirectGrant | None = None
    token: str = ""

    @property
    def address(self) -> str:
        """The address that the store registers; "" for none."""
        return "" if self.entry is None else self.entry.address


class QueuePosition(NamedTuple):
    """The position of a local queue in the store's wait queue of a lock, by the reply to a request.

    Attributes:
        enqueued_at: when the store registered this queue, on the store's clock; 0 if it isn't registered. If the request
            registered nothing, a kind of lock may return the time of its arrival, at which a later one registers.
        other_queues: other queues are registered.
        sent: when that request was sent, on the engine's clock, if the lock was busy.
        fence: the fence of the holder in that reply; 0 if the lock was granted.
    """

    enqueued_at: int = 0
    other_queues: bool = False
    sent: float = 0.0
    fence: int = 0
