"""A hold is one possession of a lock in this process.

Ownership lives here and never in the lock object, which threads and tasks share. Re-entries share the hold: the count
is kept here, in the process, so that the store's steps stay idempotent.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, ClassVar

from . import clock, events, forks
from .tuning import DRIFT, DRIFT_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .keys import LockId

mint_id = itertools.count(1).__next__
"""Ids of grants."""


def no_grant() -> None:
    """Of a hold whose grant isn't made yet."""
    return


def validity(lease: float) -> float:
    """For how many seconds after the request a lease of so many milliseconds counts here."""
    return lease / 1000 * (1 - DRIFT_SHARE) - DRIFT


class State(Enum):
    HELD = "held"
    RELEASING = "releasing"
    GONE = "gone"


class Hold:
    """One possession of a lock: token, fence, lease and state. ``mutex`` guards what several threads change, and a signal
    handler of the thread that has it."""

    forcible: ClassVar = True
    """A forced release may end it, of which its process wants to hear."""

    __slots__ = (
        "__weakref__",
        "address",
        "alias",
        "confirmed_at",
        "deadline",
        "fence",
        "grant",
        "hand_overs",
        "home",
        "key",
        "lease",
        "lock_id",
        "lost_why",
        "mutex",
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
        token: str,
        *,
        grant: int,
        fence: int | None,
        lease: int,
        sent: float,
        renew_for: float,
        owner: object,
        home: object,
        on_lost: object,
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
        self.deadline = sent + (lease / 1000 * (1 - DRIFT_SHARE) - DRIFT)  # as validity() has it
        self.renew_until = sent + renew_for if renew_for else 0.0
        self.owner = weakref.ref(owner)
        self.home = home
        self.on_lost = on_lost
        self.outcome_unknown = outcome_unknown
        self.open_grants = {grant}
        """The ids of the grants that aren't given back."""
        self.renewers: set[int] | None = None
        """Of a fixed lease that inner entries have renewed: their ids, until they end."""
        self.release_failed = False
        """An earlier release failed; it may be tried again."""
        self.release_sent_in_time = False
        """That release was sent before the deadline, so that it, or the janitor, may have freed the lock since."""
        self.address = ""
        """Where the store reaches the queue that its release lines up again; "" if none."""
        self.hand_overs = 0
        """How many times in a row it was handed over within this process while another one may have waited."""
        self.watched = False
        """The maintenance thread knows of it."""
        self.reserved_fences = 0
        """So many fences after its own are kept for those who take it over without asking the store."""
        self.lost_why: str | None = None
        self.state = State.HELD
        self.grant: Callable[[], object] = no_grant
        """The grant of the outermost entry, if somebody still has it."""
        self.pid = forks.known
        self.mutex = threading.RLock()

    @property
    def foreign(self) -> bool:
        """A fork's child looks at its parent's hold."""
        return self.pid != os.getpid()

    @property
    def over(self) -> bool:
        """The lease ended, as far as this process can know, or the lock was found in other hands."""
        return self.lost_why is not None or clock.now() >= self.deadline

    @property
    def held(self) -> bool:
        """Not released, by this process, of a lock that was there; it may be lost."""
        return self.state is State.HELD and self.fence is not None and not self.foreign

    @property
    def live(self) -> bool:
        """Held now: it may be re-entered and renewed."""
        return self.held and not self.over

    def can_be_adopted(self, lease: int, window: float) -> bool:
        """Whether a waiter that asks for a lease of this many milliseconds may adopt the lock as it is, now that this hold is
        over: within ``window`` seconds after the store was asked."""
        return (
            self.reserved_fences > 0
            and lease == self.lease
            and self.state is State.GONE
            and clock.now() < min(self.confirmed_at + window, self.deadline)
        )

    def inherit(self, hold: Hold, window: float) -> None:
        """Go on with what the store gave to another hold; its lease is ``window`` seconds longer there."""
        self.confirmed_at = hold.confirmed_at
        self.deadline = min(self.deadline, hold.confirmed_at + validity(self.lease + 1000 * window))
        self.reserved_fences, self.hand_overs = hold.reserved_fences - 1, hold.hand_overs + 1

    def age(self) -> float:
        """Seconds since it was acquired."""
        return clock.now() - self.since

    def prolong(self, sent: float, lease: int) -> bool:
        """The store gave a lease of so many milliseconds to a request sent then. A deadline never moves back. False: it
        comes too late, since the loss was told before."""
        with self.mutex:
            self.reserved_fences = 0  # the next one asks for a lease that ends earlier
            self.deadline = max(self.deadline, sent + validity(lease))
            return self.lost_why is None

    def enter(self, grant: int, like: int = 0) -> bool:
        """One more grant on it, which needs renewal if the one that it is ``like`` does; False if the hold isn't held any
        more."""
        with self.mutex:
            if self.state is not State.HELD:
                return False
            self.open_grants.add(grant)
            if self.renewers and like in self.renewers:
                self.renewers.add(grant)
            return True

    def renew_for(self, grant: int, until: float) -> None:
        """An inner entry needs a lease that is renewed. What it needs ends with it."""
        with self.mutex:
            if self.renew_until and self.renewers is None:
                return  # it is renewed as it is
            self.renewers = (self.renewers or set()) | {grant}
            self.renew_until = self.renew_until or until

    def remove_grant(self, grant: int) -> None:
        """A grant isn't inside any more; a lease that was renewed for it alone is fixed again, and not shortened."""
        with self.mutex:
            self.open_grants.discard(grant)
            if self.renewers:
                self.renewers.discard(grant)
                if not self.renewers:
                    self.renewers, self.renew_until = None, 0.0

    def leave(self, grant: int) -> bool:
        """A grant is given back; True if that was the last one, so that the lock is to be freed now.

        Once more after a release that failed, it is to be freed once more. Every step may be done again: a signal handler
        may have raised between any two of them."""
        with self.mutex:
            self.open_grants.discard(grant)
            if self.renewers:
                self.remove_grant(grant)
            if self.open_grants or self.state is State.GONE:
                return False
            if self.fence is None:
                self.state = State.GONE
                return False
            if self.state is State.RELEASING and not self.release_failed:
                return False  # another thread is at it
            self.state = State.RELEASING
            return True

    def detach(self, grant: int) -> None:
        """A grant ends although nothing is freed: the lock stays until its lease ends, and is nobody's here."""
        if self.held and self.over:
            self.mark_lost("expired")
        with self.mutex:
            self.remove_grant(grant)
            if not self.open_grants:
                self.state = State.GONE

    def mark_lost(self, why: str, states: tuple[State, ...] = (State.HELD,), at: float = inf) -> bool:
        """Note that the lock is lost, and tell. A renewal's news of a hold that is being released is out of date, and so is
        that the lease was over ``at`` a time, if it has been prolonged since."""
        with self.mutex:
            if self.lost_why is not None or self.state not in states or at < self.deadline:
                return False
            self.lost_why = why
        return self._report_loss(why)

    def _report_loss(self, why: str) -> bool:
        """Whether it is news for its holder too."""
        events.emit(events.Lost(self.key, self.name, self.alias, self.fence, self.age(), why))
        return True
