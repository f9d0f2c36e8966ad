"""The public face of every lock: each method that may do I/O stands beside its ``a`` twin.

A lock object is immutable, cheap, and shared between threads and tasks; whoever acquires it gets a ``Grant``.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal, overload

from ..core import events, owners
from ..core.durations import Duration, patience
from ..core.effects import Freed, Leave, Sweep, Unwatch
from ..core.errors import LockAlreadyHeld, LockBackendError, LockError, LockLost, LockNotAcquired, LockNotOwned
from ..core.grant import Grant
from ..core.hold import Hold, State
from ..core.owners import registry
from ..core.runner import arun, run
from .programs import Programs
from .wishes import Ask, Busy

if TYPE_CHECKING:
    from types import TracebackType

    from ..core.holder import Holder


_HELD = (
    "the caller holds it already. What may be entered again is rlock(), or @redis_lock(reentrant=True); "
    "a test of contention lets another thread hold it"
)


class BaseLock(Programs):
    """What all kinds of locks offer. Times are seconds or a ``timedelta``; None is the default, -1 for ever."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.alias!r}>"

    @overload
    def acquire(self) -> Grant: ...
    @overload
    def acquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None: ...
    def acquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None:
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
        ask = self._begin(blocking, timeout, None)
        if ask is None:
            return None
        try:
            return self._finish(ask, run(self.entering(ask), self.world))
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._failed(ask, failure)

    @overload
    async def aacquire(self) -> Grant: ...
    @overload
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None: ...
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None:
        """As ``acquire``, for the running task."""
        ask = self._begin(blocking, timeout, owners.running_loop())
        if ask is None:
            return None
        try:
            return self._finish(ask, await arun(self.entering(ask), self.world))
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._failed(ask, failure)

    def release(self) -> None:
        """Release the caller's newest grant of this lock.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.release()``.
            LockLost: it wasn't his any more.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        self._newest().release()

    async def arelease(self) -> None:
        """As ``release``."""
        await self._newest().arelease()

    def locked(self) -> bool:
        """Whether anybody holds the lock now. One round trip; by the time it is answered it may be otherwise."""
        return self.holder() is not None

    async def alocked(self) -> bool:
        """As ``locked``."""
        return await self.aholder() is not None

    def owned(self) -> bool:
        """Whether the caller holds it, by this process's own knowledge."""
        return registry.own(self.place) is not None

    def holder(self) -> Holder | None:
        """Who holds the lock, or None. One round trip."""
        return run(self.inspecting(), self.world)

    async def aholder(self) -> Holder | None:
        """As ``holder``."""
        return await arun(self.inspecting(), self.world)

    def force_release(self, reason: str = "", fence: int | None = None) -> bool:
        """Free the lock whoever holds it. Its holder goes on until he notices; the fence protects what he writes to.

        Args:
            reason: for the log and the signal.
            fence: free only the hold with this fence, not one that came since.

        Returns:
            Whether there was anything to free; True if an answer was lost on the way.

        Raises:
            ValueError: ``fence`` is no int.
        """
        return self._forced(run(self.forcing(fence), self.world), reason)

    async def aforce_release(self, reason: str = "", fence: int | None = None) -> bool:
        """As ``force_release``."""
        return self._forced(await arun(self.forcing(fence), self.world), reason)

    # An exception may strike between any two instructions: a signal handler's. What a block holds then ends with it.

    def __enter__(self) -> Grant:
        ask = self._begin(True, None, None)
        try:
            return self._enter(self._finish(ask, run(self.entering(ask), self.world)))
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._enter(self._failed(ask, failure))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        grant: Grant | None = None
        try:
            grant = self._entered(error)
            if grant is not None:
                grant.__exit__(kind, error, tb)
        except BaseException as failure:
            self._not_left(grant, failure)
            raise

    async def __aenter__(self) -> Grant:
        ask = self._begin(True, None, owners.running_loop())
        try:
            return self._enter(self._finish(ask, await arun(self.entering(ask), self.world)))
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._enter(self._failed(ask, failure))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        grant: Grant | None = None
        try:
            grant = self._entered(error)
            if grant is not None:
                await grant.__aexit__(kind, error, tb)
        except BaseException as failure:
            self._not_left(grant, failure)
            raise

    # What acquire and aacquire share.

    @overload
    def _begin(self, blocking: Literal[True], timeout: None, home: object) -> Ask: ...
    @overload
    def _begin(self, blocking: bool, timeout: Duration | None, home: object) -> Ask | None: ...
    def _begin(self, blocking: bool, timeout: Duration | None, home: object) -> Ask | None:
        """The caller's wish; None if the answer is no without asking the store."""
        if home is None and self.terms.on_lost == "cancel":
            raise ValueError('on_lost="cancel" cancels a task: acquire the lock with aacquire() or "async with"')
        ask = Ask(self._patience(blocking, timeout), owners.me(), home, raises=blocking and timeout is None)
        if registry.knows(self.place):
            newest = registry.newest(self.place)
            if newest is not None and newest.hold.held:
                if self.reentrant:
                    if newest.hold.over:
                        raise self._lost(newest.hold, "expired")
                    ask.inner = newest.hold
                    return ask
                why = None if newest.hold.over else _HELD
            else:
                why = registry.entangled(self.place)
            if why is not None:
                if blocking:
                    raise LockAlreadyHeld(f"lock {self.name!r}: {why}", **self.about)
                return None
        return ask

    def _patience(self, blocking: bool, timeout: Duration | None) -> float:
        if blocking not in (True, False):
            raise ValueError(f"blocking is True or False, not {blocking!r}; write acquire(timeout=...) for a wait")
        if blocking:
            return self.terms.wait if timeout is None else patience(timeout, "timeout")
        if timeout not in (None, -1):
            raise ValueError("acquire(blocking=False) takes no timeout")
        return 0.0

    def _finish(self, ask: Ask, verdict: Hold | Busy) -> Grant | None:
        if isinstance(verdict, Hold):
            grant = self._give(ask, verdict)
            events.emit(events.Acquired(self.key, self.name, self.alias, verdict.fence, ask.waited))
            return grant
        events.emit(events.Contended(self.key, self.name, self.alias, ask.waited))
        if not ask.raises:
            return None
        holder = f", held by {verdict.holder}" if verdict.holder is not None else ""
        raise LockNotAcquired(
            f"lock {self.name!r} is busy{holder}; waited {ask.waited:.3f} s",
            waited=ask.waited,
            retry_after=verdict.lease_left,
            holder=verdict.holder,
            **self.about,
        )

    def _give(self, ask: Ask, hold: Hold) -> Grant:
        grant = ask.given = Grant(hold, self, ask.grant)
        registry.keep(grant)
        return grant

    def _enter(self, grant: Grant | None) -> Grant:
        assert grant is not None  # noqa: S101 - this wish raises
        owners.enter(grant)
        return grant

    def _failed(self, ask: Ask, failure: BaseException) -> Grant:
        """Nobody will ever have the grant: what the wish left behind is cleared away, and the failure raised again. With
        ``ON_BACKEND_ERROR`` "open" a store that is down gives a grant that protects nothing.

        The program did so already, unless the exception struck outside of it; each step may be done twice."""
        if ask.seat is not None:
            self.world.perform(Leave(ask.seat, 0.0))
        if ask.given is not None:
            owners.enter_not(ask.given)
            registry.forget(ask.given)
        if ask.inner is not None:
            ask.inner.inside.discard(ask.grant)
        hold = ask.hold
        if hold is not None:
            hold.state = State.GONE
            self.world.perform(Unwatch(hold))
        if hold is not None or ask.sent:
            self.world.perform(Sweep(self.place, self._free(ask.token), self.terms.lease / 1000))
        if not (isinstance(failure, LockBackendError) and self.terms.fail_open):
            raise failure
        events.emit(events.BackendFailed(self.key, self.name, self.alias, "acquire, going on unlocked", str(failure)))
        return self._give(ask, self._hold(ask, None, sent=0.0, unanswered=False))

    def _newest(self) -> Grant:
        return self._owned(registry.newest(self.place))

    def _entered(self, error: BaseException | None) -> Grant | None:
        """The grant that a ``with`` block began with, also if it began in another context of this thread, as a
        generator's may. None if it can't be found and an exception of the block's own is on its way."""
        grant = owners.leave(self) or registry.of_block(self.place, self)
        return grant if grant is not None or error is not None else self._owned(None)

    def _owned(self, grant: Grant | None) -> Grant:
        if grant is None:
            raise LockNotOwned(f"lock {self.name!r} isn't held by this thread or task", **self.about)
        return grant

    def _forced(self, freed: bool, reason: str) -> bool:
        if freed:
            events.emit(events.ForceReleased(self.key, self.name, self.alias, reason))
        return freed

    # What a grant calls.

    def _release(self, grant: Grant) -> None:
        if self._leaving(grant):
            self._released(grant, run(self.releasing(grant.hold, owners.running_loop()), self.world))

    async def _arelease(self, grant: Grant) -> None:
        if self._leaving(grant):
            self._released(grant, await arun(self.releasing(grant.hold, owners.running_loop()), self.world))

    def _leaving(self, grant: Grant) -> bool:
        """Take the grant back; True if that was the last one, so that the lock is to be freed in the store."""
        hold = grant.hold
        if hold.foreign:
            if not grant.given_back:
                hold.inside.discard(grant.id)
                registry.forget(grant)
                warnings.warn(
                    f"lock {self.name!r} belongs to the process that this one was forked from; it isn't released here",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return False
        if hold.leave(grant.id):
            return True
        registry.forget(grant)
        return False

    def _released(self, grant: Grant, confirmed: bool) -> None:
        registry.forget(grant)
        hold = grant.hold
        events.emit(events.Released(self.key, self.name, self.alias, hold.fence, hold.age(), confirmed))

    def _not_released(self, grant: Grant, failure: BaseException) -> None:
        """What an exception interrupted, wherever it struck, the janitor brings to its end."""
        hold = grant.hold
        if hold.foreign:  # the warning was made an error
            return
        failed = isinstance(failure, LockError) and not isinstance(failure, LockLost)  # it may be tried again
        if not isinstance(failure, LockError):
            hold.leave(grant.id)
        if not failed or hold.state is not State.RELEASING:
            registry.forget(grant)
        if hold.state is State.RELEASING and not hold.doubted:
            hold.doubted = True
            self.world.perform(Unwatch(hold))
            self.world.perform(Sweep(self.place, self._free(hold.token), self.terms.lease / 1000))
            self.world.perform(Freed(self.place, False))  # it may have been: who waits here asks

    def _not_left(self, grant: Grant | None, failure: BaseException) -> None:
        if not isinstance(failure, LockError):
            grant = grant or registry.of_block(self.place, self)
            if grant is not None:
                owners.enter_not(grant)
                self._not_released(grant, failure)

    def _extend(self, hold: Hold, lease: int) -> None:
        run(self.extending(hold, lease), self.world)

    async def _aextend(self, hold: Hold, lease: int) -> None:
        await arun(self.extending(hold, lease), self.world)
