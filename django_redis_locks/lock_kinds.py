"""The kinds of locks: their steps in the store, and their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .core.write_hold import READ, WRITE
from .primitives.fair_lock import FairLock
from .primitives.lock import Lock
from .primitives.rwlock import ReadLock, SideOfLock, WriteLock
from .primitives.shared.fair_steps import FairSteps
from .primitives.shared.mutex_steps import MutexSteps
from .primitives.shared.rwlock_steps import ReadSteps, WriteSteps
from .transaction_lock import TransactionFairLock, TransactionLock, TransactionReadLock, TransactionWriteLock

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final[Mapping[str, tuple[type[MutexSteps], type[Lock], type[Lock]]]] = {
    MutexSteps.kind: (MutexSteps, Lock, TransactionLock),
    FairSteps.kind: (FairSteps, FairLock, TransactionFairLock),
}
"""For each kind its steps, its class, and its class with ``hold="transaction"``."""

SIDES: Final[Mapping[str, tuple[type[ReadSteps], type[SideOfLock], type[SideOfLock]]]] = {
    READ: (ReadSteps, ReadLock, TransactionReadLock),
    WRITE: (WriteSteps, WriteLock, TransactionWriteLock),
}
"""The same for each side of a read-write lock."""
