"""``Semaphore``: a lock with a number of permits. Its steps are in ``shared/permit_steps``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Never, Self, overload

from ..core.arguments import refuse_unknown, validate_limit
from ..core.durations import Duration
from ..core.grant import Grant
from ..core.runner import arun, run
from .shared.acquire import aacquire, acquire
from .shared.permit_lock import PermitLock
from .shared.permit_programs import setting_limit, steps_of

if TYPE_CHECKING:
    from .shared.permit_steps import PermitState

_ARGUMENTS = ("blocking", "timeout", "permits")


class Semaphore(PermitLock):
    """A lock with a number of permits, its *limit*, on all hosts together. ``locks.semaphore()`` makes one.

    Each hold has its own lease, fence and renewal, so that a crash gives back what its process held, and nothing else. A
    caller may have several holds. Permits are granted first come, first served: in the order in which the first requests
    of the callers arrive at the store, and a request for several permits isn't overtaken by smaller ones.

    If clients name different limits, the smallest one of the holders counts until none is left, and a warning is logged.
    A limit that ``set_limit()`` has stored wins over all of them.

    Example::

        with locks.semaphore("geocoder", limit=5, wait=30):
            geocode(address)

        with locks.semaphore("gpu", limit=8).acquire(permits=2) as grant:
            train(fence=grant.fence)
    """

    __slots__ = ()

    @overload
    def acquire(self, *, permits: int = 1) -> Grant: ...
    @overload
    def acquire(self, blocking: bool = True, timeout: Duration | None = None, *, permits: int = 1) -> Grant | None: ...
    def acquire(
        self, blocking: bool = True, timeout: Duration | None = None, *, permits: int = 1, **unknown: Never
    ) -> Grant | None:
        """Acquire permits for the calling thread, which may hold others already.

        Without ``blocking`` and ``timeout`` it waits as long as the semaphore's ``wait`` option says and raises when that
        time is over. With ``blocking=False`` or a ``timeout`` it returns None instead.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.
            permits: how many to acquire, all at once; the grant returns them together.

        Returns:
            A ``Grant``, which is true, or None.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``aacquire()``.
            LockNotAcquired: the default wait is over.
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: something else lives under the key, such as a lock of another kind.
            ValueError: ``permits`` is less than one or more than the limit, or ``timeout`` was given with
                ``blocking=False``, or isn't a length of time.

        Example::

            grant = locks.semaphore("gpu", limit=8).acquire(timeout=5, permits=2)
            if grant:
                with grant:
                    ...
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        return acquire(self._with_permits(permits), blocking, timeout)

    @overload
    async def aacquire(self, *, permits: int = 1) -> Grant: ...
    @overload
    async def aacquire(
        self, blocking: bool = True, timeout: Duration | None = None, *, permits: int = 1
    ) -> Grant | None: ...
    async def aacquire(
        self, blocking: bool = True, timeout: Duration | None = None, *, permits: int = 1, **unknown: Never
    ) -> Grant | None:
        """Acquire permits for the running task, which may hold others already.

        Without ``blocking`` and ``timeout`` it waits as long as the semaphore's ``wait`` option says and raises when that
        time is over. With ``blocking=False`` or a ``timeout`` it returns None instead.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.
            permits: how many to acquire, all at once; the grant returns them together.

        Returns:
            A ``Grant``, which is true, or None.

        Raises:
            LockNotAcquired: the default wait is over.
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: something else lives under the key, such as a lock of another kind.
            ValueError: ``permits`` is less than one or more than the limit, or ``timeout`` was given with
                ``blocking=False``, or isn't a length of time.
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        return await aacquire(self._with_permits(permits), blocking, timeout)

    def _with_permits(self, permits: int) -> Self:
        steps = steps_of(self.spec)
        if permits == steps.permits and type(permits) is int:
            return self
        most = steps.limit
        if type(permits) is not int or not 1 <= permits <= most:
            raise ValueError(f"permits is a whole number from 1 to the limit of {most}, not {permits!r}")
        return replace(self, spec=replace(self.spec, steps=steps.with_permits(permits)))

    def locked(self) -> bool:
        """Return whether all permits are taken. One round trip; the answer may be outdated when it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
        """
        return self.available() == 0

    async def alocked(self) -> bool:
        """Return whether all permits are taken. One round trip; the answer may be outdated when it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
        """
        return await self.aavailable() == 0

    def limit(self) -> int:
        """Return the limit that counts at the moment: the one that ``set_limit()`` has stored, or the smallest one of
        this semaphore and its holders. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
        """
        return self._limit_in(self._inspect())

    async def alimit(self) -> int:
        """Return the limit that counts at the moment: the one that ``set_limit()`` has stored, or the smallest one of
        this semaphore and its holders. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
        """
        return self._limit_in(await self._ainspect())

    def available(self) -> int:
        """Return the number of free permits. Others may have waited for them longer. One round trip; the answer may be
        outdated when it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
        """
        return self._free_in(self._inspect())

    async def aavailable(self) -> int:
        """Return the number of free permits. Others may have waited for them longer. One round trip; the answer may be
        outdated when it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
        """
        return self._free_in(await self._ainspect())

    def set_limit(self, limit: int) -> None:
        """Set the limit for all clients, whatever limit they name, until the semaphore wasn't used for a day. Waiting
        callers get the new permits at once. If more permits are held than a smaller limit allows, the holds stay, and
        none is granted until enough are given back. A waiting request for more permits than the limit raises.

        Args:
            limit: the number of permits, at least 1.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
            ValueError: ``limit`` is no whole number, or less than 1.

        Example::

            locks.semaphore("geocoder", limit=5).set_limit(2)
        """
        run(setting_limit(self.spec, validate_limit(limit)), self.spec.performer)

    async def aset_limit(self, limit: int) -> None:
        """Set the limit for all clients, whatever limit they name, until the semaphore wasn't used for a day. Waiting
        callers get the new permits at once. If more permits are held than a smaller limit allows, the holds stay, and
        none is granted until enough are given back. A waiting request for more permits than the limit raises.

        Args:
            limit: the number of permits, at least 1.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no semaphore.
            ValueError: ``limit`` is no whole number, or less than 1.
        """
        await arun(setting_limit(self.spec, validate_limit(limit)), self.spec.performer)

    def _limit_in(self, state: PermitState) -> int:
        own: int = steps_of(self.spec).limit
        if state.set:
            return state.limit
        return min(state.limit, own) if state.holders else own

    def _free_in(self, state: PermitState) -> int:
        return max(0, self._limit_in(state) - state.used)
