"""The program of an acquire: re-enter, or ask the store, wait and ask again, until the lock is granted or the wait is
over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...core import clock, tokens
from ...core.hold import Hold
from ...core.queue_entry import GrantTerms
from ...core.queue_values import DirectGrant
from ...core.tuning import RESERVED_FENCES
from .extend import extending_for_reentry
from .requests import NOT_QUEUED, AcquireRequest, Busy, ForeignValue, Granted, TooManyPermits
from .wait_loop import Turns

if TYPE_CHECKING:
    from ...core.commands import Program
    from ...core.queue_values import Attempt
    from .lock_spec import LockSpec

_NO_VERDICT = Busy(0.0, None)

SHORTEST_PAUSE: Final = 0.001
"""Seconds until the next attempt at least: stores round what is left of a lease down to milliseconds."""

GRANTED_TOO_LATE = Busy(0.0, None)
"""The store granted the lock, but the reply took longer than the lease."""


def acquiring(spec: LockSpec, request: AcquireRequest) -> Program[Hold | Busy]:
    """Re-enter the caller's own hold; or ask the store, wait, ask again, until it is granted or the wait is over. Whatever
    an attempt may have left in the store is cleaned up in the background."""
    hold = request.reentered
    if hold is not None:
        if hold.held:
            yield from extending_for_reentry(spec, hold, request)
            if hold.add_grant(request.grant_id, role=spec.steps.role):
                return hold
        request.reentered = None  # it was released since
    waiter = request.waiter
    if waiter is not None:
        lease = min(spec.options.lease, round(1000 * spec.performer.tuning.grant_lease))
        waiter.terms = GrantTerms(
            lease, spec.holder_text(request.owner), spec.steps.release_keys, spec.steps.grant_terms
        )
    return (yield from _taking_turns(spec, request, Turns(spec.performer, request, waiter)))


def _taking_turns(spec: LockSpec, request: AcquireRequest, turns: Turns) -> Program[Hold | Busy]:
    last: Busy = _NO_VERDICT
    attempt = yield from turns.first()
    while attempt is not None:
        if attempt.adopted is not None:
            verdict, sent, outcome_unknown = turns.adopt(attempt.adopted)
        else:
            request.token, request.address = attempt.token or request.token, attempt.address
            command = spec.steps.acquire(request.token, spec.holder_text(request.owner), attempt)
            verdict, sent, outcome_unknown = yield from turns.ask(command, spec.options.acquire_limits)
        if isinstance(verdict, (Granted, DirectGrant)):
            hold = _hold_of_attempt(spec, request, attempt, verdict, sent, outcome_unknown)
            if clock.now() < hold.deadline:
                watch(spec, hold, attempt)
                # the next local waiter asks when it gets a message, or when this lease is over
                yield from turns.end(hold.lease / 1000)
                return hold
            request.hold = None  # the answer took longer than the lease: no grant
            last, pause = GRANTED_TOO_LATE, 0.0
            yield from _replace_token(spec, request)
        else:
            last = verdict
            pause = yield from _refused(spec, request, attempt, verdict, sent, outcome_unknown)
        attempt = yield from turns.next(attempt, pause)
    yield from turns.end()
    return last


def _refused(
    spec: LockSpec,
    request: AcquireRequest,
    attempt: Attempt,
    verdict: Busy | ForeignValue | TooManyPermits,
    sent: float,
    outcome_unknown: bool,
) -> Program[float]:
    """Handle a refusal, and return the seconds until the next attempt.

    Raises:
        LockKeyError: the key holds something else.
        ValueError: the limit allows fewer permits.
    """
    if isinstance(verdict, (ForeignValue, TooManyPermits)):
        request.maybe_executed = False
        raise spec.refusal(verdict)
    fence = verdict.position.fence or (0 if verdict.holder is None else verdict.holder.fence)
    request.position = verdict.position._replace(sent=sent, fence=fence)
    pause = max(verdict.lease_left, SHORTEST_PAUSE)
    if outcome_unknown:
        if attempt.entry is not None:
            attempt.entry.invalid, pause = True, 0.0  # register with another token
        yield from _replace_token(spec, request)
        return pause
    if attempt.handed is not None:
        attempt.handed.report_vanished()
    request.maybe_executed = False
    return pause


def _hold_of_attempt(
    spec: LockSpec,
    request: AcquireRequest,
    attempt: Attempt,
    verdict: Granted | DirectGrant,
    sent: float,
    outcome_unknown: bool,
) -> Hold:
    """Return the hold of an attempt that was granted the lock, or has adopted it."""
    adopted, handed = attempt.adopted, attempt.handed
    position = NOT_QUEUED if isinstance(verdict, DirectGrant) else verdict.position
    request.position = position
    if handed is not None and isinstance(verdict, Granted) and verdict.free and not outcome_unknown:
        handed.report_vanished()
    if adopted is not None:
        request.token, request.address = adopted.token, ""
    hold = request.hold = make_hold(spec, request, verdict.fence, sent, outcome_unknown)
    hold.contended = adopted is not None or attempt.entry is not None
    if isinstance(adopted, DirectGrant):
        hold.deadline = min(hold.deadline, adopted.deadline)
    elif adopted is not None:
        hold.inherit(adopted.hold, spec.performer.tuning.local_reuse_window)
    elif position.other_queues:
        if handed is not None:
            hold.hand_overs = handed.hold.hand_overs + 1
    elif spec.steps.shares_line and (attempt.entry is not None or handed is not None):
        hold.reserved_fences = RESERVED_FENCES
        spec.performer.listen_for(spec.lock_id)
    return hold


def make_hold(spec: LockSpec, request: AcquireRequest, fence: int | None, sent: float, outcome_unknown: bool) -> Hold:
    """Return the hold of a request that was sent at this time."""
    new = spec.new_hold
    hold = new(request.token, request.grant_id, fence, sent, request.owner, request.loop, outcome_unknown)
    if outcome_unknown:
        hold.address = request.address
    return hold


def watch(spec: LockSpec, hold: Hold, attempt: Attempt) -> None:
    """Have the maintenance thread renew a hold, extend the short lease of a grant, or report the end of a fixed lease."""
    adopted = attempt.adopted
    unconfirmed = isinstance(adopted, DirectGrant) and hold.unconfirmed
    if hold.renew_until or hold.on_lost is not None or unconfirmed:
        rewrites = adopted is not None or hold.reserved_fences
        renew_command = spec.steps.adopt(hold) if rewrites else spec.steps.renew
        granted = hold.deadline - hold.since if unconfirmed else 0.0
        spec.performer.watch(hold, renew_command, hold.lease, granted)


def _replace_token(spec: LockSpec, request: AcquireRequest) -> Program[None]:
    """Clean up after the request's token, and give the request a new one: the cleanup frees whatever has the old
    token, also a lock that is granted later. The new token is set when the cleanup is queued: an interruption
    before that leaves the old one, which is then cleaned up with the request."""
    yield spec.cleanup(request.token, request.address)
    request.token, request.address = tokens.mint_token(), ""
    request.maybe_executed = False
