"""Grants: the handles that ``acquire`` returns."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, Self, TypeAlias

from . import clock, events
from .durations import Duration, lease_ms
from .errors import LockAlreadyHeld, LockBackendError, LockError, LockLost
from .hold import Hold, State, no_grant
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
    def performer(self) -> Performer: ...
    def release_grant(self, grant: Grant, loop: object, /) -> None: ...
    async def arelease_grant(self, grant: Grant, /) -> None: ...
    def check_block(self) -> None: ...
    def clean_up_release(self, grant: Grant, failure: BaseException) -> None: ...
    def extend_hold(self, hold: Hold, lease: int) -> None: ...
    async def aextend_hold(self, hold: Hold, lease: int) -> None: ...
    def release_in_background(self, grant: Grant) -> None: ...
    def leave_grant(self, grant: Grant) -> None: ...
    async def aleave_grant(self, grant: Grant) -> None: ...
    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]: ...


class Grant:
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

    __slots__ = ("__weakref__", "_block", "hold", "id", "lock")

    deferred = False
    """Whether it keeps the lock after the caller has released it."""

    def waits_for_transaction(self) -> bool:
        """Return whether a deferred grant keeps the lock for an open transaction of the calling thread."""
        return False

    def __init__(self, hold: Hold, keeper: GrantedLock, id: int, block: int = 0) -> None:
        self.hold = hold
        self.id = id
        self.lock = keeper
        self._block = block
        if hold.grant is no_grant:
            hold.grant = weakref.ref(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a grant can't be pickled, because it belongs to its process. Pass its key, or its fence")

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost else "held" if self.protected else "unprotected"
        return f"<Grant {self.name!r} fence={self.fence} {state}>"

    @property
    def key(self) -> str:
        """The key of the lock."""
        return self.hold.key

    @property
    def name(self) -> str:
        """The name of the lock: its label in settings, messages and metrics."""
        return self.hold.name

    @property
    def alias(self) -> str:
        """The alias in ``REDIS_LOCKS``."""
        return self.hold.alias

    @property
    def fence(self) -> int | None:
        """The fencing token, or None if the grant isn't ``protected``. It grows with every hold of the key."""
        return self.hold.fence

    @property
    def held(self) -> bool:
        """Whether the lock is held by this grant now, as far as this process knows: neither released nor lost."""
        return not self.released and self.hold.live

    @property
    def protected(self) -> bool:
        """False if the store was down and ``ON_BACKEND_ERROR`` is "open": the section runs without a lock."""
        return self.hold.fence is not None

    @property
    def released(self) -> bool:
        """Whether the grant was released, or is being released."""
        return self.id not in self.hold.open_grants

    @property
    def lost(self) -> bool:
        """Whether the lock was lost before its release, as far as this process knows, without a request. In a forked
        child always True."""
        hold = self.hold
        if hold.inherited_by_fork:
            return True
        return hold.loss_reason is not None or (hold.held and clock.now() >= hold.deadline)

    def remaining(self) -> float:
        """Return the seconds until the lease ends, by this process's clock; 0.0 if the lock is lost or released."""
        if not self.held:
            return 0.0
        return max(0.0, self.hold.deadline - clock.now())

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
        self.lock.extend_hold(self.hold, lease)

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
        await self.lock.aextend_hold(self.hold, lease)

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
            self.lock.extend_hold(self.hold, 1)  # no step shortens a lease, so this one only checks

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
            await self.lock.aextend_hold(self.hold, 1)

    def release(self) -> None:
        """Release the grant; the last of several re-entries frees the lock. A second call has no effect.

        Raises:
            SynchronousOnlyOperation: called in a running event loop; the lock stays held. Use ``arelease()``.
            LockLost: the lock wasn't held any more.
            LockBackendError: the store can't be reached. The release is repeated in the background until the lease
                ends.
        """
        if (loop := running_loop()) is not None and not self.released:  # one line: no handler is active yet
            self.lock.performer.may_block()
        try:
            self.lock.release_grant(self, loop)
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

    def _check(self) -> None:
        hold = self.hold
        error_context: dict[str, Any] = {"key": hold.key, "name": hold.name, "alias": hold.alias}
        if not self.protected and not self.released:
            raise LockBackendError("the store was down when this section began: there is no lock", **error_context)
        if not self.held:
            if hold.loss_reason is not None:
                why = hold.loss_reason
            elif hold.inherited_by_fork:
                why = "this process was forked from its holder"
            else:
                why = "released" if self.released or hold.state is not State.HELD else "expired"
            raise LockLost(f"lock {hold.name!r} isn't held any more: {why}", **error_context)

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
        self.exit_block(error)

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
        await self.aexit_block(error)

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
        with self.hold.mutex.rlock:
            begins, self._block = not self._block, 1
        if not begins:
            raise LockAlreadyHeld(
                f"lock {self.name!r}: another block has this grant, and releases it. To enter a lock twice, use an rlock",
                key=self.key,
                name=self.name,
                alias=self.alias,
            )

    def exit_block(self, error: BaseException | None) -> None:
        """End a ``with`` block that may have raised ``error``."""
        self._block = 0  # contexts that were copied inside of the block still have its entry
        try:
            self.lock.release_grant(self, running_loop())
        except LockError as failure:
            self.lock.clean_up_release(self, failure)
            self._at_exit(failure, error)
        except BaseException as failure:
            self.lock.clean_up_release(self, failure)
            raise

    async def aexit_block(self, error: BaseException | None) -> None:
        """End an ``async with`` block that may have raised ``error``."""
        self._block = 0  # contexts that were copied inside of the block still have its entry
        try:
            await self.lock.arelease_grant(self)
        except LockError as failure:
            self.lock.clean_up_release(self, failure)
            self._at_exit(failure, error)
        except BaseException as failure:
            self.lock.clean_up_release(self, failure)
            raise

    def _at_exit(self, failure: LockError, error: BaseException | None) -> None:
        """Handle a failed release at the end of a block. The block's own exception is never masked, and an unreachable
        store is only logged: the block was protected, and the release is repeated in the background."""
        if isinstance(failure, LockBackendError):
            events.emit(events.BackendFailed(self.key, self.name, self.alias, "release", str(failure)))
        elif error is None:
            raise failure
