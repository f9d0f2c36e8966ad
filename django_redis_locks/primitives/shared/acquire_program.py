"""The program of an acquire: re-enter, or ask the store, wait and ask again, until the lock is granted or the wait is
over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import clock, tokens
from ...core.hold import Hold
from ...core.queue_entry import GrantTerms
from ...core.queue_values import DirectGrant
from ...core.tuning import RESERVED_FENCES
from .extend import extending_for_reentry
from .requests import AcquireRequest, Busy, ForeignValue, Granted
from .wait_loop import wait_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.commands import Command, Program
    from ...core.effects import Cleanup, Performer
    from ...core.queue_values import Attempt
    from .lock_spec import LockSpec
    from .retry import CommandReply
    from .wait_loop import Outcome

_NO_VERDICT = Busy(0.0, None)

GRANTED_TOO_LATE = Busy(0.0, None)
"""The store granted the lock, but the reply took longer than the lease."""


def acquiring(spec: LockSpec, request: AcquireRequest) -> Program[Hold | Busy]:
    """Re-enter the caller's own hold; or ask the store, wait, ask again, until it is granted or the wait is over."""
    hold = request.reentered
    if hold is not None:
        if hold.held:
            yield from extending_for_reentry(spec, hold, request)
            if hold.add_grant(request.grant_id):
                return hold
        request.reentered = None  # it was released since
    waiter = request.waiter
    if waiter is not None:
        lease = min(spec.options.lease, round(1000 * spec.performer.tuning.grant_lease))
        waiter.terms = GrantTerms(lease, spec.holder_text(request.owner), spec.steps.release_keys)
    return (yield from wait_loop(Attempts(spec), request, waiter, _NO_VERDICT, spec.options.acquire_limits))


def make_hold(spec: LockSpec, request: AcquireRequest, fence: int | None, sent: float, outcome_unknown: bool) -> Hold:
    """Return the hold of a request that was sent at this time."""
    new = spec.new_hold
    hold = new(request.token, request.grant_id, fence, sent, request.owner, request.loop, outcome_unknown)
    if outcome_unknown:
        hold.address = request.address
    return hold


class Attempts:
    """The commands of the attempts to acquire a lock, and their outcomes."""

    def __init__(self, spec: LockSpec) -> None:
        self._spec = spec

    @property
    def performer(self) -> Performer:
        """Carries the effects out."""
        return self._spec.performer

    def _attempt_command(self, request: AcquireRequest, attempt: Attempt) -> Command[Any]:
        """Return the command of an attempt."""
        spec = self._spec
        request.token, request.address = attempt.token or request.token, attempt.address
        return spec.steps.acquire(request.token, spec.holder_text(request.owner), attempt)

    def _attempt_outcome(
        self, request: AcquireRequest, attempt: Attempt, command_reply: CommandReply
    ) -> Outcome[Hold | Busy]:
        """Return the outcome of an attempt. Whatever it may have left in the store is cleaned up in the background."""
        verdict: Granted | Busy | ForeignValue | DirectGrant
        verdict, sent, outcome_unknown = command_reply
        if isinstance(verdict, DirectGrant):
            verdict = Granted(verdict.fence, free=False)
        if not isinstance(verdict, Granted):
            return self._refusal_outcome(request, attempt, verdict, sent, outcome_unknown)
        request.position = verdict.position
        if attempt.handed is not None and verdict.free and not outcome_unknown:
            attempt.handed.report_vanished()
        hold = self._hold_of_attempt(request, attempt, verdict, sent, outcome_unknown)
        if clock.now() >= hold.deadline:  # the answer took longer than the lease: no grant
            request.hold = None
            return GRANTED_TOO_LATE, False, 0.0, self._replace_token(request)
        self._watch(hold, attempt)
        # the next local waiter asks when it gets a message, or when this lease is over
        return hold, True, hold.lease / 1000, ()

    def _watch(self, hold: Hold, attempt: Attempt) -> None:
        steps = self._spec.steps
        adopted = attempt.adopted
        unconfirmed = isinstance(adopted, DirectGrant) and hold.unconfirmed
        if hold.renew_until or hold.on_lost is not None or unconfirmed:
            rewrites = adopted is not None or hold.reserved_fences
            renew_command = steps.adopt(hold) if rewrites else steps.renew
            granted = hold.deadline - hold.since if unconfirmed else 0.0
            self._spec.performer.watch(hold, renew_command, hold.lease, granted)

    def _refusal_outcome(
        self,
        request: AcquireRequest,
        attempt: Attempt,
        verdict: Busy | ForeignValue,
        sent: float,
        outcome_unknown: bool,
    ) -> Outcome[Hold | Busy]:
        if isinstance(verdict, ForeignValue):
            request.maybe_executed = False
            raise self._spec.foreign_value_error(verdict)
        fence = 0 if verdict.holder is None else verdict.holder.fence
        request.position = verdict.position._replace(sent=sent, fence=fence)
        if outcome_unknown:
            pause = verdict.lease_left
            if attempt.entry is not None:
                attempt.entry.invalid, pause = True, 0.0  # register with another token
            return verdict, False, pause, self._replace_token(request)
        if attempt.handed is not None:
            attempt.handed.report_vanished()
        request.maybe_executed = False
        return verdict, False, verdict.lease_left, ()

    def _hold_of_attempt(
        self, request: AcquireRequest, attempt: Attempt, verdict: Granted, sent: float, outcome_unknown: bool
    ) -> Hold:
        adopted, handed = attempt.adopted, attempt.handed
        if adopted is not None:
            request.token, request.address = adopted.token, ""
        hold = request.hold = make_hold(self._spec, request, verdict.fence, sent, outcome_unknown)
        if isinstance(adopted, DirectGrant):
            hold.deadline = min(hold.deadline, adopted.deadline)
        elif adopted is not None:
            hold.inherit(adopted.hold, self._spec.performer.tuning.local_reuse_window)
        elif verdict.position.other_queues:
            if handed is not None:
                hold.hand_overs = handed.hold.hand_overs + 1
        elif attempt.entry is not None or handed is not None:
            hold.reserved_fences = RESERVED_FENCES
            self._spec.performer.listen_for(self._spec.lock_id)
        return hold

    def _replace_token(self, request: AcquireRequest) -> Iterator[Cleanup]:
        """Clean up after the request's token, and give the request a new one: the cleanup frees whatever has the old
        token, also a lock that is granted later. The new token is set when the cleanup is queued: an interruption
        before that leaves the old one, which is then cleaned up with the request."""
        yield self._spec.cleanup(request.token, request.address)
        request.token, request.address = tokens.mint_token(), ""
        request.maybe_executed = False
