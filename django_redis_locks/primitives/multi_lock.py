"""``MultiLock``: several locks that are acquired all or none. Its programs are in ``shared/multi_acquire`` and
``shared/multi_release``."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Never, NoReturn, overload

from ..core.arguments import refuse_unknown
from ..core.durations import Duration
from ..core.errors import LockNotOwned
from ..core.multi_grant import MultiGrant
from ..core.owners import running_loop
from ..core.registry import end_block, registry
from ..core.runner import arun, run
from .shared import release
from .shared.extend import extending
from .shared.multi_acquire import acquiring_all, grant_all, new_request, undo_all
from .shared.multi_effects import PERFORMER, RunAt
from .shared.multi_release import releasing_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType

    from ..core.commands import Program
    from ..core.effects import Performer
    from ..core.grant import Grant
    from .shared.base_lock import BaseLock

_get_frame = sys._getframe
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

_ARGUMENTS = ("blocking", "timeout")


class MultiLock:
    """Several locks that are acquired and released together: all or none. ``locks.multi_lock()`` makes one.

    A caller that waits for one of them keeps none of the others, so that callers with other orders can't cause a deadlock.
    The price is that it may wait longer than callers of single locks, if all of its locks are always in use.

    Locks with one holder, of one alias, are acquired by one command and released by another one; on a Cluster those of
    one bucket. Other locks are acquired one by one, in an order that is the same for all callers.

    Example::

        with locks.multi_lock("account:1", "account:2", wait=5) as grant:
            transfer(1, 2, fences=grant.fences)

        async with locks.multi_lock(locks.rwlock("prices").read, "order:7"):
            await acharge(7)
    """

    __slots__ = ("_cancels", "_members", "_wait")

    def __init__(self, members: Sequence[BaseLock], wait: float, cancels: bool) -> None:
        self._members = tuple(members)
        self._wait = wait
        self._cancels = cancels

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the locks, in the order in which they are attempted."""
        return tuple(member.key for member in self._members)

    def __repr__(self) -> str:
        names = dict.fromkeys(member.name for member in self._members)
        return f"<MultiLock of {len(self._members)} locks: {', '.join(names)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lock can't be pickled: pass its keys, and call locks.multi_lock(*keys) in the other process")

    @overload
    def acquire(self) -> MultiGrant: ...
    @overload
    def acquire(self, blocking: bool = True, timeout: Duration | None = None) -> MultiGrant | None: ...
    def acquire(self, blocking: bool = True, timeout: Duration | None = None, **unknown: Never) -> MultiGrant | None:
        """Acquire all locks for the calling thread, or none of them.

        Without arguments it waits as long as the ``wait`` option says and raises when that time is over. With
        ``blocking=False`` or a ``timeout`` it returns None instead. The time is that of all locks together.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.

        Returns:
            A ``MultiGrant``, which is true, or None.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``aacquire()``.
            LockNotAcquired: the default wait is over. The error is that of the lock that was busy.
            LockAlreadyHeld: the caller holds one of the locks, or would wait for itself. None was acquired.
            LockLost: re-entry into a lock that is lost.
            LockBackendError: a store can't be reached, or refuses.
            LockKeyError: something else lives under one of the keys.
            ValueError: ``timeout`` with ``blocking=False``, or not a length of time.

        Example::

            grant = locks.multi_lock("account:1", "account:2").acquire(timeout=5)
            if grant:
                with grant:
                    ...
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        return self._acquire(blocking, timeout, 0)

    @overload
    async def aacquire(self) -> MultiGrant: ...
    @overload
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None) -> MultiGrant | None: ...
    async def aacquire(
        self, blocking: bool = True, timeout: Duration | None = None, **unknown: Never
    ) -> MultiGrant | None:
        """Acquire all locks for the running task, or none of them.

        Without arguments it waits as long as the ``wait`` option says and raises when that time is over. With
        ``blocking=False`` or a ``timeout`` it returns None instead. The time is that of all locks together.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.

        Returns:
            A ``MultiGrant``, which is true, or None.

        Raises:
            LockNotAcquired: the default wait is over. The error is that of the lock that was busy.
            LockAlreadyHeld: the caller holds one of the locks, or would wait for itself. None was acquired.
            LockLost: re-entry into a lock that is lost.
            LockBackendError: a store can't be reached, or refuses.
            LockKeyError: something else lives under one of the keys.
            ValueError: ``timeout`` with ``blocking=False``, or not a length of time.
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        return await self._aacquire(blocking, timeout, 0)

    def _acquire(self, blocking: bool, timeout: Duration | None, block: int) -> MultiGrant | None:
        if self._cancels:
            raise ValueError('on_lost="cancel" cancels a task: acquire the locks with aacquire() or "async with"')
        request = new_request(self._members, self._wait, blocking, timeout, None)
        try:
            if request is None:
                return None
            return grant_all(self, request, run(acquiring_all(request), PERFORMER), block)
        except BaseException as failure:  # noqa: BLE001 - raised again
            return undo_all(self, request, failure, block)

    async def _aacquire(self, blocking: bool, timeout: Duration | None, block: int) -> MultiGrant | None:
        request = new_request(self._members, self._wait, blocking, timeout, running_loop())
        try:
            if request is None:
                return None
            return grant_all(self, request, await arun(acquiring_all(request), PERFORMER), block)
        except BaseException as failure:  # noqa: BLE001 - raised again
            return undo_all(self, request, failure, block)

    def release(self) -> None:
        """Release the caller's newest grant of these locks.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.release()``.
            LockLost: a lock was lost before.
            LockBackendError: a store can't be reached. The release goes on in the background until the lease ends.
        """
        self._newest_grant().release()

    async def arelease(self) -> None:
        """Release the newest grant that the running task has of these locks.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.arelease()``.
            LockLost: a lock was lost before.
            LockBackendError: a store can't be reached. The release goes on in the background until the lease ends.
        """
        await self._newest_grant().arelease()

    def owned(self) -> bool:
        """Return whether the caller holds all of the locks, as far as this process knows; no request is sent."""
        return all(member.owned() for member in self._members)

    def _newest_grant(self) -> MultiGrant:
        first = self._members[0]
        grant = registry.newest(first.lock_id, first.role)
        whole = None if grant is None else grant.whole
        if isinstance(whole, MultiGrant) and whole.grants.keys() == set(self.keys):
            return whole
        raise LockNotOwned(
            f"{self!r} isn't held by this thread or task. "
            "What another one acquired is released by its grant: grant.release()",
            **first.spec.error_context,
        )

    # Blocks

    def __enter__(self) -> MultiGrant:
        """Acquire all locks for a block, as ``acquire()`` without arguments does.

        Returns:
            The grant.

        Raises:
            LockError: as ``acquire()``.
        """
        return self._acquire(True, None, _block_of(_get_frame(1)))  # type: ignore[return-value]  # it raises if one is busy

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Release all locks at the end of a block. An exception of the block is never replaced; a store that can't be
        reached is logged, and the release is repeated in the background.

        Raises:
            LockLost: a lock was lost while the block ran, and the block raised nothing.
            LockNotOwned: the block was left in another thread or task.
        """
        try:
            grant = self._end_block(error, _block_of(_get_frame(1)))
            if grant is not None:
                grant.__exit__(kind, error, tb)
        except BaseException as failure:
            self._clean_up_block(failure)
            raise

    async def __aenter__(self) -> MultiGrant:
        """Acquire all locks for a block, as ``aacquire()`` without arguments does.

        Returns:
            The grant.

        Raises:
            LockError: as ``aacquire()``.
        """
        return await self._aacquire(True, None, _block_of(_get_frame(1)))  # type: ignore[return-value]  # see __enter__

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release all locks at the end of a block. An exception of the block is never replaced; a store that can't be
        reached is logged, and the release is repeated in the background.

        Raises:
            LockLost: a lock was lost while the block ran, and the block raised nothing.
            LockNotOwned: the block was left in another thread or task.
        """
        try:
            grant = self._end_block(error, _block_of(_get_frame(1)))
            if grant is not None:
                await grant.__aexit__(kind, error, tb)
        except BaseException as failure:
            self._clean_up_block(failure)
            raise

    def _end_block(self, error: BaseException | None, block: int) -> Grant | None:
        """Return the grant that a block began with. As ``BaseLock.__exit__`` for each lock."""
        ended = [
            end_block(member, block) or release.grant_of_block(member, error, block)
            for member in reversed(self._members)
        ]
        found = [grant for grant in ended if grant is not None]
        return found[0].whole if found else None

    def _clean_up_block(self, failure: BaseException) -> None:
        for member in self._members:
            release.clean_up_block(member, None, failure)

    # What its grants call

    @property
    def performer(self) -> Performer:
        """The engine of one of the locks."""
        return self._members[0].performer

    def check_block(self) -> None:
        """Do nothing: all of these locks can be released at the end of a block."""

    def release_grant(self, grant: MultiGrant, loop: object) -> None:
        """Release the grants of all locks."""
        run(releasing_all(_newest_first(grant), loop), PERFORMER)

    async def arelease_grant(self, grant: MultiGrant) -> None:
        """Release the grants of all locks, in a running event loop."""
        await arun(releasing_all(_newest_first(grant), running_loop()), PERFORMER)

    def clean_up_release(self, grant: MultiGrant, failure: BaseException) -> None:
        """Have the maintenance thread end a release that an exception has interrupted."""
        for each in grant.grants.values():
            each.lock.clean_up_release(each, failure)

    def extend_grant(self, grant: MultiGrant, lease: int) -> None:
        """Let the leases of all locks end ``lease`` milliseconds from now, or later if they did anyway."""
        run(_extending_all(grant, lease), PERFORMER)

    async def aextend_grant(self, grant: MultiGrant, lease: int) -> None:
        """Let the leases of all locks end ``lease`` milliseconds from now, or later if they did anyway; in a running event
        loop."""
        await arun(_extending_all(grant, lease), PERFORMER)

    def detach_grant(self, grant: MultiGrant, expire: Duration | None) -> NoReturn:
        """
        Raises:
            TypeError: always.
        """
        raise TypeError("a grant of several locks can't be detached: acquire them in the other process")

    async def adetach_grant(self, grant: MultiGrant, expire: Duration | None) -> NoReturn:
        """
        Raises:
            TypeError: always.
        """
        self.detach_grant(grant, expire)


def _block_of(frame: FrameType) -> int:
    """Return the id of a block in this frame, as ``BaseLock.__enter__`` does."""
    return id(frame) if frame.f_code.co_flags & _GENERATOR else 1


def _newest_first(grant: MultiGrant) -> list[Grant]:
    return list(grant.grants.values())[::-1]


def _extending_all(grant: MultiGrant, lease: int) -> Program[None]:
    for each in grant.grants.values():
        lock: BaseLock = each.lock  # type: ignore[assignment]
        yield from RunAt(extending(lock.spec, each.hold, lease), lock.performer)
