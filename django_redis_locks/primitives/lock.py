"""``Lock``: the lock object. Each method that may do I/O is followed by its asynchronous ``a`` twin.

``acquire`` and ``release`` are in ``shared/acquire`` and ``shared/release``; what they send is in ``LockSpec.steps``.
``rlock`` is the same lock: re-entries are counted in the process, so that both kinds exclude each other and use the same
steps in the store.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Never, overload

from ..core import events
from ..core.arguments import refuse_unknown
from ..core.durations import Duration
from ..core.grant import Grant
from ..core.registry import end_block, registry
from ..core.runner import arun, run
from .shared import detach, extend, release
from .shared.acquire import aacquire, acquire
from .shared.inspect_programs import force_releasing, inspecting
from .shared.lock_object import LockObject

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ..core.commands import Command
    from ..core.hold import Hold
    from ..core.holder import Holder


_get_frame = sys._getframe
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""A block of a generator may end in another thread or task than it began in. It is known by its frame, which lives as
long as the block; all others are alike."""

_ARGUMENTS = ("blocking", "timeout")


class Lock(LockObject):
    """A mutex with owner-only release, renewal, fencing token and loss notice. ``locks.lock()`` makes one.

    It isn't re-entrant unless ``locks.rlock()`` made it: a second acquire by its owner raises ``LockAlreadyHeld``. A
    lock is immutable and cheap, and may be shared by threads and tasks; what one of them holds is its ``Grant``. Each
    method that may block has an asynchronous twin with the prefix ``a``.

    Example::

        with locks.lock("order:7", wait=5) as grant:
            charge(7, fence=grant.fence)

        async with locks.lock("order:7"):
            await acharge(7)

        grant = locks.lock("report").acquire(blocking=False)
        if grant is None:
            print("it is being made already, by", locks.lock("report").holder())
    """

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
    extend_hold = extend.extend_hold
    aextend_hold = extend.aextend_hold

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
        newest = registry.newest(self.spec.lock_id)
        return newest is not None and newest.held

    def holder(self) -> Holder | None:
        """Return the holder of the lock, or None if it is free. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no lock.
        """
        return run(inspecting(self.spec), self.spec.performer)

    async def aholder(self) -> Holder | None:
        """Return the holder of the lock, or None if it is free. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value that is no lock.
        """
        return await arun(inspecting(self.spec), self.spec.performer)

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
        return _report_forced(self, run(force_releasing(self.spec, fence), self.spec.performer), reason, actor)

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
        return _report_forced(self, await arun(force_releasing(self.spec, fence), self.spec.performer), reason, actor)

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

    def release_command(self, hold: Hold) -> Command[int]:
        """Return the command that frees the lock of a hold."""
        return self.spec.steps.release(hold.token)

    def adopt_command(self, hold: Hold) -> Callable[[str, int], Command[bool]]:
        """Return a function that makes the first renewal of an adopted lock, as ``LockSteps.adopt``."""
        return self.spec.steps.adopt(hold)

    def may_reenter(self, grant: Grant, loop: object) -> bool:
        """Return whether the owner of this grant may acquire the lock once more, in this loop or thread."""
        return self.reentrant


def _report_forced(lock: Lock, freed: bool, reason: str, actor: str) -> bool:
    if freed:
        events.emit(events.ForceReleased(lock.key, lock.name, lock.alias, reason, actor))
    return freed
