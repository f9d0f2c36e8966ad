"""``BaseLock``: the methods that all kinds of locks have. Each method that may do I/O is followed by its asynchronous ``a``
twin.

``acquire`` and ``release`` are in the modules of that name; what they send is in ``LockSpec.steps``.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Never, overload

from ...core import events
from ...core.arguments import refuse_unknown
from ...core.durations import Duration
from ...core.grant import Grant
from ...core.registry import end_block, registry
from . import detach, extend, release
from .acquire import aacquire, acquire
from .lock_object import LockObject

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ...core.commands import Command
    from ...core.hold import Hold


_get_frame = sys._getframe
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""A block of a generator may end in another thread or task than it began in. It is known by its frame, which lives as
long as the block; all others are alike."""

_ARGUMENTS = ("blocking", "timeout")


class BaseLock(LockObject):
    """What all kinds of locks have: acquire and release, blocks, and grants."""

    __slots__ = ()

    # What its grants call
    release_grant = release.release_grant
    arelease_grant = release.arelease_grant
    clean_up_release = release.clean_up_release
    release_in_background = release.release_in_background
    leave_grant = release.leave_grant
    aleave_grant = release.aleave_grant
    detach_grant = detach.detach_grant
    adetach_grant = detach.adetach_grant
    extend_grant = extend.extend_grant
    aextend_grant = extend.aextend_grant

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
        return acquire(self, blocking, timeout)

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
        return await aacquire(self, blocking, timeout)

    def release(self) -> None:
        """Release the caller's newest grant of this lock.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.release()``.
            LockLost: the lock was lost before.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        release.newest_grant(self).release()

    async def arelease(self) -> None:
        """Release the newest grant that the running task has of this lock.

        Raises:
            LockNotOwned: the caller has none; a grant of another thread or task is released by ``grant.arelease()``.
            LockLost: the lock was lost before.
            LockBackendError: the store can't be reached. The release goes on in the background until the lease ends.
        """
        await release.newest_grant(self).arelease()

    def owned(self) -> bool:
        """Return whether the caller holds the lock, as far as this process knows; no request is sent."""
        newest = registry.newest(self.spec.lock_id, self.spec.steps.role)
        return newest is not None and newest.held

    # An exception may strike between any two instructions: a signal handler's. What a block holds then ends with it.

    def __enter__(self) -> Grant:
        """Acquire the lock for a block, as ``acquire()`` without arguments does.

        Returns:
            The grant.

        Raises:
            LockError: as ``acquire()``.
            TypeError: the lock has ``auto_release=False``.
        """
        if not self.spec.options.auto_release:
            self.check_block()
        frame = _get_frame(1)
        block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
        del frame  # a task that waits would be in a cycle with it
        return acquire(self, True, None, block)

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
            grant = end_block(self, block) or release.grant_of_block(self, error, block)
            if grant is not None:
                grant.__exit__(kind, error, tb)
        except BaseException as failure:
            release.clean_up_block(self, grant, failure)
            raise

    async def __aenter__(self) -> Grant:
        """Acquire the lock for a block, as ``aacquire()`` without arguments does.

        Returns:
            The grant.

        Raises:
            LockError: as ``aacquire()``.
            TypeError: the lock has ``auto_release=False``.
        """
        if not self.spec.options.auto_release:
            self.check_block()
        frame = _get_frame(1)
        block = id(frame) if frame.f_code.co_flags & _GENERATOR else 1
        del frame  # a task that waits would be in a cycle with it
        return await aacquire(self, True, None, block)

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
            grant = end_block(self, block) or release.grant_of_block(self, error, block)
            if grant is not None:
                await grant.__aexit__(kind, error, tb)
        except BaseException as failure:
            release.clean_up_block(self, grant, failure)
            raise

    def release_commands(self, hold: Hold) -> list[Command[int]]:
        """Return the commands that free the lock of a hold, also after an attempt to detach it."""
        return [self.spec.steps.release(token) for token in (hold.token, hold.detached_token) if token]

    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]:
        """Return a function that makes the first renewal of an adopted lock, as ``LockSteps.adopt``."""
        return self.spec.adopt_command(hold)

    def _report_forced(self, freed: bool, reason: str, actor: str) -> bool:
        if freed:
            events.emit(events.ForceReleased(self.key, self.name, self.alias, reason, actor))
        return freed

    why_not_reentered = ""

    def may_reenter(self, grant: Grant, loop: object) -> bool:
        """Return whether the owner of this grant may acquire the lock once more, in this loop or thread."""
        return self.reentrant

    def waits_for(self, hold: Hold) -> bool:
        """Return whether an acquire waits for the end of this hold of another context of the caller."""
        return True
