"""The algorithms of a lock as programs: acquire, re-enter, release, extend, inspect and force-release.

``Lock`` adds the commands; ``base_lock`` adds the public methods that run the programs.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ...core import clock, tokens
from ...core.commands import Command, Program
from ...core.effects import Cleanup, HandOver, NotifyWaiters, Requeue, Sleep
from ...core.errors import LockBackendError, LockKeyError, LockLost
from ...core.hold import Hold, State, validity
from ...core.queue_entry import GrantTerms
from ...core.queue_values import Attempt, DirectGrant, HandedOverLock, Waiter
from ...core.tuning import RESERVED_FENCES
from .lock_steps import FENCE_REQUESTED, LockSteps
from .requests import AcquireRequest, Busy, ForeignValue, Granted
from .retry import CommandReply, FirstReply, RetryLimits, retry_command
from .wait_loop import Outcome, wait_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...core.holder import Holder

_NO_VERDICT = Busy(0.0, None)

GRANTED_TOO_LATE = Busy(0.0, None)
"""The store granted the lock, but the reply took longer than the lease."""


class LockPrograms(LockSteps):
    """The programs of a lock that excludes by one key."""

    __slots__ = ()

    def _reentering(self, request: AcquireRequest, hold: Hold) -> Program[Hold | Busy]:
        """Enter a hold once more, without the store unless this entry needs it for longer; acquire if it was released
        since."""
        if hold.held:
            yield from self._extending_for_reentry(hold, request)
            if hold.add_grant(request.grant_id):
                return hold
        request.reentered = None
        return (yield from self.acquiring(request))

    def _extending_for_reentry(self, hold: Hold, request: AcquireRequest) -> Program[None]:
        """Let a hold last as long as an entry with these options expects: until then, or renewed until the entry ends.
        The entry may wait for a store that refuses."""
        renew_for, lease = self.options.renew_for, self.options.lease
        if renew_for and hold.renew_until:
            hold.renew_for(request.grant_id, hold.renew_until)
            return
        now = clock.now()
        if hold.unconfirmed:
            lease = max(lease, hold.lease)
        if hold.deadline < now + validity(lease):
            yield from self.extending(hold, lease, request.wait)
        if renew_for:
            hold.renew_for(request.grant_id, now + renew_for)
            try:
                self.performer.watch(hold, self._renew_command, lease)
            except BaseException:  # the next entry must not take it for a renewed one
                hold.remove_grant(request.grant_id)
                raise

    def acquiring(self, request: AcquireRequest) -> Program[Hold | Busy]:
        """Re-enter the caller's own hold; or ask the store, wait, ask again, until it is granted or the wait is
        over."""
        if request.reentered is not None:
            return self._reentering(request, request.reentered)
        waiter = request.waiter or (self._new_waiter(request) if request.wait > 0 else None)
        if waiter is not None:
            lease = min(self.options.lease, round(1000 * self.performer.tuning.grant_lease))
            waiter.terms = GrantTerms(lease, self._holder_text(request), self._release_keys)
        return wait_loop(self, request, waiter, _NO_VERDICT, self.options.acquire_limits)

    def _new_waiter(self, request: AcquireRequest) -> Waiter:
        lease = self.options.lease if self.options.auto_release else 0  # 0: it can't be adopted without a request
        return Waiter(self.lock_id, request.loop, self.keys.inbox, lease, request)

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
        adopted = attempt.adopted
        unconfirmed = isinstance(adopted, DirectGrant) and hold.unconfirmed
        if hold.renew_until or hold.on_lost is not None or unconfirmed:
            rewrites = adopted is not None or hold.reserved_fences
            renew_command = self.adopt_command(hold) if rewrites else self._renew_command
            granted = hold.deadline - hold.since if unconfirmed else 0.0
            self.performer.watch(hold, renew_command, hold.lease, granted)

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
            raise self.foreign_value_error(verdict)
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
        hold = request.hold = self._make_hold(request, verdict.fence, sent, outcome_unknown)
        if isinstance(adopted, DirectGrant):
            hold.deadline = min(hold.deadline, adopted.deadline)
        elif adopted is not None:
            hold.inherit(adopted.hold, self.performer.tuning.local_reuse_window)
        elif verdict.position.other_queues:
            if handed is not None:
                hold.hand_overs = handed.hold.hand_overs + 1
        elif attempt.entry is not None or handed is not None:
            hold.reserved_fences = RESERVED_FENCES
            self.performer.listen_for(self.lock_id)
        return hold

    def _replace_token(self, request: AcquireRequest) -> Iterator[Cleanup]:
        """Clean up after the request's token, and give the request a new one: the cleanup frees whatever has the old
        token, also a lock that is granted later. The new token is set when the cleanup is queued: an interruption
        before that leaves the old one, which is then cleaned up with the request."""
        yield self._cleanup(request.token, request.address)
        request.token, request.address = tokens.mint_token(), ""
        request.maybe_executed = False

    def _make_hold(self, request: AcquireRequest, fence: int | None, sent: float, outcome_unknown: bool) -> Hold:
        options = self.options
        hold = Hold(
            self.lock_id,
            self.key,
            self.name,
            self.alias,
            request.token,
            request.grant_id,
            fence,
            options.lease,
            sent,
            options.renew_for,
            request.owner,
            request.loop,
            options.on_lost,
            outcome_unknown,
        )
        if outcome_unknown:
            hold.address = request.address
        return hold

    def _cleanup(self, token: str, address: str) -> Cleanup:
        return Cleanup(self.lock_id, self._cleanup_command(token, address), self.options.lease / 1000)

    def releasing(self, hold: Hold, loop: object, first: FirstReply | None = None) -> Program[bool]:
        """Free the lock if it is still this hold's. Returns whether the store confirmed it. ``first`` is the reply to a
        command that was sent before.

        If others wait for it in this process it is handed over to them, and the store isn't asked. If an earlier
        attempt got no reply, "not held" may mean that it succeeded.
        """
        before, in_time = False, True
        if first is None:
            if hold.watched:
                self.performer.unwatch(hold)
            if self.performer.queued(self.lock_id) and (yield from self._handing_over(hold, loop)):
                return True
            before, in_time = hold.release_sent_in_time, clock.now() < hold.deadline
            hold.release_sent_in_time = before or in_time
        try:
            reply, _, outcome_unknown = yield from retry_command(
                self._release_command(hold.token, "" if hold.entry is None else hold.entry.address),
                hold.deadline,
                self.options.call_limits,
                tuning=self.performer.tuning,
                first=first,
            )
        except LockBackendError as failure:
            self._with_context(failure)
            if hold.expired_or_lost:
                raise self._loss_of(hold, "expired") from failure
            raise
        if reply > 1 or hold.entry is not None or self.performer.queued(self.lock_id):
            yield NotifyWaiters(self.lock_id, reply > 1, hold.entry, self._release_keys)
        if hold.outcome_unknown or outcome_unknown:
            yield self._cleanup(hold.token, hold.address)
        hold.state = State.GONE  # not before: what is interrupted until here the caller does again
        if reply and hold.loss_reason is None:  # a reported loss excludes a report of success
            return True
        if hold.loss_reason is None and (before or (in_time and outcome_unknown)):
            return False
        raise self._loss_of(hold, "taken" if in_time else "expired")

    def _handing_over(self, hold: Hold, loop: object) -> Program[bool]:
        """Hand the lock over to a waiter of this process, if it is certainly held. After ``max_hand_overs`` times in a
        row the local queue registers behind those of other processes instead."""
        if hold.outcome_unknown or hold.release_failed or hold.loss_reason is not None or clock.now() >= hold.deadline:
            return False
        if hold.hand_overs >= self.performer.tuning.max_hand_overs:
            hold.entry = yield Requeue(self.lock_id, loop)
        else:
            handed: bool = yield HandOver(
                HandedOverLock(hold, self._release_command, partial(self._adopted_reply, hold)), loop
            )
            return handed
        return False

    def _adopted_reply(self, hold: Hold) -> CommandReply:
        """Return the reply that the store would give to the next hold, whose fence is reserved. No request is sent."""
        assert hold.fence is not None  # noqa: S101 - it was held
        return Granted(hold.fence + 1, free=False), clock.now(), False

    def extending(self, hold: Hold, lease: int, wait: float = 0.0) -> Program[None]:
        """Extend the lease to end ``lease`` milliseconds from now; it is never shortened. A store that refuses
        temporarily is retried for at least ``wait`` seconds."""
        limits = self.options.call_limits
        if wait > limits.refused:
            limits = limits._replace(refused=wait)
        reply, sent, _ = yield from self._sending(self._renew_command(hold.token, lease), hold.deadline, limits)
        if not reply:
            if hold.state is not State.HELD:  # by a release of this process, in another thread
                raise LockLost(f"lock {self.name!r} was released in the meantime", **self.error_context)
            raise self._loss_of(hold, "taken")
        if not hold.extend_deadline(sent, lease):  # the answer is late: its lease was over, and the loss was reported
            raise self._loss_of(hold, "expired")

    def inspecting(self) -> Program[Holder | None]:
        """Return the holder of the lock, or None."""
        holder: Holder | None = (yield from self._sending(self._inspect_command()))[0]
        return holder

    def force_releasing(self, fence: int | None) -> Program[bool]:
        """Free the lock regardless of its holder, or only the hold with this fence. Without one, the hold that is
        found: a command that frees any hold must not be repeated."""
        if fence is not None and type(fence) is not int:
            raise ValueError(
                f"fence must be an int, as grant.fence and holder.fence are, or None for any holder, not {fence!r}"
            )
        limits, exact = None, fence is not None
        if fence is None:
            try:
                holder = yield from self.inspecting()
            except LockKeyError:  # a record, or a lock without expiry
                limits = RetryLimits(0.0, 0.0)
            else:
                if holder is None:
                    return False
                fence = holder.fence
        tuning, asks_until = (
            self.performer.tuning,
            clock.now() + (self.performer.tuning.fence_request_timeout if exact else 0.0),
        )
        reply, outcome_unknown = FENCE_REQUESTED, False
        while reply == FENCE_REQUESTED:
            command = self._force_release_command(fence, request_fence=clock.now() < asks_until)
            reply, _, outcome_unknown = yield from self._sending(command, limits=limits)
            if reply == FENCE_REQUESTED:
                yield Sleep(tuning.fence_request_interval)
        freed = bool(reply) or outcome_unknown  # by the attempt whose reply was lost
        if freed:  # all local waiters ask the store, so that none adopts a lock that was freed
            yield NotifyWaiters(self.lock_id, passed_on=False)
        return freed

    def _sending(
        self, command: Command[Any], until: float = inf, limits: RetryLimits | None = None
    ) -> Program[CommandReply]:
        try:
            return (
                yield from retry_command(
                    command, until, limits or self.options.call_limits, tuning=self.performer.tuning
                )
            )
        except LockBackendError as failure:
            self._with_context(failure)
            raise

    def _with_context(self, failure: LockBackendError) -> LockBackendError:
        failure.key, failure.name, failure.alias = self.key, self.name, self.alias
        return failure

    def _loss_of(self, hold: Hold, why: str) -> LockLost:
        if self.options.auto_release:
            hold.mark_lost(why, (State.HELD, State.RELEASING, State.GONE))
        elif hold.loss_reason is None:  # it was to end by itself: that is reported to the caller alone
            hold.loss_reason = why
        return LockLost(f"lock {self.name!r} was lost while it was held: {hold.loss_reason}", **self.error_context)

    def foreign_value_error(self, found: ForeignValue) -> LockKeyError:
        """Return the error for a key that holds something else."""
        return LockKeyError(
            f"can't lock {self.name!r} of alias {self.alias!r}: its key holds {found.what}. "
            "Delete that, or choose another key or KEY_PREFIX",
            **self.error_context,
        )

    @property
    def error_context(self) -> dict[str, str | None]:
        """What every error says of the lock."""
        return {"key": self.key, "name": self.name, "alias": self.alias}
