"""``PermitLock``: what the locks that are made of permits have in common. They may have several holders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.runner import arun, run
from .base_lock import BaseLock
from .permit_programs import force_releasing_permits, inspecting_permits

if TYPE_CHECKING:
    from ...core.holder import Holder
    from .permit_steps import PermitState


class PermitLock(BaseLock):
    """A lock that is made of permits, as ``shared/permit_steps`` says."""

    __slots__ = ()

    def holders(self) -> list[Holder]:
        """Return the holders, each with the number of its ``permits``, in the order in which their leases end; the first
        10,000 if there are more. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value of another kind.
        """
        return self._found(self._inspect())

    async def aholders(self) -> list[Holder]:
        """Return the holders, each with the number of its ``permits``, in the order in which their leases end; the first
        10,000 if there are more. One round trip.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value of another kind.
        """
        return self._found(await self._ainspect())

    holder = holders
    aholder = aholders

    def force_release(self, reason: str = "", fence: int | None = None, actor: str = "") -> bool:
        """Free what all holders have, or one of them. A holder continues until it notices the loss; its fence protects
        the resources that it writes to.

        Args:
            reason: for the log and the signal.
            fence: free only the hold with this fence.
            actor: the user or program that does it, for the signal.

        Returns:
            True if there was a hold to free, also if a reply was lost on the way.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value of another kind.
            ValueError: ``fence`` is no int.
        """
        freed = run(force_releasing_permits(self.spec, fence, self._concerns), self.spec.performer)
        return self._report_forced(freed, reason, actor)

    async def aforce_release(self, reason: str = "", fence: int | None = None, actor: str = "") -> bool:
        """Free what all holders have, or one of them. A holder continues until it notices the loss; its fence protects
        the resources that it writes to.

        Args:
            reason: for the log and the signal.
            fence: free only the hold with this fence.
            actor: the user or program that does it, for the signal.

        Returns:
            True if there was a hold to free, also if a reply was lost on the way.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value of another kind.
            ValueError: ``fence`` is no int.
        """
        freed = await arun(force_releasing_permits(self.spec, fence, self._concerns), self.spec.performer)
        return self._report_forced(freed, reason, actor)

    def _concerns(self, holder: Holder) -> bool:
        """Return whether this is a holder of this lock, and not of the other side of its key."""
        return True

    def _found(self, state: PermitState) -> list[Holder]:
        return [holder for holder in state.holders if self._concerns(holder)]

    def _inspect(self) -> PermitState:
        return run(inspecting_permits(self.spec), self.spec.performer)

    async def _ainspect(self) -> PermitState:
        return await arun(inspecting_permits(self.spec), self.spec.performer)
