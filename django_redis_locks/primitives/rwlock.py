"""``ReadWriteLock``: many readers or one writer. Its steps are in ``shared/rwlock_steps``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..core.registry import registry
from ..core.runner import arun, run, run_twice_if_interrupted
from ..core.write_hold import WriteHold
from .shared import detach, release
from .shared.downgrade import downgrade_later, downgrading, end_write
from .shared.permit_lock import PermitLock
from .shared.permit_programs import steps_of

if TYPE_CHECKING:
    from ..core.durations import Duration
    from ..core.grant import Grant
    from ..core.hold import Hold
    from ..core.holder import Holder


class SideOfLock(PermitLock):
    """One side of a read-write lock. Its owner may enter it again: entries are counted in the process."""

    __slots__ = ()

    def locked(self) -> bool:
        """Return whether this side of the lock is held, by any holder. One round trip; the answer may be outdated when
        it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value of another kind.
        """
        return bool(self.holders())

    async def alocked(self) -> bool:
        """Return whether this side of the lock is held, by any holder. One round trip; the answer may be outdated when
        it arrives.

        Raises:
            LockBackendError: the store can't be reached, or refuses.
            LockKeyError: the key holds a value of another kind.
        """
        return bool(await self.aholders())

    def _concerns(self, holder: Holder) -> bool:
        return holder.permits == steps_of(self.spec).permits


class ReadLock(SideOfLock):
    """The side of a ``ReadWriteLock`` that many callers may hold at a time. Its attribute ``read``."""

    __slots__ = ()

    def may_reenter(self, grant: Grant, loop: object) -> bool:
        """Return True: a reader or writer may read."""
        return True

    def waits_for(self, hold: Hold) -> bool:
        """Return whether an acquire waits for the end of this hold of another context of the caller."""
        return isinstance(hold, WriteHold) and hold.writes

    def detach_grant(self, grant: Grant, expire: Duration | None) -> str:
        """Detach a grant. If its hold was a writer's, it is a reader's in the store before."""
        hold = grant.hold
        if isinstance(hold, WriteHold) and hold.waits_for_downgrade:
            run(downgrading(self.spec, hold), self.spec.performer)
        return detach.detach_grant(self, grant, expire)

    async def adetach_grant(self, grant: Grant, expire: Duration | None) -> str:
        """Detach a grant, in a running event loop. If its hold was a writer's, it is a reader's in the store before."""
        hold = grant.hold
        if isinstance(hold, WriteHold) and hold.waits_for_downgrade:
            await arun(downgrading(self.spec, hold), self.spec.performer)
        return await detach.adetach_grant(self, grant, expire)


class WriteLock(SideOfLock):
    """The side of a ``ReadWriteLock`` that one caller holds, without readers. Its attribute ``write``."""

    __slots__ = ()

    why_not_reentered = (
        "the caller reads, and a writer waits for all readers, so that it would wait for itself. Release the read lock "
        "first, or acquire the write lock before the read lock"
    )

    def may_reenter(self, grant: Grant, loop: object) -> bool:
        """Return whether the owner of this grant writes."""
        return isinstance(grant.hold, WriteHold) and grant.hold.writes

    def release_grant(self, grant: Grant, loop: object) -> None:
        """Release a grant. The last one leaves a read lock if grants for reading remain."""
        hold = end_write(grant)
        if hold is None:
            release.release_grant(self, grant, loop)
            return
        run(downgrading(self.spec, hold), self.spec.performer)
        if self.options.after_release is not None and not grant.deferred:
            self.options.after_release(self.name)

    async def arelease_grant(self, grant: Grant) -> None:
        """Release a grant, in a running event loop. The last one leaves a read lock if grants for reading remain."""
        hold = end_write(grant)
        if hold is None:
            await release.arelease_grant(self, grant)
        else:
            await arun(downgrading(self.spec, hold), self.spec.performer)

    def clean_up_release(self, grant: Grant, failure: BaseException) -> None:
        """Have the maintenance thread end a release that an exception has interrupted."""
        hold = grant.hold
        end_write(grant)
        if isinstance(hold, WriteHold) and hold.waits_for_downgrade:
            registry.forget(grant)
            run_twice_if_interrupted(partial(downgrade_later, self.spec, hold))
        else:
            release.clean_up_release(self, grant, failure)

    def release_in_background(self, grant: Grant) -> None:
        """Release a grant without waiting for the store."""
        hold = end_write(grant)
        if hold is None:
            release.release_in_background(self, grant)
        else:
            downgrade_later(self.spec, hold)


@dataclass(frozen=True, slots=True, repr=False)
class ReadWriteLock:
    """Two locks of one key: many callers hold ``read`` at a time, or one holds ``write``. ``locks.rwlock()`` makes them.

    Both have all of ``Lock``: renewal, fencing token, loss notice, ``with`` and ``async with``. Each reader has a lease of
    its own. Requests are served in the order of their arrival at the store, so that a waiting writer stops new readers,
    and isn't starved by them.

    The thread or task that holds a side may enter it again, without a request, and the writer may read. If it releases
    the write lock first, it goes on as a reader: no other writer comes between. A reader can't become a writer, because
    two of them would wait for each other: that raises ``LockAlreadyHeld`` at once.

    Attributes:
        read: the lock of the readers.
        write: the lock of the writer.

    Example::

        catalogue = locks.rwlock("catalogue", wait=10)
        with catalogue.read:
            show_prices()
        with catalogue.write as grant:
            change_prices(fence=grant.fence)
    """

    read: ReadLock
    write: WriteLock

    @property
    def key(self) -> str:
        """The key of the lock."""
        return self.read.key

    @property
    def name(self) -> str:
        """The name of the lock: its label in settings, messages and metrics."""
        return self.read.name

    @property
    def alias(self) -> str:
        """The alias in ``REDIS_LOCKS``."""
        return self.read.alias

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.alias!r}>"
