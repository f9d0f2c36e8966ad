"""The public methods of a lock: each method that may do I/O is followed by its asynchronous ``a`` twin.

A lock object is immutable, cheap, and shared between threads and tasks; ``acquire`` returns a ``Grant``.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Never, overload

from ...core import events, owners
from ...core.arguments import refuse_unknown
from ...core.durations import Duration
from ...core.errors import LockNotOwned
from ...core.grant import Grant
from ...core.registry import end_block, registry
from ...core.runner import arun, run
from .lock_object import LockObject

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.holder import Holder


_get_frame = sys._getframe
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""A block of a generator may end in another thread or task than it began in. It is known by its frame, which lives as
long as the block; all others are alike."""

_ARGUMENTS = ("blocking", "timeout")


class BaseLock(LockObject):
    """The public methods of a lock. Times are seconds or a ``timedelta``; None is the default, -1 for ever."""

    __slots__ = ()

    @overload
    def acquire(self) -> Grant: ...
    @overload
    def acquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None: ...
    def acquire(self, blocking: bool = True, timeout: Duration | None = None, **unknown: Never) -> Grant | None:
        """Acquire the lock for the calling thread.

        Without arguments it waits as long as the lock's ``wait`` option says and raises when that time is over, so that
        a bare ``acquire()`` never runs a section unlocked. With ``blocking=False`` or a ``timeout`` it returns None
        instead. The deadline bounds the waiting; one attempt in flight may take up to the socket timeout.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.

        Returns:
            A ``Grant``, which is true, or None.

        Raises:
            SynchronousOnlyOperation: called in a running event loop. Use ``aacquire()``.
            LockNotAcquired: the default wait is over.
            LockAlreadyHeld: the caller holds the lock, or would wait for itself.
            LockLost: re-entry into a lock that is lost.
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: something else lives under the key.
            ValueError: ``timeout`` with ``blocking=False``, or not a length of time.

        Example::

            grant = lock.acquire(timeout=5)
            if grant:
                with grant:
                    ...
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        request = self._new_request(blocking, timeout, None)
        if request is None:
            return None
        try:
            return self._acquire(request)
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    @overload
    async def aacquire(self) -> Grant: ...
    @overload
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None) -> Grant | None: ...
    async def aacquire(self, blocking: bool = True, timeout: Duration | None = None, **unknown: Never) -> Grant | None:
        """Acquire the lock for the running task.

        Without arguments it waits as long as the lock's ``wait`` option says and raises when that time is over, so that
        a bare ``aacquire()`` never runs a section unlocked. With ``blocking=False`` or a ``timeout`` it returns None
        instead. The deadline bounds the waiting; one attempt in flight may take up to the socket timeout.

        Args:
            blocking: False makes exactly one attempt.
            timeout: seconds to wait; 0 makes exactly one attempt, -1 waits for ever.

        Returns:
            A ``Grant``, which is true, or None.

        Raises:
            LockNotAcquired: the default wait is over.
            LockAlreadyHeld: the caller holds the lock, or would wait for itself.
            LockLost: re-entry into a lock that is lost.
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: something else lives under the key.
            ValueError: ``timeout`` with ``blocking=False``, or not a length of time.
        """
        if unknown:
            refuse_unknown(unknown, "acquire()", _ARGUMENTS)
        request = self._new_request(blocking, timeout, owners.running_loop())
        if request is None:
            return None
        try:
            return await self._aacquire(request)
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    def release(self) -> None:
        """Release the caller's newest grant of this lock.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.release()``.
            LockLost: the lock was lost before.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        self._newest_grant().release()

    async def arelease(self) -> None:
        """Release the newest grant that the running task has of this lock.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.arelease()``.
            LockLost: the lock was lost before.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        await self._newest_grant().arelease()

    def locked(self) -> bool:
        """Return whether the lock is held, by any holder. One round trip; the answer may be outdated when it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no lock.
        """
        return self.holder() is not None

    async def alocked(self) -> bool:
        """Return whether the lock is held, by any holder. One round trip; the answer may be outdated when it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no lock.
        """
        return await self.aholder() is not None

    def owned(self) -> bool:
        """Return whether the caller holds the lock, as far as this process knows; no request is sent."""
        newest = registry.newest(self.lock_id)
        return newest is not None and newest.held

    def holder(self) -> Holder | None:
        """Return the holder of the lock, or None if it is free. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no lock.
        """
        return run(self.inspecting(), self.performer)

    async def aholder(self) -> Holder | None:
        """Return the holder of the lock, or None if it is free. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no lock.
        """
        return await arun(self.inspecting(), self.performer)

    def force_release(self, reason: str = "", fence: int | None = None, actor: str = "") -> bool:
        """Free the lock, regardless of its holder. The holder continues until it notices the loss; its fence protects
        the resources that it writes to.

        Args:
            reason: for the log and the signal.
            fence: free only the hold with this fence, not a later one.
            actor: the user or program that does it, for the signal.

        Returns:
            True if there was a lock to free, also if a reply was lost on the way.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            ValueError: ``fence`` is no int.
        """
        return self._report_forced(run(self.force_releasing(fence), self.performer), reason, actor)

    async def aforce_release(self, reason: str = "", fence: int | None = None, actor: str = "") -> bool:
        """Free the lock, regardless of its holder. The holder continues until it notices the loss; its fence protects
        the resources that it writes to.

        Args:
            reason: for the log and the signal.
            fence: free only the hold with this fence, not a later one.
            actor: the user or program that does it, for the signal.

        Returns:
            True if there was a lock to free, also if a reply was lost on the way.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            ValueError: ``fence`` is no int.
        """
        return self._report_forced(await arun(self.force_releasing(fence), self.performer), reason, actor)

    # An exception may strike between any two instructions: a signal handler's. What a block holds then ends with it.

    def __enter__(self) -> Grant:
        """Acquire the lock for a block, as ``acquire()`` without arguments does.

        Returns:
            The grant.

        Raises:
            LockError: as ``acquire()``.
            TypeError: the lock has ``auto_release=False``.
        """
        if not self.options.auto_release:
            self.check_block()
        request = self._new_request(True, None, None)
        frame = _get_frame(1)
        request.block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
        del frame  # a task that waits would be in a cycle with it
        try:
            grant = self._acquire(request)
            assert grant is not None  # noqa: S101 - this request raises
            return grant
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Release the lock at the end of a block. An exception of the block is never replaced; a store that can't be
        reached is logged, and the release is repeated in the background.

        Raises:
            LockLost: the lock was lost while the block ran, and the block raised nothing.
            LockNotOwned: the block was left in another thread or task.
        """
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
        """Acquire the lock for a block, as ``aacquire()`` without arguments does.

        Returns:
            The grant.

        Raises:
            LockError: as ``aacquire()``.
            TypeError: the lock has ``auto_release=False``.
        """
        if not self.options.auto_release:
            self.check_block()
        request = self._new_request(True, None, owners.running_loop())
        frame = _get_frame(1)
        request.block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
        del frame  # a task that waits would be in a cycle with it
        try:
            grant = await self._aacquire(request)
            assert grant is not None  # noqa: S101 - this request raises
            return grant
        except BaseException as failure:  # noqa: BLE001 - raised again
            return self._handle_failure(request, failure)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the lock at the end of a block. An exception of the block is never replaced; a store that can't be
        reached is logged, and the release is repeated in the background.

        Raises:
            LockLost: the lock was lost while the block ran, and the block raised nothing.
            LockNotOwned: the block was left in another thread or task.
        """
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
                **self.error_context,
            )
        return grant

    def _report_forced(self, freed: bool, reason: str, actor: str) -> bool:
        if freed:
            events.emit(events.ForceReleased(self.key, self.name, self.alias, reason, actor))
        return freed
