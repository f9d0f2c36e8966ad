"""The steps of an acquire before and after its program: what ``acquire`` and ``aacquire`` share."""

from __future__ import annotations

from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, Literal, overload

from ...core import clock, events, forks, owners
from ...core.durations import Duration, wait_seconds
from ...core.effects import LeaveQueue
from ...core.errors import LockAlreadyHeld, LockBackendError, LockNotAcquired
from ...core.grant import Grant
from ...core.hold import Hold, State
from ...core.registry import forget_block, registry
from ...core.runner import arun, run, run_twice_if_interrupted
from .lock_ownership import LockOwnership
from .lock_programs import GRANTED_TOO_LATE
from .requests import NOT_QUEUED, SMALLEST_FENCE, AcquireRequest, Busy
from .retry import FirstReply

if TYPE_CHECKING:
    from ...core.prepared import PreparedCommand

_ALREADY_HELD = (
    "the caller holds it already. What may be entered again is rlock(), or @redis_lock(reentrant=True); "
    "a test of contention has another holder: django_redis_locks.testing.hold_lock()"
)

_KEPT_BY_TRANSACTION = (
    'an open transaction of this thread keeps it, with hold="transaction" or by @redis_lock. What enters it again until '
    'then is lock(key, hold="transaction"), or rlock(key)'
)


class LockAcquisition(LockOwnership):
    """Makes the request of an acquire, turns its verdict into a grant or an error, and undoes what it left behind."""

    __slots__ = ()

    def _acquire(self, request: AcquireRequest) -> Grant | None:
        """Acquire on the fast path, or else by the program. The caller handles a failure."""
        fast = self._begin_fast_path(request)
        if fast is not None:
            command, arguments = fast
            grant = self._end_fast_path(request, command.send(request.token, arguments))
            if grant is not None:
                return grant
        return self._grant_or_raise(request, run(self.acquiring(request), self.performer))

    async def _aacquire(self, request: AcquireRequest) -> Grant | None:
        """Acquire on the fast path, or else by the program. The caller handles a failure."""
        fast = self._begin_fast_path(request)
        if fast is not None:
            command, arguments = fast
            grant = self._end_fast_path(request, await command.asend(request.token, arguments))
            if grant is not None:
                return grant
        return self._grant_or_raise(request, await arun(self.acquiring(request), self.performer))

    def _begin_fast_path(self, request: AcquireRequest) -> tuple[PreparedCommand, Any] | None:
        """Return the command and the arguments of a request that is likely to be granted at once, or None."""
        performer = self.performer
        if not request.fast or performer.outage.suspected:
            return None
        if request.wait > 0:
            request.waiter = self._new_waiter(request)
            if not performer.uncontended(request.waiter):
                return None
        command = (self.prepared or self.prepare_commands()).acquire
        arguments = command.packed(self.options.lease, self._holder_text(request))
        request.maybe_executed = True
        request.sent = clock.now()
        return command, arguments

    def _end_fast_path(self, request: AcquireRequest, reply: Any) -> Grant | None:
        """Return the grant, or None if the program is to continue from this reply."""
        if type(reply) is int and reply > SMALLEST_FENCE:
            hold = request.hold = self._make_hold(request, reply, request.sent, outcome_unknown=False)
            now = clock.now()
            if now < hold.deadline:
                request.waited = now - request.sent
                if hold.renew_until or hold.on_lost is not None:
                    self.performer.watch(hold, self._renew_command, hold.lease)
                waiter = request.waiter
                if waiter is not None:
                    if not self.performer.end_uncontended(waiter):
                        pause = min(self.performer.tuning.max_poll_interval, hold.lease / 1000)
                        self._perform(LeaveQueue(waiter, pause, NOT_QUEUED))
                    request.waiter = None
                return self._issue(request, hold)
            request.hold = None
        request.first = FirstReply(request.sent, reply)
        return None

    @overload
    def _new_request(self, blocking: Literal[True], timeout: None, loop: object) -> AcquireRequest: ...
    @overload
    def _new_request(self, blocking: bool, timeout: Duration | None, loop: object) -> AcquireRequest | None: ...
    def _new_request(self, blocking: bool, timeout: Duration | None, loop: object) -> AcquireRequest | None:
        """The request of this caller; None if the answer is no without asking the store."""
        if loop is None and self.options.on_lost == "cancel":
            raise ValueError('on_lost="cancel" cancels a task: acquire the lock with aacquire() or "async with"')
        if getpid() != forks.known_pid:
            forks.pid()
        usual = blocking is True and timeout is None
        wait = self.options.wait if usual else self._wait_seconds(blocking, timeout)
        running = owners.running_loop()
        owner = owners.here.owner if running is None else owners.current_owner()
        request = AcquireRequest(wait, owner, loop, raise_if_busy=usual)
        if not registry.knows(self.lock_id):
            request.fast = loop is running
        else:
            newest = registry.newest(self.lock_id, deferred=True)
            if newest is not None and newest.hold.held:
                if self.reentrant:
                    if newest.hold.expired_or_lost:
                        raise self._loss_of(newest.hold, "expired")
                    request.reentered = newest.hold
                    return request
                why = (
                    None if newest.hold.expired_or_lost else _KEPT_BY_TRANSACTION if newest.deferred else _ALREADY_HELD
                )
            else:
                why = registry.why_self_deadlock(self.lock_id)
            if why is not None:
                if blocking:
                    raise LockAlreadyHeld(f"lock {self.name!r}: {why}", **self.error_context)
                return None
        return request

    def _wait_seconds(self, blocking: bool, timeout: Duration | None) -> float:
        if blocking not in (True, False):
            raise ValueError(f"blocking is True or False, not {blocking!r}; write acquire(timeout=...) for a wait")
        if blocking:
            return self.options.wait if timeout is None else wait_seconds(timeout, "timeout")
        if timeout not in (None, -1):
            raise ValueError("acquire(blocking=False) takes no timeout")
        return 0.0

    def _grant_or_raise(self, request: AcquireRequest, verdict: Hold | Busy) -> Grant | None:
        if isinstance(verdict, Hold):
            return self._issue(request, verdict)
        if verdict is GRANTED_TOO_LATE:
            raise LockBackendError(
                f"the answer took longer than the lease of {self.options.lease / 1000:g} s: the lock wasn't acquired",
                transient=True,
            )
        events.emit(events.Contended(self.key, self.name, self.alias, request.waited))
        if not request.raise_if_busy:
            return None
        holder = f", held by {verdict.holder}" if verdict.holder is not None else ""
        raise LockNotAcquired(
            f"lock {self.name!r} is busy{holder}; waited {request.waited:.3f} s",
            waited=request.waited,
            retry_after=verdict.lease_left,
            holder=verdict.holder,
            **self.error_context,
        )

    def _issue(self, request: AcquireRequest, hold: Hold) -> Grant:
        grant = request.issued = Grant(hold, self, request.grant_id, request.block)
        crowded = self.options.auto_release and registry.register(grant, request.block)
        if crowded and not hold.renew_until and not hold.unconfirmed:  # the confirmation sees to it
            self.performer.forget_at_end(hold)
        if events.wanted(events.Acquired):
            events.emit(events.Acquired(self.key, self.name, self.alias, hold.fence, request.waited))
        return grant

    def _handle_failure(self, request: AcquireRequest, failure: BaseException) -> Grant:
        """Undo the request and raise the failure again. With ``ON_BACKEND_ERROR`` "open" a store that is down gives an
        unprotected grant instead."""
        try:
            run_twice_if_interrupted(partial(self._undo_request, request, failure))
            if not isinstance(failure, LockBackendError):
                raise failure
            self._with_context(failure)
            if not self.options.fail_open:
                raise failure
            events.emit(
                events.BackendFailed(self.key, self.name, self.alias, "acquire, going on unlocked", str(failure))
            )
            grant = request.issued = Grant(
                self._make_hold(request, None, sent=0.0, outcome_unknown=False), self, request.grant_id, request.block
            )
            if self.options.auto_release:
                registry.register(grant, request.block)
            return grant
        finally:
            del failure  # else its traceback and this frame keep each other, and the caller's frame, in memory

    def _undo_request(self, request: AcquireRequest, failure: BaseException) -> None:
        if request.waiter is not None:
            self._perform(LeaveQueue(request.waiter, 0.0))  # the next one asks at once: a wake-up may have been spent
        if request.issued is not None:
            forget_block(request.issued)
            registry.forget(request.issued)
        if request.reentered is not None:
            request.reentered.remove_grant(request.grant_id)
        hold = request.hold
        if hold is not None:
            hold.state = State.GONE
            self.performer.unwatch(hold)
        refused = isinstance(failure, LockBackendError) and not failure.outcome_unknown
        owns_hold = request.waiter is None or not request.waiter.gave_back
        if (hold is not None and owns_hold) or (request.maybe_executed and not refused):
            self._perform(self._cleanup(request.token, request.address))
