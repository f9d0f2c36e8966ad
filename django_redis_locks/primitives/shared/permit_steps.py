"""The steps of permits, of which a semaphore and a read-write lock are made: their commands, and the parsers of the replies.

A key has a number of permits, its *limit*. Each hold has one or more of them, its own token, fence and lease, so that a
crash gives back what its process held, and nothing else. Permits are granted in the order in which the first requests of
the callers arrive at the store. Each step may be repeated without another effect, and none shortens a lease.

If clients know different limits, the smallest one of the holders wins until nothing is held. A limit that was stored by
``permits/set_limit`` wins over all of them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ...core import clock
from ...core import holder as holders
from ...core.commands import Command
from ...core.hold import Hold
from ...core.holder import Holder
from ...core.keys import BROADCAST, ends_of, heartbeats_of
from ...core.queue_values import QueuePosition
from ...core.replies import parse_array, parse_bool, parse_freed, parse_int, parse_text, parse_time
from ...core.steps import permits as steps
from ...core.steps.locks import TransferLock
from .requests import SMALLEST_FENCE, Busy, ForeignValue, Granted, PreparedCommands, TooManyPermits, no_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.effects import Performer
    from ...core.keys import LockKeys
    from ...core.queue_values import Attempt
    from .requests import LockOptions

_log = logging.getLogger("django_redis_locks")

SEMAPHORE: Final = "semaphore"
"""The kind of a semaphore."""

MOST_NAMES_WARNED: Final = 1000
"""The number of names for which a difference of limits is logged, to bound the memory."""


class PermitState(NamedTuple):
    """The permits of a key, as they were when they were read.

    Attributes:
        kind: "semaphore" or "rwlock"; "" if nothing is held, and no limit was set.
        used: the permits in use.
        limit: the limit in the store; 0 if nothing is held, and no limit was set.
        set: the limit was set by ``set_limit``.
        holders: the holders, in the order in which their leases end; the first ``MOST_LISTED`` if there are more.
    """

    kind: str
    used: int
    limit: int
    set: bool
    holders: list[Holder]


class PermitSteps:
    """The steps for a number of permits of one key, as in ``LockSteps``.

    Args:
        performer: the engine.
        keys: the keys of the lock.
        name: the name of the lock.
        options: its options.
        kind: "semaphore" or "rwlock", which exclude each other under one key.
        limit: the number of permits that may be held at a time.
        permits: the number of permits that an acquire takes.

    Attributes:
        terms: the arguments of an acquire that follow the holder.
        prepared: the commands of the straight acquire and release, since their first use.
        release_keys: the keys of a command that gives permits back: it may grant them to waiters.
    """

    shares_line: ClassVar = False
    exclusive: ClassVar = False
    role: ClassVar = ""
    hold_type: ClassVar[type[Hold]] = Hold

    __slots__ = (
        "_keys",
        "_name",
        "_options",
        "_performer",
        "kind",
        "limit",
        "permits",
        "prepared",
        "release_keys",
        "terms",
    )

    def __init__(
        self,
        performer: Performer,
        keys: LockKeys,
        name: str,
        options: LockOptions,
        kind: str,
        limit: int,
        permits: int,
    ) -> None:
        self._performer = performer
        self._keys = keys
        self._name = name
        self._options = options
        index = (keys.index_key,) if options.index else ()
        lock = keys.lock
        self.release_keys: tuple[str, ...] = (
            lock,
            ends_of(lock),
            keys.waiters,
            heartbeats_of(lock),
            keys.fence,
            *index,
        )
        self.kind, self.limit, self.permits = kind, limit, permits
        self.terms = kind, limit, permits
        self.prepared: PreparedCommands | None = None

    def with_permits(self, permits: int) -> PermitSteps:
        """Return the steps for another number of permits."""
        return PermitSteps(self._performer, self._keys, self._name, self._options, self.kind, self.limit, permits)

    def prepare(self) -> PreparedCommands:
        """Prepare the commands of the straight acquire and release, and keep them."""
        prepare = self._performer.prepare
        self.prepared = PreparedCommands(
            prepare("permits/acquire", self.release_keys), prepare("permits/release", self.release_keys)
        )
        return self.prepared

    @property
    def grant_terms(self) -> str:
        """What follows the lease in the entry of a waiter in the store."""
        return "".join(f"/{value}" for value in self.terms)

    def acquire(
        self, token: str, holder: str, attempt: Attempt
    ) -> Command[Granted | Busy | ForeignValue | TooManyPermits]:
        """Acquire the permits with a token, or register the waiter of the attempt."""
        args = steps.AcquirePermits(token, self._options.lease, holder, *self.terms)
        if attempt.entry is not None or attempt.enqueued_at:
            waiter = steps.PermitWaiter(attempt.address, attempt.enqueued_at, self._performer.tuning.waiter_ttl)
            args = args._replace(waiter=waiter)
        return Command("permits/acquire", self.release_keys, args, self._parse_acquire)

    def release(self, token: str, address: str = "") -> Command[int]:
        """Give the permits back. ``address`` is for locks with a common line of several waiters."""
        return Command("permits/release", self.release_keys, steps.ReleasePermits(token), parse_freed)

    def clean_up(self, token: str, address: str) -> Command[int]:
        """Give the permits back, and remove ``address``, which has this token, from the store's wait queue."""
        if not address:
            return self.release(token)
        return Command("permits/unregister", self.release_keys, steps.UnregisterPermits(address), parse_freed)

    def renew(self, token: str, lease: int) -> Command[bool]:
        """Extend the lease."""
        lock, ends, _, _, _, *index = self.release_keys
        return Command(
            "permits/renew", (lock, ends, *index), steps.RenewPermits(lease, (token,)), parse_renew, own_keys=2
        )

    def adopt(self, hold: Hold, holder: str) -> Callable[[str, int], Command[bool]]:
        """Return a function of a token and a lease that makes the first renewal of permits that were granted to a waiter.
        It also stores the holder."""
        # The values of the hold, not the hold: it is renewed only while its grants reference it
        return partial(self._adopt, fence=hold.fence or 0, since=hold.since, holder=holder)

    def _adopt(self, token: str, lease: int, *, fence: int, since: float, holder: str) -> Command[bool]:
        age = round(1000 * (clock.now() - since))
        args = steps.AdoptPermits(lease, token, fence, age, holder)
        return Command("permits/adopt", self.renew(token, lease).keys, args, parse_renew)

    def transfer(
        self, token: str, next_token: str, lease: int, may_shorten: bool, holder: str, fence: int = 0, age: int = 0
    ) -> Command[int]:
        """Give a hold another token. The reply is the fence, or 0 if neither token holds permits."""
        args = TransferLock(token, next_token, lease, int(may_shorten), fence, age, holder)
        return Command("permits/transfer", self.renew(token, lease).keys, args, parse_int)

    def downgrade(self, token: str) -> Command[int]:
        """Give all permits back but one. Its reply is 0 if the token holds none."""
        return Command("permits/downgrade", self.release_keys, steps.DowngradePermits(token), parse_freed)

    def set_limit(self, limit: int) -> Command[ForeignValue | None]:
        """Set the limit for all clients."""
        args = steps.SetLimit(self.kind, limit)
        return Command("permits/set_limit", self.release_keys, args, _parse_set_limit)

    def inspect(self) -> Command[PermitState | ForeignValue]:
        """List the holders."""
        args = steps.InspectPermits(self.kind)
        return Command("permits/inspect", self.release_keys[:2], args, parse_inspect)

    def force_release(self, fence: int | None, request_fence: bool) -> Command[int]:
        """Drop all holds, or the one with this fence, regardless of their holders."""
        return self.force_release_all(() if fence is None else (fence,))

    def force_release_all(self, fences: Sequence[int]) -> Command[int]:
        """Drop the holds with these fences, or all of them, regardless of their holders."""
        channel = self._keys.inbox + BROADCAST
        return Command(
            "permits/force_release", self.release_keys, steps.ForceReleasePermits(channel, tuple(fences)), parse_freed
        )

    def _parse_acquire(self, reply: Any) -> Granted | Busy | ForeignValue | TooManyPermits:
        """Parse a fence; ``[1, fence, other limit]``; ``[0, lease left ms, fence, since ms, permits, holder, last fence,
        other limit, place]``; ``[-1, what the key holds]``; or ``[-2, limit]``."""
        if type(reply) is int and reply > SMALLEST_FENCE:
            return Granted(reply)
        outcome, *values = parse_array(reply)
        if outcome == 1:
            fence, other_limit = values
            self._compare(parse_int(other_limit))
            return Granted(parse_int(fence))
        if outcome == 0:
            left, fence, since, permits, holder, last_fence, other_limit, place = values
            self._compare(parse_int(other_limit))
            # a grant to this waiter has a larger fence than all before
            position = QueuePosition(parse_int(place), fence=parse_int(last_fence) + 1)
            found = partial(_parse_hold, left, fence, since, permits, holder) if parse_int(fence) else no_holder
            return Busy(left / 1000, found, position)
        if outcome == -2:
            return TooManyPermits(parse_int(values[0]))
        return _parse_foreign_value(reply)

    def _compare(self, other_limit: int) -> None:
        """Log a warning, once for each name, if holders know another limit."""
        if other_limit and self._name not in _warned and len(_warned) < MOST_NAMES_WARNED:
            _warned.add(self._name)
            _log.warning(
                "Lock %s has a limit of %d here, and of %d for its other holders: the smaller one counts. Let all clients "
                "name one limit, or store it with set_limit()",
                self._name,
                self.limit,
                other_limit,
            )


_warned: set[str] = set()


def parse_renew(reply: Any) -> bool:
    """Parse the reply to the renewal of one hold."""
    (renewed,) = parse_array(reply)
    return parse_bool(renewed)


def _parse_set_limit(reply: Any) -> ForeignValue | None:
    return None if reply == 1 else _parse_foreign_value(reply)


def parse_inspect(reply: Any) -> PermitState | ForeignValue:
    """Parse ``[]``; ``[kind, permits in use, limit, 1 if it was set, hold, ...]``; or ``[-1, what the key holds]``."""
    reply = parse_array(reply)
    if not reply:
        return PermitState("", 0, 0, False, [])
    if reply[0] == -1:
        return _parse_foreign_value(reply)
    kind, used, limit, was_set, *holds = reply
    # stores order leases that end in the same millisecond differently
    holders = sorted((_parse_hold(*hold) for hold in holds), key=lambda holder: (holder.lease_left, holder.fence))
    return PermitState(parse_text(kind), parse_int(used), parse_int(limit), parse_bool(was_set), holders)


def _parse_hold(left: Any, fence: Any, since: Any, permits: Any, holder: Any) -> Holder:
    return holders.read(
        parse_text(holder),
        fence=parse_int(fence),
        since=parse_time(since),
        lease_left=left / 1000,
        permits=parse_int(permits),
    )


def _parse_foreign_value(reply: Any) -> ForeignValue:
    outcome, what = reply
    if outcome != -1:
        raise ValueError(reply)
    return ForeignValue(parse_text(what))
