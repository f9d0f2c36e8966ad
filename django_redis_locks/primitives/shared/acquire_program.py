"""The program of an acquire: re-enter, or ask the store, wait and ask again, until the lock is granted or the wait is
over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...core import clock, tokens
from ...core.hold import Hold
from ...core.queue_entry import GrantTerms
from ...core.queue_values import DirectGrant, QueuePosition
from ...core.tuning import RESERVED_FENCES
from .extend import extending_for_reentry
from .replication import replicating
from .requests import NOT_QUEUED, AcquireRequest, Busy, ForeignValue, Granted, TooManyPermits
from .wait_loop import Turns

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.queue_values import Attempt, HandedOverLock
    from .lock_spec import LockSpec

_NO_VERDICT = Busy(0.0)

SHORTEST_PAUSE: Final = 0.001
"""Seconds until the next attempt at least: stores round what is left of a lease down to milliseconds."""

GRANTED_TOO_LATE = Busy(0.0)
"""The store granted the lock, but the reply took longer than the lease."""

UNREPLICATED = Busy(0.0)
"""The store granted the lock, but too few replicas have it in time."""


def acquiring(spec: LockSpec, request: AcquireRequest) -> Program[Hold | Busy]:
    """Re-enter the caller's own hold; or ask the store, wait and ask again, until the lock is granted or the wait is over.
    A caller that has to wait usually asks once, which registers it in the store, and then adopts the lock that the store
    has granted to it. Whatever an attempt may have left in the store is cleaned up in the background."""
    if request.reentered is not None:
        hold = yield from _reentering(spec, request, request.reentered)
        if hold is not None:
            return hold
    waiter, holder = request.waiter, spec.holder_text(request.owner)
    if waiter is not None:
        lease = min(spec.options.lease, round(1000 * spec.performer.tuning.grant_lease))
        waiter.terms = GrantTerms(lease, holder, spec.steps.release_keys, spec.steps.grant_terms)
    turns = Turns(spec.performer, request, waiter)
    last: Busy = _NO_VERDICT
    attempt = yield from turns.first()
    while attempt is not None:
        granted_for = 0.0
        if attempt.adopted is not None:
            hold, granted_for = _adopted(spec, request, attempt.adopted)
        else:
            request.token, request.address = attempt.token or request.token, attempt.address
            command = spec.steps.acquire(request.token, holder, attempt)
            verdict, sent, outcome_unknown = yield from turns.ask(command, spec.options.acquire_limits)
            if type(verdict) is not Granted:
                last, pause = verdict, _refused(spec, request, attempt, verdict, sent, outcome_unknown)
                if outcome_unknown:
                    yield from _replace_token(spec, request)
                attempt = yield from turns.next(attempt, pause)
                continue
            hold = _granted(spec, request, attempt, verdict, sent, outcome_unknown)
        copied = True
        if spec.options.replicas:
            copied = yield from replicating(spec, hold, attempt, turns.give_up)
        if copied and clock.now() < hold.deadline:
            watch(spec, hold, attempt, holder, granted_for)
            # the next local waiter asks when it gets a message, or when this lease is over
            yield from turns.end(hold.lease / 1000)
            return hold
        request.hold = None  # the answer took longer than the lease, or too few replicas have it: no grant
        last = GRANTED_TOO_LATE if copied else UNREPLICATED
        yield from _replace_token(spec, request)
        attempt = yield from turns.next(attempt, 0.0)
    yield from turns.end()
    return last


def _reentering(spec: LockSpec, request: AcquireRequest, hold: Hold) -> Program[Hold | None]:
    """Enter the caller's own hold once more. Returns None if it was released since."""
    if hold.held:
        yield from extending_for_reentry(spec, hold, request)
        if hold.add_grant(request.grant_id, role=spec.steps.role):
            return hold
    request.reentered = None
    return None


def _refused(
    spec: LockSpec,
    request: AcquireRequest,
    attempt: Attempt,
    verdict: Busy | ForeignValue | TooManyPermits,
    sent: float,
    outcome_unknown: bool,
) -> float:
    """Handle a refusal, and return the seconds until the next attempt.

    Raises:
        LockKeyError: the key holds something else.
        ValueError: the limit allows fewer permits.
    """
    if isinstance(verdict, (ForeignValue, TooManyPermits)):
        request.maybe_executed = False
        raise spec.refusal(verdict)
    enqueued_at, other_queues, _, fence = verdict.position
    request.position = QueuePosition(enqueued_at, other_queues, sent, fence)
    pause = max(verdict.lease_left, SHORTEST_PAUSE)
    if outcome_unknown:
        if attempt.entry is None:
            return pause
        attempt.entry.invalid = True
        return 0.0  # register with another token
    if attempt.handed is not None:
        attempt.handed.report_vanished()
    request.maybe_executed = False
    return pause


def _granted(
    spec: LockSpec, request: AcquireRequest, attempt: Attempt, verdict: Granted, sent: float, outcome_unknown: bool
) -> Hold:
    """Return the hold of a request that was granted the lock."""
    handed, position = attempt.handed, verdict.position
    request.position = position
    if handed is not None and verdict.free and not outcome_unknown:
        handed.report_vanished()
    hold = request.hold = make_hold(spec, request, verdict.fence, sent, outcome_unknown)
    hold.contended = attempt.entry is not None
    if position.other_queues:
        if handed is not None:
            hold.hand_overs = handed.hold.hand_overs + 1
    elif spec.steps.shares_line and (attempt.entry is not None or handed is not None):
        hold.reserved_fences = RESERVED_FENCES
        spec.performer.listen_for(spec.lock_id)
    return hold


def _adopted(spec: LockSpec, request: AcquireRequest, adopted: HandedOverLock | DirectGrant) -> tuple[Hold, float]:
    """Return the hold of a lock that was handed over within this process, or granted to it as a waiter; and in the second
    case, if its lease in the store is the shorter one, for how many seconds. No request is sent."""
    request.token, request.address, request.maybe_executed = adopted.token, "", False
    request.position = NOT_QUEUED
    now, granted_for = clock.now(), 0.0
    hold = spec.new_hold(request.token, request.grant_id, adopted.fence, now, request.owner, request.loop, False)
    request.hold, hold.contended = hold, True
    if type(adopted) is DirectGrant:
        until = adopted.deadline
        if until < hold.deadline:
            hold.deadline, granted_for = until, until - now
    else:
        hold.inherit(adopted.hold, spec.performer.tuning.local_reuse_window)
    return hold, granted_for


def make_hold(spec: LockSpec, request: AcquireRequest, fence: int | None, sent: float, outcome_unknown: bool) -> Hold:
    """Return the hold of a request that was sent at this time."""
    new = spec.new_hold
    hold = new(request.token, request.grant_id, fence, sent, request.owner, request.loop, outcome_unknown)
    if outcome_unknown:
        hold.address = request.address
    return hold


def watch(spec: LockSpec, hold: Hold, attempt: Attempt, holder: str = "", granted_for: float = 0.0) -> None:
    """Have the maintenance thread renew a hold, extend its short lease of ``granted_for`` seconds, or report the end of a
    fixed lease. ``holder`` describes the holder of an adopted lock."""
    if hold.renew_until or hold.on_lost is not None or granted_for:
        rewrites = attempt.adopted is not None or hold.reserved_fences
        renew_command = spec.steps.adopt(hold, holder) if rewrites else spec.steps.renew
        spec.performer.watch(hold, renew_command, hold.lease, granted_for)


def _replace_token(spec: LockSpec, request: AcquireRequest) -> Program[None]:
    """Clean up after the request's token, and give the request a new one: the cleanup frees whatever has the old
    token, also a lock that is granted later. The new token is set when the cleanup is queued: an interruption
    before that leaves the old one, which is then cleaned up with the request."""
    yield spec.cleanup(request.token, request.address)
    request.token, request.address = tokens.mint_token(), ""
    request.maybe_executed = False
