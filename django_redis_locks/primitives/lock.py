"""The lock primitive, a mutex: one holder at a time, across threads, tasks, processes and hosts.

``rlock`` is the same lock: re-entries are counted in the process, so that both kinds exclude each other and use the
same three steps in the store. Each step may be repeated without another effect, and none shortens the lease of a held
lock:

- acquire: set the key if it is absent, or has this token already;
- release: delete the key if it has this token;
- renew: extend the lease if the key has this token.

Source: the lock on one server in Redis' documentation ("Distributed Locks with Redis"): a random token that is set with
an expiry, and compared before it is deleted. Redlock, the algorithm for several servers on the same page, isn't
implemented: like this lock, it can't stop a holder that was paused until its lease had ended, and it also relies on the
clocks of the servers (Kleppmann, "How to do distributed locking", 2016). Fences protect against such a holder.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..core import clock, forks, owners
from ..core import holder as holders
from ..core.commands import Command
from ..core.holder import Holder
from ..core.keys import BROADCAST
from ..core.queue_values import Attempt, QueuePosition
from ..core.replies import parse_array, parse_bool, parse_forced, parse_freed, parse_int, parse_text, parse_time
from .shared.base_lock import BaseLock
from .shared.record_values import queued_index
from .shared.requests import NOT_QUEUED, SMALLEST_FENCE, AcquireRequest, Busy, ForeignValue, Granted, PreparedCommands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.hold import Hold

KIND: Final = "lock"


class Lock(BaseLock):
    """A mutex with owner-only release, renewal, fencing token and loss notice. ``locks.lock()`` makes one.

    It isn't re-entrant unless ``locks.rlock()`` made it: a second acquire by its owner raises ``LockAlreadyHeld``. A
    lock is immutable and cheap, and may be shared by threads and tasks; what one of them holds is its ``Grant``. Each
    method that may block has an asynchronous twin with the prefix ``a``.

    Example::

        with locks.lock("order:7", wait=5) as grant:
            charge(7, fence=grant.fence)

        async with locks.lock("order:7"):
            await acharge(7)

        grant = locks.lock("report").acquire(blocking=False)
        if grant is None:
            print("it is being made already, by", locks.lock("report").holder())
    """

    __slots__ = ()

    def prepare_commands(self) -> PreparedCommands:
        """Return the commands of the fast path, prepared for these keys."""
        keys = self.keys
        free = (keys.lock, keys.fence, keys.index_key) if self.options.index else (keys.lock, keys.fence)
        prepare = self.performer.prepare
        return PreparedCommands(prepare("lock/acquire", free, 3), prepare("lock/release", self._release_keys, 1))

    def _holder_text(self, request: AcquireRequest) -> str:
        return holders.describe(forks.known_pid, owners.name_of(request.owner), self.name, self.options.metadata)

    def _attempt_command(self, request: AcquireRequest, attempt: Attempt) -> Command[Granted | Busy | ForeignValue]:
        options = self.options
        keys = self.keys
        holder_text = self._holder_text(request)
        request.token, request.address = attempt.token or request.token, attempt.address
        if attempt.entry is None and attempt.handed is None:
            free = (keys.lock, keys.fence, keys.index_key) if options.index else (keys.lock, keys.fence)
            return Command("lock/acquire", free, (request.token, options.lease, holder_text), parse_acquire)
        handed = "" if attempt.handed is None else attempt.handed.hold.token
        tuning = self.performer.tuning
        lease = options.lease + round(1000 * tuning.local_reuse_window)
        args = request.token, lease, holder_text, handed, attempt.address, attempt.enqueued_at, tuning.waiter_ttl
        waited = (keys.lock, keys.fence, keys.waiters)
        return Command("lock/acquire", (*waited, keys.index_key) if options.index else waited, args, parse_acquire)

    def _release_command(self, token: str, address: str = "") -> Command[int]:
        args: tuple[str | int, ...] = (token, address, self.performer.tuning.waiter_ttl) if address else (token,)
        return Command("lock/release", self._release_keys, args, parse_freed)

    def _cleanup_command(self, token: str, address: str) -> Command[int]:
        if not address:
            return self._release_command(token)
        return Command("waiters/unregister", self._release_keys, (address,), parse_freed)

    def _renew_command(self, token: str, lease: int) -> Command[bool]:
        keys = self.keys
        listed = (keys.lock, keys.index_key) if self.options.index else (keys.lock,)
        return Command("lock/renew", listed, (lease, token), parse_renew)

    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]:
        """Return a function of a token and a lease that makes the first renewal of an adopted lock. It also stores the
        holder and the fence of this hold."""
        owner: Any = hold.owner()
        thread = "" if owner is None else owners.name_of(owner)
        holder_text = holders.describe(forks.known_pid, thread, self.name, self.options.metadata)
        # The values of the hold, not the hold: it is renewed only while its grants reference it
        return partial(self._adopt_command, fence=hold.fence or 0, since=hold.since, holder_text=holder_text)

    def _adopt_command(self, token: str, lease: int, *, fence: int, since: float, holder_text: str) -> Command[bool]:
        age = round(1000 * (clock.now() - since))
        return Command(
            "lock/adopt", self._renew_command(token, lease).keys, (lease, token, fence, age, holder_text), parse_renew
        )

    def _inspect_command(self) -> Command[Holder | None]:
        return Command("lock/inspect", (self.keys.lock,), (KIND,), partial(parse_inspect, self))

    def _force_release_command(self, fence: int | None, request_fence: bool) -> Command[int]:
        # The same command deletes listed records, and queued ones have another index
        queued = (queued_index(self.keys.index_key),) if self.options.index else ()
        args = "" if fence is None else fence, self.keys.inbox + BROADCAST, int(request_fence)
        return Command("lock/force_release", self._release_keys + queued, args, parse_forced)

    @property
    def _release_keys(self) -> tuple[str, ...]:
        """The keys of a command that frees the lock: whatever frees it may grant it to the next waiter."""
        keys = self.keys
        passed_on = keys.lock, keys.waiters, keys.fence
        return (*passed_on, keys.index_key) if self.options.index else passed_on


def parse_acquire(reply: Any) -> Granted | Busy | ForeignValue:
    """Parse a fence, ``[1, fence, free, arrival, others]``, ``[0, lease left ms, fence, since ms, holder, arrival,
    others]`` or ``[-1, what the key holds]``."""
    if type(reply) is int and reply > SMALLEST_FENCE:
        return Granted(reply)
    outcome = parse_array(reply)[0]
    if outcome == 1:
        _, fence, free, *position = reply
        return Granted(parse_int(fence), parse_bool(free), _parse_position(*position))
    if outcome == 0:
        return Busy(reply[1] / 1000, _parse_holder(reply[1:5]), _parse_position(*reply[5:]))
    return _parse_foreign_value(reply)


def _parse_position(enqueued_at: Any = 0, others: Any = 0) -> QueuePosition:
    return QueuePosition(parse_int(enqueued_at), parse_bool(others)) if enqueued_at or others else NOT_QUEUED


def _parse_foreign_value(reply: Any) -> ForeignValue:
    outcome, what = reply
    if outcome != -1:
        raise ValueError(reply)
    return ForeignValue(parse_text(what))


def parse_renew(reply: Any) -> bool:
    """Parse the reply to the renewal of one lock."""
    (renewed,) = parse_array(reply)
    return parse_bool(renewed)


def renewal_group(command: Command[Any]) -> object:
    """Return the group of a renewal; renewals of one group can be merged. They have the same lease and the same index,
    or bucket of keys. Returns None for commands other than the renewal of a lock."""
    if command.name != "lock/renew":
        return None
    lock, *index = command.keys
    return command.args[0], index[0] if index else lock.partition("}")[0]


def merged_renewal(commands: Sequence[Command[bool]]) -> Command[list[bool]]:
    """Merge renewals of one group. The reply says for each lock, in this order, whether it is still held."""
    first = commands[0]
    locks = [command.keys[0] for command in commands]
    tokens = [command.args[1] for command in commands]
    return Command("lock/renew", (*locks, *first.keys[1:]), (first.args[0], *tokens), parse_merged_renewal)


def parse_merged_renewal(reply: Any) -> list[bool]:
    """Whether each lock is still owned, in the order of the command's keys."""
    return [parse_bool(renewed) for renewed in parse_array(reply)]


def parse_inspect(lock: Lock, reply: Any) -> Holder | None:
    """Parse as ``parse_inspected_lock``.

    Raises:
        LockKeyError: the key holds a value that isn't a lock.
    """
    found = parse_inspected_lock(parse_array(reply))
    if isinstance(found, ForeignValue):
        raise lock.foreign_value_error(found)
    return found


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
