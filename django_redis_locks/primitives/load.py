"""The lease of a cache load: one loader at a time, and its value is stored only if the key was neither written nor
invalidated during the load.

Facebook's leases (Nishtala et al., "Scaling Memcache at Facebook", NSDI 2013, 3.2.1), with renewal by their
owner and notification of waiters. A lease is void as soon as another caller claims, invalidates, writes or clears.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ..core import forks, owners, tokens
from ..core.commands import Command, Program
from ..core.effects import Cleanup, LeaveQueue
from ..core.errors import LockBackendError
from ..core.hold import Hold, State, mint_id
from ..core.queue_values import Attempt, QueuePosition, Waiter
from ..core.replies import parse_array, parse_bool, parse_int, parse_text
from ..core.runner import run_twice_if_interrupted
from .shared.requests import WaitRequest
from .shared.retry import CommandReply, RetryLimits, retry_command
from .shared.wait_loop import Outcome, wait_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.effects import Performer
    from ..core.keys import LockId

KIND: Final = "load"

Value: TypeAlias = "bytes | str | int"

BUSY, CLAIMED, FRESH, FAILED, UNCOORDINATED = range(5)
"""The verdicts of a claim."""

NEVER_FRESH: Final = -1
"""No value is fresh enough: a present value is loaded again."""

OVERRIDE_CLAIM, OVERRIDE_FAILURE = 1, 2
"""What a claim overrides: any other claim; or the note of a load that failed or wasn't stored."""

LONGEST_REASON: Final = 500

NO_RETRY: Final = RetryLimits(0.0, 0.0)


class LoadKeys(NamedTuple):
    """The keys that the scripts of a load touch. ``value`` is "" where values live elsewhere."""

    lease: str
    waiters: str
    generation: str
    replica_lag: str
    permit: str
    value: str
    inbox: str


class Claim(NamedTuple):
    """The result of a claim.

    Attributes:
        verdict: ``BUSY``, ``CLAIMED``, ``FRESH``, ``FAILED`` or ``UNCOORDINATED``.
        lease_left: seconds until the current claim ends, or until the note of a failure expires.
        value_left: milliseconds that the value has; -1: for ever, -2: there is none.
        value: as the store has it.
        reason: why the load failed; "" if it didn't.
        position: the position of the local queue in the store's wait queue.
        hold: the hold of a granted claim; it is renewed while it is referenced.
        sent_at: when the request was sent, on this process's clock: the reply is no older.
        waited: an earlier attempt of this request found another caller's claim.
    """

    verdict: int
    lease_left: float = 0.0
    value_left: int = -2
    value: Any = None
    reason: str = ""
    position: QueuePosition = QueuePosition()
    hold: LoadHold | None = None
    sent_at: float = 0.0
    waited: bool = False


class LoadHold(Hold):
    """The hold of a load. Its loss is not reported as one: the newer write wins, and the loaded value isn't stored.
    ``on_void`` ends the waiting of local callers."""

    forcible = False
    __slots__ = ("on_void",)

    on_void: Callable[[], object] | None

    def _report_loss(self, why: str) -> bool:
        if self.on_void is not None:
            self.on_void()
        return False


class ClaimRequest(WaitRequest):
    """A request to claim a load."""

    __slots__ = ("busy", "extra", "fresh_above", "lease", "renew_for", "take", "token")

    def __init__(
        self,
        wait: float,
        loop: object,
        *,
        lease: int,
        renew_for: float = 0.0,
        fresh_above: int = NEVER_FRESH,
        take: int = 0,
        extra: int | None = None,
        token: str = "",
    ) -> None:
        super().__init__(wait, loop)
        self.lease = lease
        self.renew_for = renew_for
        self.fresh_above = fresh_above
        self.take = take
        self.extra = extra
        self.busy = False
        forks.pid()
        self.token = token or tokens.mint_token()


@dataclass(frozen=True, slots=True)
class LoadLease:
    """The load of one value. Its methods are programs."""

    performer: Performer
    lock_id: LockId
    keys: LoadKeys
    name: str
    alias: str
    limits: RetryLimits

    def claiming(self, request: ClaimRequest) -> Program[Claim]:
        """Claim the load, waiting while another caller has the claim.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
        """
        waiter = Waiter(self.lock_id, request.loop, self.keys.inbox, request=request) if request.wait > 0 else None
        try:
            return (yield from wait_loop(self, request, waiter, Claim(BUSY), self.limits))
        except BaseException as failure:
            if not isinstance(failure, GeneratorExit):
                run_twice_if_interrupted(partial(self._undo_request, request, failure))
            raise

    def storing(
        self, token: str, ttl_ms: int, value: Any, hold: Hold | None, *, by_permit: bool = False
    ) -> Program[bool]:
        """End the load and store its value for ``ttl_ms`` milliseconds (-1: for ever, 0: not at all); False if the claim
        was gone. ``by_permit``: the token is what ``deferring`` returned. Where leases are in this process, the value
        may be a callable that writes it, given the milliseconds left of the replica lag.

        Raises:
            LockBackendError: the store can't be reached, or refuses the value; the claim is given up then.
        """
        self._stop_renewal(hold)
        stored: bool = yield from self._finishing(
            token, self._store_command(token, ttl_ms, value, by_permit=by_permit), hold
        )
        return stored

    def deferring(self, token: str, hold: Hold | None) -> Program[str]:
        """End a load inside of a transaction, which may store the value when it commits.

        Returns:
            The token of the permit to do so; "" if the claim was gone.
        """
        self._stop_renewal(hold)
        keys = self.keys.lease, self.keys.waiters, self.keys.generation, self.keys.permit
        command = Command("load/defer", keys, (token, round(1000 * self.performer.tuning.commit_window)), parse_text)
        permit: str = yield from self._finishing(token, command, hold)
        return permit

    def giving_up(self, token: str, hold: Hold | None, reason_ms: int = 0, why: str = "") -> Program[bool]:
        """End a load without a value; for ``reason_ms`` milliseconds other claims are answered with the reason ``why``."""
        self._stop_renewal(hold)
        ended: bool = yield from self._finishing(token, self._give_up_command(token, reason_ms, why), hold)
        return ended

    def abandoning(self, token: str, hold: Hold | None, lease: int) -> Cleanup:
        """What frees a claim in the background. It may be carried out while one unwinds."""
        self._stop_renewal(hold)
        return Cleanup(self.lock_id, self._give_up_command(token), lease / 1000)

    def checking(self, token: str, lease: int, *, by_permit: bool = False) -> Program[tuple[bool, int]]:
        """Prolong the claim, or the permit; whether it still exists, and the milliseconds left of the replica lag."""
        keys = self.keys.permit if by_permit else self.keys.lease, self.keys.generation, self.keys.replica_lag
        return (yield from self._sending(Command("load/renew", keys, (token, lease), _parse_renew), self.limits))  # type: ignore[no-any-return]

    def invalidating(self, stale_ms: int = 0, lag_ms: int = 0, limits: RetryLimits = NO_RETRY) -> Program[bool]:
        """Invalidate the value: a load that runs isn't stored. True if there was one, as far as the store knows.

        Args:
            stale_ms: milliseconds for which the old value may be served on.
            lag_ms: milliseconds of replica lag: values that are loaded until then are kept no longer than it lasts.
            limits: for how long to retry a store that doesn't answer, or refuses for now.
        """
        lease, waiters, _, replica_lag, permit, value, _ = self.keys
        keys = (lease, waiters, permit, replica_lag, value) if value else (lease, waiters, permit, replica_lag)
        found: bool = yield from self._sending(Command("load/invalidate", keys, (stale_ms, lag_ms), parse_bool), limits)
        return found

    def writing(self, ttl_ms: int, value: Value) -> Program[None]:
        """Write a value, where values live here, for ``ttl_ms`` milliseconds (-1: for ever, 0: delete it). A running load
        isn't stored."""
        lease, waiters, _, _, permit, value_key, _ = self.keys
        yield from self._sending(
            Command("load/put", (lease, waiters, permit, value_key), (ttl_ms, value), parse_bool), NO_RETRY
        )

    def prolong(self, token: str, lease: int) -> Command[bool]:
        """What the renewal sends."""
        return Command(
            "load/renew", (self.keys.lease, self.keys.generation, self.keys.replica_lag), (token, lease), _parse_owned
        )

    # For wait_loop().

    def _attempt_command(self, request: ClaimRequest, attempt: Attempt) -> Command[Claim]:
        extra = "" if request.extra is None else request.extra
        queue_args = attempt.address, attempt.enqueued_at, int(attempt.more), self.performer.tuning.waiter_ttl
        args = request.token, request.lease, request.fresh_above, int(request.take), extra, *queue_args
        return Command("load/claim", self._all_keys, args, self._parse_claim)

    def _attempt_outcome(self, request: ClaimRequest, attempt: Attempt, command_reply: CommandReply) -> Outcome[Claim]:
        claim: Claim = command_reply[0]._replace(sent_at=command_reply[1], waited=request.busy)
        request.position = claim.position
        if claim.verdict == BUSY:
            request.busy = True
            return claim, False, claim.lease_left, ()
        if claim.verdict == CLAIMED and request.renew_for:
            hold = self._make_hold(request, command_reply[1])
            self.performer.watch(hold, self.prolong, request.lease)
            claim = claim._replace(hold=hold)
        return claim, True, 0.0, ()

    def _make_hold(self, request: ClaimRequest, sent: float) -> LoadHold:
        hold = LoadHold(
            self.lock_id,
            self.keys.lease,
            self.name,
            self.alias,
            request.token,
            grant=mint_id(),
            fence=0,
            lease=request.lease,
            sent=sent,
            renew_for=request.renew_for,
            owner=owners.current_owner(),
            loop=request.loop,
            on_lost=None,
            outcome_unknown=False,
        )
        hold.on_void = None
        return hold

    def _undo_request(self, request: ClaimRequest, failure: BaseException) -> None:
        handlers = self.performer.handlers
        if request.waiter is not None:
            handlers[LeaveQueue](LeaveQueue(request.waiter, 0.0))
        if request.may_be_stored and (not isinstance(failure, LockBackendError) or failure.outcome_unknown):
            cleanup = self.abandoning(request.token, None, request.lease)
            handlers[Cleanup](cleanup)

    # The commands.

    def _store_command(self, token: str, ttl_ms: int, value: Any, *, by_permit: bool) -> Command[bool]:
        return Command("load/store", self._all_keys, (token, ttl_ms, value, int(by_permit)), parse_bool)

    @property
    def _all_keys(self) -> tuple[str, ...]:
        return self.keys[:6] if self.keys.value else self.keys[:5]

    def _finishing(self, token: str, command: Command[Any], hold: Hold | None) -> Program[Any]:
        try:
            return (yield from self._sending(command, self.limits, inf if hold is None else hold.deadline))
        except GeneratorExit:
            raise
        except BaseException:
            yield Cleanup(self.lock_id, self._give_up_command(token), self.performer.tuning.max_poll_interval)
            raise

    def _sending(self, command: Command[Any], limits: RetryLimits, until: float = inf) -> Program[Any]:
        reply, _, _ = yield from retry_command(command, until, limits, tuning=self.performer.tuning)
        return reply

    def _give_up_command(self, token: str, reason_ms: int = 0, why: str = "") -> Command[Any]:
        reason = why.encode(errors="replace").decode()[:LONGEST_REASON]
        return Command("load/give_up", self.keys[:3], (token, reason_ms, reason), parse_bool)

    def _stop_renewal(self, hold: Hold | None) -> None:
        if hold is not None:
            self.performer.unwatch(hold)
            hold.state = State.GONE

    def _parse_claim(self, reply: list[Any]) -> Claim:
        if reply[0] == -1:
            raise LockBackendError(f"the lease of a load ({self.keys.lease}) is {parse_text(reply[1])}")
        verdict, left, enqueued_at, lives, value, reason = parse_array(reply)
        return Claim(verdict, left / 1000, lives, value, parse_text(reason), QueuePosition(parse_int(enqueued_at)))


def _parse_renew(reply: Any) -> tuple[bool, int]:
    owned, lag_ms = parse_array(reply)
    return parse_bool(owned), parse_int(lag_ms)


def _parse_owned(reply: Any) -> bool:
    return _parse_renew(reply)[0]
