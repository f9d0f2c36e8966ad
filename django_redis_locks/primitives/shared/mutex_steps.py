"""The steps of a mutex: their commands, and the parsers of the replies.

Each step may be repeated without another effect, and none shortens the lease of a held lock:

- acquire: set the key if it is absent, or has this token already;
- release: delete the key if it has this token;
- renew: extend the lease if the key has this token.

Source: the lock on one server in Redis' documentation ("Distributed Locks with Redis"): a random token that is set with
an expiry, and compared before it is deleted. Redlock, the algorithm for several servers on the same page, is
``backends.redlock``. Like this lock, it can't stop a holder that was paused until its lease had ended, and it also relies on
the clocks of the servers (Kleppmann, "How to do distributed locking", 2016). Fences protect against such a holder.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...core import clock
from ...core import holder as holders
from ...core.commands import Command
from ...core.hold import Hold
from ...core.holder import Holder
from ...core.keys import BROADCAST
from ...core.queue_values import QueuePosition
from ...core.replies import parse_array, parse_bool, parse_forced, parse_freed, parse_int, parse_text, parse_time
from ...core.steps.locks import (
    AcquireLock,
    AdoptLock,
    ForceReleaseLock,
    InspectLock,
    LockWaiter,
    NextTurn,
    ReleaseLock,
    RenewLocks,
    TransferLock,
    UnregisterWaiter,
)
from .record_values import queued_index
from .requests import SMALLEST_FENCE, Busy, ForeignValue, Granted, PreparedCommands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.effects import Performer
    from ...core.keys import LockKeys
    from ...core.queue_values import Attempt
    from .requests import LockOptions

KIND: Final = "lock"


class MutexSteps:
    """The steps of one mutex, as in ``LockSteps``.

    Attributes:
        prepared: the commands of the straight acquire and release, since their first use.
        release_keys: the keys of a command that frees the lock: whatever frees it may grant it to the next waiter.
    """

    kind = KIND
    shares_line: ClassVar = True

    exclusive: ClassVar = True
    role: ClassVar = ""
    hold_type: ClassVar = Hold
    terms: ClassVar = ()
    grant_terms: ClassVar = ""

    __slots__ = ("_free_keys", "_keys", "_name", "_options", "_performer", "prepared", "release_keys")

    def __init__(self, performer: Performer, keys: LockKeys, name: str, options: LockOptions) -> None:
        self._performer = performer
        self._keys = keys
        self._name = name
        self._options = options
        index = (keys.index_key,) if options.index else ()
        self._free_keys = keys.lock, keys.fence, *index
        self.release_keys: tuple[str, ...] = (keys.lock, keys.waiters, keys.fence, *index)
        self.prepared: PreparedCommands | None = None

    def prepare(self) -> PreparedCommands:
        """Prepare the commands of the straight acquire and release, and keep them."""
        prepare = self._performer.prepare
        self.prepared = PreparedCommands(
            prepare("lock/acquire", self._free_keys), prepare("lock/release", self.release_keys)
        )
        return self.prepared

    def acquire(self, token: str, holder: str, attempt: Attempt) -> Command[Granted | Busy | ForeignValue]:
        """Acquire the lock with a token, or register the waiter of the attempt."""
        options = self._options
        if attempt.entry is None and attempt.handed is None:
            args = AcquireLock(token, options.lease, holder)
            return Command("lock/acquire", self._free_keys, args, parse_acquire)
        keys, tuning = self._keys, self._performer.tuning
        handed = "" if attempt.handed is None else attempt.handed.hold.token
        lease = options.lease + round(1000 * tuning.local_reuse_window)
        waiter = LockWaiter(handed, attempt.address, attempt.enqueued_at, tuning.waiter_ttl)
        args = AcquireLock(token, lease, holder, waiter)
        waited = (keys.lock, keys.fence, keys.waiters)
        return Command("lock/acquire", (*waited, keys.index_key) if options.index else waited, args, parse_acquire)

    def release(self, token: str, address: str = "") -> Command[int]:
        """Release the lock; ``address``, if any, is registered before that, behind all other waiters."""
        next_turn = NextTurn(address, self._performer.tuning.waiter_ttl) if address else None
        return Command("lock/release", self.release_keys, ReleaseLock(token, next_turn), parse_freed)

    def clean_up(self, token: str, address: str) -> Command[int]:
        """Release the lock, and remove ``address``, which has this token, from the store's wait queue."""
        if not address:
            return self.release(token)
        return Command("waiters/unregister", self.release_keys, UnregisterWaiter(address), parse_freed)

    def renew(self, token: str, lease: int) -> Command[bool]:
        """Extend the lease."""
        keys = self._keys
        listed = (keys.lock, keys.index_key) if self._options.index else (keys.lock,)
        return Command("lock/renew", listed, RenewLocks(lease, (token,)), parse_renew, own_keys=1)

    def adopt(self, hold: Hold, holder: str) -> Callable[[str, int], Command[bool]]:
        """Return a function of a token and a lease that makes the first renewal of an adopted lock. It also stores the
        holder and the fence of this hold."""
        # The values of the hold, not the hold: it is renewed only while its grants reference it
        return partial(self._adopt, fence=hold.fence or 0, since=hold.since, holder=holder)

    def _adopt(self, token: str, lease: int, *, fence: int, since: float, holder: str) -> Command[bool]:
        age = round(1000 * (clock.now() - since))
        args = AdoptLock(lease, token, fence, age, holder)
        return Command("lock/adopt", self.renew(token, lease).keys, args, parse_renew)

    def transfer(
        self, token: str, next_token: str, lease: int, may_shorten: bool, holder: str, fence: int = 0, age: int = 0
    ) -> Command[int]:
        """Give a held lock another token. The reply is the fence, or 0 if the lock has neither token."""
        args = TransferLock(token, next_token, lease, int(may_shorten), fence, age, holder)
        return Command("lock/transfer", self.renew(token, lease).keys, args, parse_int)

    def inspect(self) -> Command[Holder | ForeignValue | None]:
        """Read the holder."""
        return Command("lock/inspect", (self._keys.lock,), InspectLock(KIND), parse_inspect)

    def force_release(self, fence: int | None, request_fence: bool) -> Command[int]:
        """Release the lock regardless of its holder, or only the hold with this fence."""
        # The same command deletes listed records, and queued ones have another index
        keys = self._keys
        queued = (queued_index(keys.index_key),) if self._options.index else ()
        args = ForceReleaseLock("" if fence is None else fence, keys.inbox + BROADCAST, int(request_fence))
        return Command("lock/force_release", self.release_keys + queued, args, parse_forced)


def parse_acquire(reply: Any) -> Granted | Busy | ForeignValue:
    """Parse a fence, ``[1, fence, free, arrival, others]``, ``[0, lease left ms, fence, since ms, holder, arrival,
    others]`` or ``[-1, what the key holds]``."""
    if type(reply) is int and reply > SMALLEST_FENCE:
        return Granted(reply)
    outcome = parse_array(reply)[0]
    if outcome == 1:
        _, fence, free, *position = reply
        return Granted(parse_int(fence), parse_bool(free), _parse_position(0, *position))
    if outcome == 0:
        _, left, fence, _, _, *position = reply
        found = _parse_position(parse_int(fence), *position)
        return Busy(left / 1000, partial(_parse_holder, reply[1:5]), found)
    return _parse_foreign_value(reply)


def _parse_position(fence: int, enqueued_at: Any = 0, others: Any = 0) -> QueuePosition:
    return QueuePosition(parse_int(enqueued_at), parse_bool(others), 0.0, fence)


def _parse_foreign_value(reply: Any) -> ForeignValue:
    outcome, what = reply
    if outcome != -1:
        raise ValueError(reply)
    return ForeignValue(parse_text(what))


def parse_renew(reply: Any) -> bool:
    """Parse the reply to the renewal of one lock."""
    (renewed,) = parse_array(reply)
    return parse_bool(renewed)


def parse_inspect(reply: Any) -> Holder | ForeignValue | None:
    """Parse as ``parse_inspected_lock``."""
    return parse_inspected_lock(parse_array(reply))


def parse_inspected_lock(reply: Sequence[Any]) -> Holder | ForeignValue | None:
    """Parse ``[]`` for a free lock, the beginning of the reply for a busy lock, or ``[-1, what the key holds]``."""
    if not reply:
        return None
    return _parse_holder(list(reply[1:])) if reply[0] == 0 else _parse_foreign_value(reply)


def _parse_holder(fields: list[Any]) -> Holder:
    left, fence, since, holder_text = fields
    return holders.read(
        parse_text(holder_text), fence=parse_int(fence), since=parse_time(since or b"0"), lease_left=left / 1000
    )
