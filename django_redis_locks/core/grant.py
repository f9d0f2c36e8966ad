"""Grants: the handles that ``acquire`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

from django.core.exceptions import SynchronousOnlyOperation

from . import events
from .durations import Duration, lease_ms
from .errors import LockAlreadyHeld, LockBackendError, LockError
from .grant_state import GrantState
from .hold import Hold
from .owners import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .commands import Command
    from .effects import Performer

OnLost: TypeAlias = "Literal['cancel'] | Callable[[Grant], Any] | None"
"""The values of ``on_lost``: how the loss of a lock is handled."""


class GrantedLock(Protocol):
    """The methods of a lock that its grants use."""

    @property
    def exclusive(self) -> bool: ...
    @property
    def role(self) -> str: ...
    @property
    def performer(self) -> Performer: ...
    def release_grant(self, grant: Grant, loop: object, /) -> None: ...
    async def arelease_grant(self, grant: Grant, /) -> None: ...
    def check_block(self) -> None: ...
    def clean_up_release(self, grant: Grant, failure: BaseException) -> None: ...
    def extend_grant(self, grant: Grant, lease: int, /) -> None: ...
    async def aextend_grant(self, grant: Grant, lease: int, /) -> None: ...
    def release_in_background(self, grant: Grant) -> None: ...
    def leave_grant(self, grant: Grant) -> None: ...
    async def aleave_grant(self, grant: Grant) -> None: ...
    def detach_grant(self, grant: Grant, expire: Duration | None, /) -> str: ...
    async def adetach_grant(self, grant: Grant, expire: Duration | None, /) -> str: ...
    def release_commands(self, hold: Hold) -> list[Command[int]]: ...
    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]: ...


class Grant(GrantState):
    """The proof that the caller holds a lock, and the handle to release it.

    Usable from any thread or task. ``with grant:`` and ``async with grant:`` release it at the end; one block per
    grant.

    Example::

        grant = locks.lock("report:2031").acquire()
        with grant:
            write_report(fence=grant.fence)

    Attributes:
        fence: grows with every hold of the key. Have a store refuse a write with a smaller fence than the last one
            (``stored <= mine`` passes, since one grant may write more than once). None if not ``protected``.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        lock: GrantedLock

    def extend(self, expire: Duration) -> None:
        """Extend the lease to ``expire`` from now; it is never shortened. One round trip.

        Args:
            expire: seconds, or a ``timedelta``, from now.

        Raises:
            LockLost: the lock isn't held any more.
            LockBackendError: the store can't be reached; the lease is unchanged.
            ValueError: ``expire`` isn't a duration.

        Example::

            grant.extend(120)  # a step without renewal may take two minutes
        """
        lease = lease_ms(expire)
        self._check()
        self.lock.extend_grant(self, lease)

    async def aextend(self, expire: Duration) -> None:
        """Extend the lease to ``expire`` from now, in an event loop; it is never shortened. One round trip.

        Args:
            expire: seconds, or a ``timedelta``, from now.

        Raises:
            LockLost: the lock isn't held any more.
            LockBackendError: the store can't be reached; the lease is unchanged.
            ValueError: ``expire`` isn't a duration.
        """
        lease = lease_ms(expire)
        self._check()
        await self.lock.aextend_grant(self, lease)

    def ensure_held(self, confirm: bool = False) -> None:
        """Raise unless the lock is still held by this grant.

        Args:
            confirm: send a request as well, one round trip. Otherwise the check is local.

        Raises:
            LockLost: released, lost, or taken away.
            LockBackendError: there never was a lock (``ON_BACKEND_ERROR`` "open"), or the store can't be reached.
        """
        self._check()
        if confirm:
            self.lock.extend_grant(self, 1)  # no step shortens a lease, so this one only checks

    async def aensure_held(self, confirm: bool = False) -> None:
        """Raise unless the lock is still held by this grant, in an event loop.

        Args:
            confirm: send a request as well, one round trip. Otherwise the check is local.

        Raises:
            LockLost: released, lost, or taken away.
            LockBackendError: there never was a lock (``ON_BACKEND_ERROR`` "open"), or the store can't be reached.
        """
        self._check()
        if confirm:
            await self.lock.aextend_grant(self, 1)

    def release(self) -> None:
        """Release the grant; the last of several re-entries frees the lock. A second call has no effect.

        Raises:
            SynchronousOnlyOperation: called in a running event loop; the lock stays held. Use ``arelease()``.
            LockLost: the lock wasn't held any more.
            LockBackendError: the store can't be reached. The release is repeated in the background until the lease
                ends.
        """
        try:
            loop = running_loop()
            if loop is not None and not self.released:
                self.lock.performer.may_block()
            self.lock.release_grant(self, loop)
        except SynchronousOnlyOperation:
            raise
        except BaseException as failure:
            self.lock.clean_up_release(self, failure)
            raise

    async def arelease(self) -> None:
        """Release the grant, in an event loop; the last of several re-entries frees the lock. A second call has no
        effect.

        Raises:
            LockLost: the lock wasn't held any more.
            LockBackendError: the store can't be reached. The release is repeated in the background until the lease
                ends.
        """
        try:
            await self.lock.arelease_grant(self)
        except BaseException as failure:
            self.lock.clean_up_release(self, failure)
            raise

    def detach(self, expire: Duration | None = None) -> str:
        """Detach the hold from this process, so that another process, a Celery task or a later request can continue it
        under the same fence, by ``locks.attach(text)``. The lock stays held; this grant counts as released. One round
        trip.

        Args:
            expire: the lease of the journey, in seconds or as a ``timedelta``, which no process renews. By default the
                lease of the lock, in full from now. It isn't shorter than what is left of the lease.

        Returns:
            A text for one ``attach`` within this lease. Any process that has it can take the lock over.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``adetach()``.
            LockAlreadyHeld: the lock was entered several times: only the last grant can be detached.
            LockLost: the lock isn't held any more.
            LockBackendError: the store can't be reached. The lock stays held here, and may be detached again.
            TypeError: the lock has ``auto_release=False``, or ``hold="transaction"``.
            ValueError: ``expire`` isn't a duration.
            InvalidLockBackend: the store of the alias has no detached holds.

        Example::

            grant = locks.lock(f"export:{pk}").acquire()
            transaction.on_commit(lambda: export.delay(pk, grant.detach(expire=3600)))
        """
        if running_loop() is not None:
            self.lock.performer.may_block()
        self._check()
        return self.lock.detach_grant(self, expire)

    async def adetach(self, expire: Duration | None = None) -> str:
        """Detach the hold from this process, so that another process, a Celery task or a later request can continue it
        under the same fence, by ``locks.attach(text)``. The lock stays held; this grant counts as released. One round
        trip.

        Args:
            expire: the lease of the journey, in seconds or as a ``timedelta``, which no process renews. By default the
                lease of the lock, in full from now. It isn't shorter than what is left of the lease.

        Returns:
            A text for one ``attach`` within this lease. Any process that has it can take the lock over.

        Raises:
            LockAlreadyHeld: the lock was entered several times: only the last grant can be detached.
            LockLost: the lock isn't held any more.
            LockBackendError: the store can't be reached. The lock stays held here, and may be detached again.
            TypeError: the lock has ``auto_release=False``, or ``hold="transaction"``.
            ValueError: ``expire`` isn't a duration.
            InvalidLockBackend: the store of the alias has no detached holds.
        """
        self._check()
        return await self.lock.adetach_grant(self, expire)

    def __enter__(self) -> Self:
        """Begin a block that releases the grant at its end.

        Returns:
            The grant.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``async with``.
            LockLost: the lock was released or lost before.
            LockAlreadyHeld: another block has this grant.
            TypeError: the lock has ``auto_release=False``.
        """
        if running_loop() is not None:  # raise now, because the release at the end of the block would raise
            self.lock.performer.may_block()
        self._begin_block()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Release the grant at the end of a block. An exception of the block is never replaced; a store that can't be
        reached is logged, and the release is repeated in the background.

        Raises:
            LockLost: the lock wasn't held any more, and the block raised nothing.
        """
        self._block = 0  # contexts that were copied inside of the block still have its entry
        try:
            self.lock.release_grant(self, running_loop())
        except LockError as failure:
            self.lock.clean_up_release(self, failure)
            self._at_exit(failure, error)
        except BaseException as failure:
            self.lock.clean_up_release(self, failure)
            raise

    async def __aenter__(self) -> Self:
        """Begin a block that releases the grant at its end.

        Returns:
            The grant.

        Raises:
            LockLost: the lock was released or lost before.
            LockAlreadyHeld: another block has this grant.
            TypeError: the lock has ``auto_release=False``.
        """
        self._begin_block()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the grant at the end of a block. An exception of the block is never replaced; a store that can't be
        reached is logged, and the release is repeated in the background.

        Raises:
            LockLost: the lock wasn't held any more, and the block raised nothing.
        """
        self._block = 0  # contexts that were copied inside of the block still have its entry
        try:
            await self.lock.arelease_grant(self)
        except LockError as failure:
            self.lock.clean_up_release(self, failure)
            self._at_exit(failure, error)
        except BaseException as failure:
            self.lock.clean_up_release(self, failure)
            raise

    def _begin_block(self) -> None:
        """Begin a ``with`` block.

        Raises:
            LockLost: the grant was released, or lost: the block would run without the lock.
            LockAlreadyHeld: another block has this grant, and would lose the lock at the end of this one.
            TypeError: its lock has ``auto_release=False``.
        """
        if self.protected or self.released:
            self._check()
        self.lock.check_block()
        with Hold.mutex.rlock:
            begins, self._block = not self._block, 1
        if not begins:
            raise LockAlreadyHeld(
                f"lock {self.name!r}: another block has this grant, and releases it. To enter a lock twice, use an rlock",
                key=self.key,
                name=self.name,
                alias=self.alias,
            )

    def _at_exit(self, failure: LockError, error: BaseException | None) -> None:
        """Handle a failed release at the end of a block. The block's own exception is never masked, and an unreachable
        store is only logged: the block was protected, and the release is repeated in the background."""
        if isinstance(failure, LockBackendError):
            events.emit(events.BackendFailed(self.key, self.name, self.alias, "release", str(failure)))
        elif error is None:
            raise failure
