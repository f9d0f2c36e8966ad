"""The locks with ``hold="transaction"``, such as ``locks.lock(key, hold="transaction")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import deferred_release, open_transactions
from .primitives.fair_lock import FairLock
from .primitives.lock import Lock
from .primitives.rwlock import ReadLock, WriteLock
from .primitives.semaphore import Semaphore
from .primitives.shared.base_lock import BaseLock

if TYPE_CHECKING:
    from .core.grant import Grant


class _ReleasedAtCommit(BaseLock):
    """A release is deferred until COMMIT or ROLLBACK, if a transaction of the thread is open then."""

    __slots__ = ()

    def release_grant(self, grant: Grant, loop: object) -> None:
        """Release the grant at the end of the open transaction, or now if there is none."""
        if not isinstance(grant, deferred_release.DeferredGrant):
            deferred_release.defer_release(grant, open_transactions.of_database(self.options.database, self.name))
        super().release_grant(grant, loop)

    async def arelease_grant(self, grant: Grant) -> None:
        """Release the grant now: asynchronous code has no transactions."""
        open_transactions.warn_asynchronous(self.name)
        await super().arelease_grant(grant)


class TransactionLock(_ReleasedAtCommit, Lock):
    """A lock with a deferred release. Until then the same thread may acquire it again."""

    __slots__ = ()

    def may_reenter(self, grant: Grant, loop: object) -> bool:
        """Return whether the owner of this grant may acquire the lock once more, in this loop or thread."""
        return self.reentrant or (loop is None and deferred_release.deferred_grant_of(self) is not None)


class TransactionFairLock(TransactionLock, FairLock):
    """A fair lock with the same deferred release."""

    __slots__ = ()


class TransactionSemaphore(_ReleasedAtCommit, Semaphore):
    """A semaphore with a deferred release."""

    __slots__ = ()


class TransactionReadLock(_ReleasedAtCommit, ReadLock):
    """The readers' side of a read-write lock with a deferred release."""

    __slots__ = ()


class TransactionWriteLock(_ReleasedAtCommit, WriteLock):
    """The writer's side of a read-write lock with a deferred release."""

    __slots__ = ()
