"""Distributed locks for Django, on Redis.

``locks`` makes locks, ``redis_lock`` decorates views, methods and functions, ``current_grant`` returns the newest grant
of the thread or task. The other names are values, errors, and functions for ``celery_locks``: ``clock``, ``key_maker``,
``release_leftovers``.

Example::

    with locks.lock(f"order:{order_id}"):
        charge(order_id)
"""

from __future__ import annotations

from .conf import InvalidLockBackend
from .core import clock
from .core.errors import (
    LockAlreadyHeld,
    LockBackendError,
    LockError,
    LockKeyError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    StaleGrant,
)
from .core.grant import Grant
from .core.holder import Holder
from .core.key_templates import compile_template as key_maker
from .core.multi_grant import MultiGrant
from .core.registry import registry as _registry
from .dead_holders import arelease_dead, release_dead
from .decorators import redis_lock
from .deferred_release import release_leftovers
from .handler import locks
from .leader import Leader
from .primitives.latch import Latch
from .primitives.lock import Lock
from .primitives.multi_lock import MultiLock
from .primitives.record import Record, RecordRef
from .primitives.rwlock import ReadLock, ReadWriteLock, WriteLock
from .primitives.semaphore import Semaphore

__all__ = [
    "Grant",
    "Holder",
    "InvalidLockBackend",
    "Latch",
    "Leader",
    "Lock",
    "LockAlreadyHeld",
    "LockBackendError",
    "LockError",
    "LockKeyError",
    "LockLost",
    "LockNotAcquired",
    "LockNotOwned",
    "MultiGrant",
    "MultiLock",
    "ReadLock",
    "ReadWriteLock",
    "Record",
    "RecordRef",
    "Semaphore",
    "StaleGrant",
    "WriteLock",
    "arelease_dead",
    "clock",
    "current_grant",
    "key_maker",
    "locks",
    "redis_lock",
    "release_dead",
    "release_leftovers",
]


def current_grant() -> Grant | None:
    """Return the grant that this thread or task acquired last and has not released yet, or None."""
    grant = _registry.innermost()
    return None if grant is None else grant.whole
