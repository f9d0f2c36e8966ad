"""The public face of every lock: each method that may do I/O stands beside its ``a`` twin.

A lock object is immutable, cheap, and shared between threads and tasks; whoever acquires it gets a ``Grant``.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Literal, Never, overload

from ...core import events, forks, owners
from ...core.arguments import refuse_unknown
from ...core.durations import Duration, patience
from ...core.effects import LeaveQueue
from ...core.errors import LockAlreadyHeld, LockBackendError, LockNotAcquired, LockNotOwned
from ...core.grant import Grant
from ...core.hold import Hold, State
from ...core.registry import end_block, forget_block, registry
from ...core.runner import arun, run, run_twice_if_interrupted
from .lock_object import LockObject
from .lock_programs import GRANTED_TOO_LATE
from .requests import AcquireRequest, Busy

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.holder import Holder


_get_frame = sys._getframe
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""A block of a generator may end in another thread or task than it began in. It is known by its frame, which lives as long
as the block; all others are alike."""

_ALREADY_HELD = (
    "the caller holds it already. What may be entered again is rlock(), or @redis_lock(reentrant=True); "
    "a test of contention has somebody else hold it: django_redis_locks.testing.hold_lock()"
)

_KEPT_BY_TRANSACTION = (
    'an open transaction of this thread keeps it, with hold="transaction" or by @redis_lock. What enters it again until '
    'then is lock(key, hold="transaction"), or rlock(key)'
)

_ARGUMENTS = ("blocking", "timeout")


class BaseLock(LockObject):
    """What all kinds of locks offer. Times are seconds or a ``timedelta``; None is the default, -1 for ever."""

    __slots__ = ()

    @overload
    def acquire(self) -> Grant: ...
    @overload
    def acquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None: ...
    def acquire(self, blocking: bool = True, timeout: Duration | None = None, **unknown: Never) -> Grant | None:
        """Acquire the lock.

        Without arguments it waits as long as the lock's ``wait`` says, and raises when that is over, so that a bare
        ``acquire()`` never runs a section unlocked. Who passes ``blocking=False`` or a ``timeout`` asks a question and
        gets None for no. The deadline bounds the waiting; one attempt in flight may take up to the socket timeout.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.

        Returns:
            A ``Grant``, which is true, or None.

        Raises:
            LockNotAcquired: the default wait is over.
            LockAlreadyHeld: the caller holds it, or would wait for himself.
            LockLost: re-entry into a lock that is lost.
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: something else lives under the key.
            ValueError: ``timeout`` with ``blocking=False``, or not a length of time.
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        request = self._new_request(blocking, timeout, None)
        if request is None:
            return None
        try:
            return self._grant_or_raise(request, run(self.acquiring(request), self.performer))
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    @overload
    async def aacquire(self) -> Grant: ...
    @overload
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None: ...
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None, **unknown: Never) -> Grant | None:
        """As ``acquire``, for the running task."""
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        request = self._new_request(blocking, timeout, owners.running_loop())
        if request is None:
            return None
        try:
            return self._grant_or_raise(request, await arun(self.acquiring(request), self.performer))
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    def release(self) -> None:
        """Release the caller's newest grant of this lock.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.release()``.
            LockLost: it wasn't his any more.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        self._newest_grant().release()

    async def arelease(self) -> None:
        """As ``release``."""
        await self._newest_grant().arelease()

    def locked(self) -> bool:
        """Whether anybody holds the lock now. One round trip; by the time it is answered it may be otherwise."""
        return self.holder() is not None

    async def alocked(self) -> bool:
        """As ``locked``."""
        return await self.aholder() is not None

    def owned(self) -> bool:
        """Whether the caller holds it, by this process's own knowledge."""
        newest = registry.newest(self.lock_id)
        return newest is not None and newest.held

    def holder(self) -> Holder | None:
        """Who holds the lock, or None. One round trip."""
        return run(self.inspecting(), self.performer)

    async def aholder(self) -> Holder | None:
        """As ``holder``."""
        return await arun(self.inspecting(), self.performer)

    def force_release(self, reason: str = "", fence: int | None = None, actor: str = "") -> bool:
        """Free the lock whoever holds it. Its holder goes on until he notices; the fence protects what he writes to.

        Args:
            reason: for the log and the signal.
            actor: who does it, for the signal.
            fence: free only the hold with this fence, not one that came since.

        Returns:
            Whether there was anything to free; True if an answer was lost on the way.

        Raises:
            ValueError: ``fence`` is no int.
        """
        return self._report_forced(run(self.force_releasing(fence), self.performer), reason, actor)

    async def aforce_release(self, reason: str = "", fence: int | None = None, actor: str = "") -> bool:
        """As ``force_release``."""
        return self._report_forced(await arun(self.force_releasing(fence), self.performer), reason, actor)

    # An exception may strike between any two instructions: a signal handler's. What a block holds then ends with it.

    def __enter__(self) -> Grant:
        if not self.options.auto_release:
            self.check_block()
        request = self._new_request(True, None, None)
        frame = _get_frame(1)
        request.block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
        del frame  # a task that waits would be in a cycle with it
        try:
            grant = self._grant_or_raise(request, run(self.acquiring(request), self.performer))
            assert grant is not None  # noqa: S101 - this wish raises
            return grant
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        grant: Grant | None = None
        try:
            frame = _get_frame(1)
            block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
            del frame
            grant = end_block(self, block) or self._grant_of_block(error, block)
            if grant is not None:
                grant.exit_block(error)
        except BaseException as failure:
            self._undo_block(grant, failure)
            raise

    async def __aenter__(self) -> Grant:
        if not self.options.auto_release:
            self.check_block()
        request = self._new_request(True, None, owners.running_loop())
        frame = _get_frame(1)
        request.block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
        del frame  # a task that waits would be in a cycle with it
        try:
            grant = self._grant_or_raise(request, await arun(self.acquiring(request), self.performer))
            assert grant is not None  # noqa: S101 - this wish raises
            return grant
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        grant: Grant | None = None
        try:
            frame = _get_frame(1)
            block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
            del frame
            grant = end_block(self, block) or self._grant_of_block(error, block)
            if grant is not None:
                await grant.aexit_block(error)
        except BaseException as failure:
            self._undo_block(grant, failure)
            raise

    # What acquire and aacquire share.

    @overload
    def _new_request(self, blocking: Literal[True], timeout: None, home: object) -> AcquireRequest: ...
    @overload
    def _new_request(self, blocking: bool, timeout: Duration | None, home: object) -> AcquireRequest | None: ...
    def _new_request(self, blocking: bool, timeout: Duration | None, home: object) -> AcquireRequest | None:
        """The caller's wish; None if the answer is no without asking the store."""
        if home is None and self.options.on_lost == "cancel":
            raise ValueError('on_lost="cancel" cancels a task: acquire the lock with aacquire() or "async with"')
        if getpid() != forks.known:
            forks.pid()
        usual = blocking is True and timeout is None
        wait = self.options.wait if usual else self._wait_seconds(blocking, timeout)
        request = AcquireRequest(wait, owners.current_owner(), home, raises=usual)
        if registry.knows(self.lock_id):
            newest = registry.newest(self.lock_id, deferred=True)
            if newest is not None and newest.hold.held:
                if self.reentrant:
                    if newest.hold.over:
                        raise self._loss_of(newest.hold, "expired")
                    request.inner = newest.hold
                    return request
                why = None if newest.hold.over else _KEPT_BY_TRANSACTION if newest.deferred else _ALREADY_HELD
            else:
                why = registry.why_self_deadlock(self.lock_id)
            if why is not None:
                if blocking:
                    raise LockAlreadyHeld(f"lock {self.name!r}: {why}", **self.about)
                return None
        return request

    def _wait_seconds(self, blocking: bool, timeout: Duration | None) -> float:
        if blocking not in (True, False):
            raise ValueError(f"blocking is True or False, not {blocking!r}; write acquire(timeout=...) for a wait")
        if blocking:
            return self.options.wait if timeout is None else patience(timeout, "timeout")
        if timeout not in (None, -1):
            raise ValueError("acquire(blocking=False) takes no timeout")
        return 0.0

    def _grant_or_raise(self, request: AcquireRequest, verdict: Hold | Busy) -> Grant | None:
        if isinstance(verdict, Hold):
            grant = request.given = Grant(verdict, self, request.grant, request.block)
            if self.options.auto_release and registry.keep(grant, request.block) and not verdict.renew_until:
                self.performer.forget_at_end(verdict)
            if events.wanted(events.Acquired):
                events.emit(events.Acquired(self.key, self.name, self.alias, verdict.fence, request.waited))
            return grant
        if verdict is GRANTED_TOO_LATE:
            raise LockBackendError(
                f"the answer took longer than the lease of {self.options.lease / 1000:g} s: the lock wasn't acquired",
                transient=True,
            )
        events.emit(events.Contended(self.key, self.name, self.alias, request.waited))
        if not request.raises:
            return None
        holder = f", held by {verdict.holder}" if verdict.holder is not None else ""
        raise LockNotAcquired(
            f"lock {self.name!r} is busy{holder}; waited {request.waited:.3f} s",
            waited=request.waited,
            retry_after=verdict.lease_left,
            holder=verdict.holder,
            **self.about,
        )

    def _handle_failure(self, request: AcquireRequest, failure: BaseException) -> Grant:
        """Nobody will ever have the grant: what the wish left behind is cleared away, and the failure raised again. With
        ``ON_BACKEND_ERROR`` "open" a store that is down gives a grant that protects nothing."""
        run_twice_if_interrupted(partial(self._undo_request, request, failure))
        if not isinstance(failure, LockBackendError):
            raise failure
        self._with_context(failure)
        if not self.options.fail_open:
            raise failure
        events.emit(events.BackendFailed(self.key, self.name, self.alias, "acquire, going on unlocked", str(failure)))
        grant = request.given = Grant(
            self._make_hold(request, None, sent=0.0, outcome_unknown=False), self, request.grant, request.block
        )
        if self.options.auto_release:
            registry.keep(grant, request.block)
        return grant

    def _undo_request(self, request: AcquireRequest, failure: BaseException) -> None:
        if request.waiter is not None:
            self._perform(LeaveQueue(request.waiter, 0.0))  # the next one asks at once: a wake-up may have been spent
        if request.given is not None:
            forget_block(request.given)
            registry.forget(request.given)
        if request.inner is not None:
            request.inner.take_out(request.grant)
        hold = request.hold
        if hold is not None:
            hold.state = State.GONE
            self.performer.unwatch(hold)
        refused = isinstance(failure, LockBackendError) and not failure.outcome_unknown
        kept = request.waiter is None or not request.waiter.gave_back
        if (hold is not None and kept) or (request.sent and not refused):
            self._perform(self._cleanup(request.token))

    def check_block(self) -> None:
        if not self.options.auto_release:
            raise TypeError(
                f"lock {self.name!r}: a block releases at its end, and auto_release=False keeps the lock until its lease "
                "ends: write acquire(), or leave auto_release out"
            )

    def _newest_grant(self) -> Grant:
        return self._required_grant(registry.newest(self.lock_id))

    def _grant_of_block(self, error: BaseException | None, block: int) -> Grant | None:
        """The grant that a ``with`` block began with, also if it began in another context, and that of a generator in
        another thread or task. None if it can't be found and an exception of the block's own is on its way."""
        grant = registry.grant_of_with_block(self.lock_id, self, block)
        return grant if grant is not None or error is not None else self._required_grant(None)

    def _required_grant(self, grant: Grant | None) -> Grant:
        if grant is None:
            raise LockNotOwned(
                f"lock {self.name!r} isn't held by this thread or task. "
                "What another one acquired is released by its grant: grant.release()",
                **self.about,
            )
        return grant

    def _report_forced(self, freed: bool, reason: str, actor: str) -> bool:
        if freed:
            events.emit(events.ForceReleased(self.key, self.name, self.alias, reason, actor))
        return freed
