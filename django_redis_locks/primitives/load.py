"""The load primitive: the lease of a cache load. One caller at a time loads a value, and the value is stored only if it
was neither written nor invalidated during the load.

These are Facebook's leases (Nishtala et al., "Scaling Memcache at Facebook", NSDI 2013, 3.2.1), with renewal by the
loader and notification of waiters. A lease becomes void when another caller takes over the load, or invalidates, writes
or clears the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ..core import clock, owners
from ..core.commands import Command, Program
from ..core.effects import Cleanup, LeaveQueue
from ..core.errors import LockBackendError
from ..core.hold import Hold, State, mint_id
from ..core.queue_values import Attempt, QueuePosition, Waiter
from ..core.replies import parse_array, parse_bool, parse_int, parse_text
from ..core.runner import run_twice_if_interrupted
from ..core.steps.loads import ClaimLoad, DeferStore, GiveUpLoad, InvalidateValue, PutValue, RenewLoad, StoreValue
from .shared.requests import NOT_QUEUED, ClaimRequest
from .shared.retry import CommandReply, FirstReply, RetryLimits, retry_command
from .shared.wait_loop import UNQUEUED, Outcome, wait_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.effects import Performer
    from ..core.keys import LockId

KIND: Final = "load"

Value: TypeAlias = "bytes | str | int"

BUSY, CLAIMED, FRESH, FAILED, UNCOORDINATED = range(5)
"""The verdicts of a claim: another caller has the claim; the claim is granted; the value is fresh; the last load
failed; load without a claim, and don't store the value."""

NEVER_FRESH: Final = -1
"""A ``fresh_above`` that no value reaches: the value is loaded even if it is present."""

OVERRIDE_CLAIM, OVERRIDE_FAILURE = 1, 2
"""Values of ``override``: override the claim of another caller, or the note of a load that failed or wasn't stored."""

LONGEST_REASON: Final = 500
"""The number of characters of a failure's reason that are stored."""

NO_RETRY: Final = RetryLimits(0.0, 0.0)


class LoadKeys(NamedTuple):
    """The keys of a load, in the order of the scripts' KEYS, and the prefix of the inbox channels.

    Attributes:
        lease: the lease of the caller that loads the value.
        waiters: the queues that wait for the value.
        generation: the generation of the cache; leases of earlier generations are void.
        replica_lag: exists while a replica may return data from before an invalidation.
        permit: the right to store a value at COMMIT.
        value: the value; "" if values are in another cache.
        inbox: the prefix of the channels that receive messages about the load.
    """

    lease: str
    waiters: str
    generation: str
    replica_lag: str
    permit: str
    value: str
    inbox: str


@dataclass(slots=True)
class Claim:
    """The result of a claim.

    Attributes:
        verdict: ``BUSY``, ``CLAIMED``, ``FRESH``, ``FAILED`` or ``UNCOORDINATED``.
        lease_left: seconds until the current claim ends, or until the note of a failure expires.
        value_left: milliseconds until the value expires; -1: never, -2: there is no value.
        value: the value as it is stored.
        reason: why the load failed; "" if it didn't.
        position: the position of the local queue in the store's wait queue.
        hold: the hold of a granted claim; it is renewed while it is referenced.
        sent_at: when the request was sent, on this process's clock; the value was read after it.
        waited: an earlier attempt of this request found another caller's claim.
        token: the token of the request, with which a granted claim is ended.
    """

    verdict: int
    lease_left: float = 0.0
    value_left: int = -2
    value: Any = None
    reason: str = ""
    position: QueuePosition = NOT_QUEUED
    hold: LoadHold | None = None
    sent_at: float = 0.0
    waited: bool = False
    token: str = ""


class LoadHold(Hold):
    """The hold of a load. Its loss isn't an error and isn't reported: the newer write wins, and the loaded value isn't
    stored. Instead, ``on_void`` is called, which ends the waiting of local callers."""

    forcible = False
    __slots__ = ("on_void",)

    on_void: Callable[[], object] | None

    def _report_loss(self, why: str) -> bool:
        if self.on_void is not None:
            self.on_void()
        return False


@dataclass(frozen=True, slots=True)
class LoadLease:
    """The load of one value. Its public methods are programs, except ``abandoning`` and ``renew_command``."""

    performer: Performer
    lock_id: LockId
    keys: LoadKeys
    name: str
    alias: str
    limits: RetryLimits

    def claiming(self, request: ClaimRequest, *, retry: bool = True) -> Program[Claim]:
        """Claim the load, waiting while another caller has the claim.

        As a rule no other caller has it, so the first request is sent without queueing. ``wait_loop`` begins where its
        reply is ``BUSY``.

        Args:
            request: what to claim, and how long to wait.
            retry: repeat the first request while the store can't be reached.

        Raises:
            LockBackendError: the store can't be reached, or refuses the request.
        """
        begin = sent = request.sent = clock.now()
        request.maybe_executed = True
        try:
            command = self._attempt_command(request, UNQUEUED)
            claim: Claim
            try:
                claim = yield command
            except LockBackendError as failure:
                first, until = FirstReply(begin, failure), begin + request.wait if retry else begin
                claim, sent, _ = yield from retry_command(
                    command, until, self.limits, tuning=self.performer.tuning, first=first
                )
            self._complete(request, claim, sent)
            if claim.verdict != BUSY or clock.now() >= begin + request.wait:
                return claim
            waiter = Waiter(self.lock_id, request.loop, self.keys.inbox, request=request)
            return (yield from wait_loop(self, request, waiter, claim, self.limits))
        except BaseException as failure:
            if not isinstance(failure, GeneratorExit):
                run_twice_if_interrupted(partial(self._undo_request, request, failure))
            raise

    def storing(
        self, token: str, ttl_ms: int, value: Any, hold: Hold | None, *, by_permit: bool = False
    ) -> Program[bool]:
        """End the load and store its value. Returns False if the claim was gone, so that nothing was stored.

        Args:
            token: the token of the claim, or of the permit.
            ttl_ms: milliseconds until the value expires; -1: never, 0: don't store it.
            value: the value. If leases are kept in this process, it may be a callable that stores the value, called
                with the milliseconds left of the replica lag.
            hold: the hold of the claim, whose renewal stops.
            by_permit: the token was returned by ``deferring``.

        Raises:
            LockBackendError: the store can't be reached, or refuses the value. The claim is then given up.
        """
        keys = self.keys[:6] if self.keys.value else self.keys[:5]
        args = StoreValue(token, ttl_ms, value, int(by_permit))
        return self._finishing(token, Command("load/store", keys, args, parse_bool), hold)

    def deferring(self, token: str, hold: Hold | None) -> Program[str]:
        """End a load inside of a transaction, so that the value can be stored when the transaction commits. Returns the
        token of the permit to store it; "" if the claim was gone."""
        keys = self.keys.lease, self.keys.waiters, self.keys.generation, self.keys.permit
        args = DeferStore(token, round(1000 * self.performer.tuning.commit_window))
        return self._finishing(token, Command("load/defer", keys, args, parse_text), hold)

    def giving_up(self, token: str, hold: Hold | None, reason_ms: int = 0, why: str = "") -> Program[bool]:
        """End a load without a value. For ``reason_ms`` milliseconds other claims get the verdict ``FAILED``, with the
        reason ``why``. Returns False if the claim was gone."""
        return self._finishing(token, self._give_up_command(token, reason_ms, why), hold)

    def abandoning(self, token: str, hold: Hold | None, lease: int) -> Cleanup:
        """Stop the renewal of a claim, and return the effect that ends it in the background. The effect never blocks,
        so it may be used while an exception propagates."""
        if hold is not None:
            self._stop_renewal(hold)
        return Cleanup(self.lock_id, self._give_up_command(token), lease / 1000)

    def checking(self, token: str, lease: int, *, by_permit: bool = False) -> Program[tuple[bool, int]]:
        """Extend the claim, or the permit. Returns whether it still exists, and the milliseconds left of the replica
        lag."""
        keys = self.keys.permit if by_permit else self.keys.lease, self.keys.generation, self.keys.replica_lag
        return self._sending(Command("load/renew", keys, RenewLoad(token, lease), _parse_renew), self.limits)

    def invalidating(self, stale_ms: int = 0, lag_ms: int = 0, limits: RetryLimits = NO_RETRY) -> Program[bool]:
        """Invalidate the value. The value of a running load isn't stored. Returns whether the store had a value.

        Args:
            stale_ms: milliseconds for which the old value may still be served; 0 deletes it.
            lag_ms: milliseconds of replica lag, during which loaded values are stored only until its end.
            limits: how long to retry while the store can't be reached, or refuses temporarily.
        """
        lease, waiters, _, replica_lag, permit, value, _ = self.keys
        keys = (lease, waiters, permit, replica_lag, value) if value else (lease, waiters, permit, replica_lag)
        return self._sending(Command("load/invalidate", keys, InvalidateValue(stale_ms, lag_ms), parse_bool), limits)

    def writing(self, ttl_ms: int, value: Value) -> Program[None]:
        """Write a value for ``ttl_ms`` milliseconds (-1: without expiry, 0: delete it), if values and leases are in the
        same store. The value of a running load isn't stored."""
        lease, waiters, _, _, permit, value_key, _ = self.keys
        keys = lease, waiters, permit, value_key
        yield from self._sending(Command("load/put", keys, PutValue(ttl_ms, value), parse_bool), NO_RETRY)

    def renew_command(self, token: str, lease: int) -> Command[bool]:
        """Return the command that renews the lease."""
        keys = self.keys.lease, self.keys.generation, self.keys.replica_lag
        return Command("load/renew", keys, RenewLoad(token, lease), _parse_owned)

    # For wait_loop().

    def _attempt_command(self, request: ClaimRequest, attempt: Attempt) -> Command[Claim]:
        extra_interval = "" if request.extra_interval is None else request.extra_interval
        keys = self.keys[:6] if self.keys.value else self.keys[:5]
        args = ClaimLoad(request.token, request.lease, request.fresh_above, request.override, extra_interval)
        if attempt.entry is not None:
            args = args._replace(
                address=attempt.address,
                enqueued_at=attempt.enqueued_at,
                others_behind=int(attempt.others_behind),
                waiter_ttl=self.performer.tuning.waiter_ttl,
            )
        return Command("load/claim", keys, args, self._parse_claim)

    def _attempt_outcome(self, request: ClaimRequest, attempt: Attempt, command_reply: CommandReply) -> Outcome[Claim]:
        claim: Claim = command_reply[0]
        self._complete(request, claim, command_reply[1])
        return claim, claim.verdict != BUSY, claim.lease_left if claim.verdict == BUSY else 0.0

    def _complete(self, request: ClaimRequest, claim: Claim, sent: float) -> None:
        """Complete the claim that the store replied with. If it is granted, its renewal begins."""
        claim.sent_at, claim.waited, claim.token = sent, request.busy, request.token
        request.position = claim.position
        if claim.verdict == BUSY:
            request.busy = True
            if request.on_busy is not None:
                request.on_busy()
        elif claim.verdict == CLAIMED and request.renew_for:
            claim.hold = request.hold = self._make_hold(request, sent)
            self.performer.watch(claim.hold, self.renew_command, request.lease)

    def _make_hold(self, request: ClaimRequest, sent: float) -> LoadHold:
        loop: Any = request.loop
        hold = LoadHold(
            self.lock_id,
            self.keys.lease,
            self.name,
            self.alias,
            token=request.token,
            grant=mint_id(),
            fence=0,
            lease=request.lease,
            sent=sent,
            renew_for=request.renew_for,
            owner=owners.owner_in(loop),
            loop=loop,
            on_lost=None,
            outcome_unknown=False,
        )
        hold.on_void = None
        return hold

    def _undo_request(self, request: ClaimRequest, failure: BaseException) -> None:
        handlers = self.performer.handlers
        if request.waiter is not None:
            handlers[LeaveQueue](LeaveQueue(request.waiter, 0.0))
        if request.maybe_executed and (not isinstance(failure, LockBackendError) or failure.outcome_unknown):
            cleanup = self.abandoning(request.token, request.hold, request.lease)
            handlers[Cleanup](cleanup)

    # The commands.

    def _finishing(self, token: str, command: Command[Any], hold: Hold | None) -> Program[Any]:
        until = inf
        if hold is not None:
            until = hold.deadline
            self._stop_renewal(hold)
        try:
            sent = clock.now()
            try:
                reply = yield command
            except LockBackendError as failure:
                first = FirstReply(sent, failure)
                reply, _, _ = yield from retry_command(
                    command, until, self.limits, tuning=self.performer.tuning, first=first
                )
            return reply
        except GeneratorExit:
            raise
        except BaseException:
            yield Cleanup(self.lock_id, self._give_up_command(token), self.performer.tuning.max_poll_interval)
            raise

    def _sending(self, command: Command[Any], limits: RetryLimits) -> Program[Any]:
        reply, _, _ = yield from retry_command(command, limits=limits, tuning=self.performer.tuning)
        return reply

    def _give_up_command(self, token: str, reason_ms: int = 0, why: str = "") -> Command[Any]:
        reason = why.encode(errors="replace").decode()[:LONGEST_REASON]
        return Command("load/give_up", self.keys[:3], GiveUpLoad(token, reason_ms, reason), parse_bool)

    def _stop_renewal(self, hold: Hold) -> None:
        self.performer.unwatch(hold)
        hold.state = State.GONE

    def _parse_claim(self, reply: list[Any]) -> Claim:
        if reply[0] == -1:
            raise LockBackendError(f"the key of a load's lease ({self.keys.lease}) holds {parse_text(reply[1])}")
        verdict, left, enqueued_at, value_left, value, reason = parse_array(reply)
        position = QueuePosition(parse_int(enqueued_at)) if enqueued_at else NOT_QUEUED
        return Claim(verdict, left / 1000, value_left, value, parse_text(reason) if reason else "", position)


def _parse_renew(reply: Any) -> tuple[bool, int]:
    owned, lag_ms = parse_array(reply)
    return parse_bool(owned), parse_int(lag_ms)


def _parse_owned(reply: Any) -> bool:
    return _parse_renew(reply)[0]
