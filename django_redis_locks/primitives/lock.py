"""``Lock``: the mutex. Its steps are in ``shared/mutex_steps``.

``rlock`` is the same lock: re-entries are counted in the process, so that both kinds exclude each other and use the same
steps in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.runner import arun, run
from .shared.base_lock import BaseLock
from .shared.inspect_programs import force_releasing, inspecting

if TYPE_CHECKING:
    from ..core.holder import Holder


class Lock(BaseLock):
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
        return self._report_forced(run(force_releasing(self.spec, fence), self.spec.performer), reason, actor)

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
        return self._report_forced(await arun(force_releasing(self.spec, fence), self.spec.performer), reason, actor)
