"""Holds: the state of a lock that this process has acquired, from the acquire to the release.

This state isn't in the lock object, which threads and tasks share. Re-entries share one hold, and are counted here
instead of in the store, so that the store's steps stay idempotent.
"""

from __future__ import annotations

import itertools
import os
import weakref
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, ClassVar

from . import clock, events, forks
from .tuning import DRIFT, DRIFT_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .keys import LockId
    from .queue_entry import Entry

mint_id = itertools.count(1).__next__
"""Returns the id of a new grant."""


def no_grant() -> None:
    """The ``grant`` of a hold without one."""
    return


def validity(lease: float) -> float:
    """Return the seconds after a request for which a lease of ``lease`` milliseconds counts as held."""
    return lease / 1000 * (1 - DRIFT_SHARE) - DRIFT


class State(Enum):
    """The states of a hold, in their order."""

    HELD = "held"
    RELEASING = "releasing"
    GONE = "gone"


class Hold:
    """One possession of a lock: token, fence, lease and state."""

    mutex: ClassVar = forks.ForkSafeLock()
    """Guards what several threads change. All holds share it, because no section of it blocks. It is reentrant, because
    a signal handler may run in the thread that has it."""

    forcible: ClassVar = True
    """Whether a forced release may end it, so that its process needs an inbox."""

    fenced: ClassVar = True
    """Whether its grants have a fence."""

    __slots__ = (
        "__weakref__",
        "address",
        "alias",
        "confirmed_at",
        "contended",
        "deadline",
        "detached_token",
        "detaching",
        "entry",
        "fence",
        "grant",
        "hand_overs",
        "key",
        "lease",
        "lock_id",
        "loop",
        "loss_reason",
        "name",
        "on_lost",
        "open_grants",
        "outcome_unknown",
        "owner",
        "pid",
        "release_failed",
        "release_sent_in_time",
        "renew_until",
        "renewers",
        "reserved_fences",
        "since",
        "state",
        "token",
        "watched",
    )

    def __init__(
        self,
        lock_id: LockId,
        key: str,
        name: str,
        alias: str,
        lease: int,
        renew_for: float,
        on_lost: object,
        token: str,
        grant: int,
        fence: int | None,
        sent: float,
        owner: object,
        loop: object,
        outcome_unknown: bool,
    ) -> None:
        self.lock_id = lock_id
        self.key = key
        self.name = name
        self.alias = alias
        self.token = token
        self.fence = fence
        self.lease = lease
        self.since = self.confirmed_at = sent
        self.deadline = sent + (lease / 1000 * (1 - DRIFT_SHARE) - DRIFT)  # validity(), inlined for speed
        self.renew_until = sent + renew_for if renew_for else 0.0
        self.owner = weakref.ref(owner)
        self.loop = loop
        self.on_lost = on_lost
        self.outcome_unknown = outcome_unknown
        self.open_grants = {grant}
        """The ids of the grants that aren't released."""
        self.renewers: set[int] | None = None
        """The ids of inner grants that need the renewal of a fixed lease; None if there were none."""
        self.release_failed = False
        """An earlier release failed, and may be repeated."""
        self.release_sent_in_time = False
        """A release was sent before the deadline, by the caller or the maintenance thread, so the lock may have been
        freed since."""
        self.address = ""
        """The address in the store's wait queue that a late copy of its acquire may register."""
        self.entry: Entry | None = None
        """The entry of the local queue that its release registers again in the store."""
        self.hand_overs = 0
        """How many times in a row the lock was handed over within this process while another process may have
        waited."""
        self.detached_token = ""
        """The token that its lock has once it is detached, or since an attempt without a reply; "" before the first
        attempt."""
        self.detaching: object = None
        """The attempt to detach it that goes on."""
        self.watched = False
        """The maintenance thread renews this hold, or reports its loss."""
        self.contended = False
        """Others waited for the lock when it was acquired, so its release is likely to grant it to another process."""
        self.reserved_fences = 0
        """The number of fences after its own that are reserved for local waiters that adopt the lock without a
        request."""
        self.loss_reason: str | None = None
        self.state = State.HELD
        self.grant: Callable[[], object] = no_grant
        """Returns the grant of the outermost entry, if it still exists."""
        self.pid = forks.known_pid

    @property
    def inherited_by_fork(self) -> bool:
        """Whether the hold belongs to the parent of this forked process."""
        return self.pid != os.getpid()

    @property
    def expired_or_lost(self) -> bool:
        """Whether the lease has ended by this process's clock, or the lock was lost."""
        return self.loss_reason is not None or clock.now() >= self.deadline

    @property
    def held(self) -> bool:
        """Whether this process has acquired and not released the lock. The lock may be lost."""
        return self.state is State.HELD and self.fence is not None and not self.inherited_by_fork

    @property
    def live(self) -> bool:
        """Whether the lock is held now, so that it may be re-entered and renewed."""
        return self.held and not self.expired_or_lost

    @property
    def unconfirmed(self) -> bool:
        """Whether its lease in the store is shorter than its own: the store granted it, and it isn't extended yet."""
        return self.deadline < self.since + validity(self.lease)

    def lease_left(self) -> int:
        """Return the milliseconds until its own lease ends, as opposed to that in the store."""
        return max(1, round(self.lease - 1000 * self.age()))

    def can_be_adopted(self, lease: int, window: float) -> bool:
        """Return whether a waiter may adopt the lock of this released hold without a request.

        Args:
            lease: the lease that the waiter requests, in milliseconds.
            window: the seconds after the last confirmed request in which a lock may be adopted.
        """
        return (
            self.reserved_fences > 0
            and lease == self.lease
            and self.state is State.GONE
            and clock.now() < min(self.confirmed_at + window, self.deadline)
        )

    def inherit(self, hold: Hold, window: float) -> None:
        """Inherit the lease and the reserved fences of another hold. The lease is ``window`` seconds longer in the
        store."""
        self.confirmed_at = hold.confirmed_at
        self.deadline = min(self.deadline, hold.confirmed_at + validity(self.lease + 1000 * window))
        self.reserved_fences, self.hand_overs = hold.reserved_fences - 1, hold.hand_overs + 1

    def age(self) -> float:
        """Return the seconds since it was acquired."""
        return clock.now() - self.since

    def extend_deadline(self, sent: float, lease: int) -> bool:
        """Move the deadline, never back, after a confirmed renewal.

        Args:
            sent: when the request was sent.
            lease: milliseconds.

        Returns:
            False if the reply came too late: the loss was reported before.
        """
        with self.mutex.rlock:
            self.reserved_fences = 0  # the next waiter requests a lease that ends earlier
            self.deadline = max(self.deadline, sent + validity(lease))
            return self.loss_reason is None

    def add_grant(self, grant: int, like: int = 0, role: str = "") -> bool:
        """Add a grant, which needs renewal if the grant with the id ``like`` does. ``role`` is for locks with two sides.
        Return False if the hold has ended."""
        with self.mutex.rlock:
            if self.state is not State.HELD:
                return False
            self.open_grants.add(grant)
            if self.renewers and like in self.renewers:
                self.renewers.add(grant)
            return True

    def renew_for(self, grant: int, until: float) -> None:
        """Renew the lease until a time for an inner grant, for as long as that grant is open."""
        with self.mutex.rlock:
            if self.renew_until and self.renewers is None:
                return  # it is renewed anyway
            self.renewers = (self.renewers or set()) | {grant}
            self.renew_until = self.renew_until or until

    def remove_grant(self, grant: int) -> None:
        """Remove a grant. A lease that was renewed for it alone is fixed again, and not shortened."""
        with self.mutex.rlock:
            self.open_grants.discard(grant)
            if self.renewers:
                self.renewers.discard(grant)
                if not self.renewers:
                    self.renewers, self.renew_until = None, 0.0

    def release_grant(self, grant: int) -> bool:
        """Release a grant. Return True if it was the last one, so that the caller must free the lock now.

        After a failed release it returns True again. A signal handler may raise between any two steps, so each of them
        is repeatable.
        """
        with self.mutex.rlock:
            self.open_grants -= {grant}  # in place, without a call
            if self.renewers:
                self.remove_grant(grant)
            if self.open_grants or self.state is State.GONE:
                return False
            if self.fence is None:
                self.state = State.GONE
                return False
            if self.state is State.RELEASING and not self.release_failed:
                return False  # another thread is releasing it
            self.state = State.RELEASING
            return True

    def end(self) -> bool:
        """Release all grants, to free the lock at the exit of the process. Return False if the hold has ended."""
        with self.mutex.rlock:
            if self.state is not State.HELD:
                return False
            self.open_grants.clear()
            self.state = State.RELEASING
            return True

    def begin_detach(self, grant: int, attempt: object) -> bool:
        """Stop the use of a hold that has only this grant. Return False if it has ended."""
        with self.mutex.rlock:
            if self.state is not State.HELD or self.open_grants != {grant}:
                return False
            self.detaching, self.state = attempt, State.RELEASING
            self.open_grants.clear()
            return True

    def resume(self, grant: int) -> bool:
        """Continue the hold after a ``detach`` without a result. Return False if it has ended."""
        with self.mutex.rlock:
            if self.state is State.GONE:
                return False
            self.open_grants.add(grant)
            self.outcome_unknown = True  # the lock may have the other token
            self.state = State.HELD
            return True

    def leave(self, grant: int) -> None:
        """Remove a grant without freeing the lock, which then stays until its lease ends, without an owner in this
        process."""
        if self.held and self.expired_or_lost:
            self.mark_lost("expired")
        with self.mutex.rlock:
            self.remove_grant(grant)
            if not self.open_grants:
                self.state = State.GONE

    def mark_lost(self, why: str, states: tuple[State, ...] = (State.HELD,), at: float = inf) -> bool:
        """Mark the lock as lost and report it.

        Args:
            why: "expired", "taken" or "max_hold".
            states: a hold in another state, such as one that is being released, isn't marked.
            at: the time at which the lease was found to have ended. A hold with a later deadline was extended since,
                and isn't marked.

        Returns:
            Whether the holder must be notified.
        """
        with self.mutex.rlock:
            if self.loss_reason is not None or self.state not in states or at < self.deadline:
                return False
            self.loss_reason = why
        return self._report_loss(why)

    def _report_loss(self, why: str) -> bool:
        """Report the loss. Return whether the holder must be notified."""
        events.emit(events.Lost(self.key, self.name, self.alias, self.fence, self.age(), why))
        return True


class UnfencedHold(Hold):
    """A hold without a fence for its caller: that of the store only names it there, and doesn't grow over all its servers."""

    fenced = False

    __slots__ = ()
