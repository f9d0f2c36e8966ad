"""The holds of locks as rows of a table: on the page of a semaphore or read-write lock, and on that of a forced release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.text import distinct
from . import formatting

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..core.holder import Holder
    from ..models import HeldLock


class HoldRow(NamedTuple):
    """A hold of a lock; of a record, the state in which it was read.

    Attributes:
        lock: the lock.
        fence: the fence of the hold, or the version of the record.
        key, holder, permits, held_for, lease_left, waiting: the cells. ``permits`` is "" for locks without permits.
        url: the page of its forced release.
    """

    lock: HeldLock
    fence: int
    key: str
    holder: Any
    permits: str
    held_for: str
    lease_left: str
    waiting: str
    url: str = ""


def holds_of(lock: HeldLock, fences: Collection[str] = ()) -> list[HoldRow]:
    """The holds of a lock, or those with these fences if there are any; none of a lock that can't be released."""
    info = lock.info
    if info is None or lock.fence is None:
        return []
    if not info.holders:
        return [_row(lock, lock.fence, info.holder, lock.held_for, lock.lease_left)]
    rows = [_row(lock, holder.fence, holder, info.seconds_held(holder), holder.lease_left) for holder in info.holders]
    return [row for row in rows if str(row.fence) in fences] or rows


def _row(
    lock: HeldLock, fence: int, holder: Holder | None, held_for: float | None, lease_left: float | None
) -> HoldRow:
    info = lock.info
    return HoldRow(
        lock,
        fence,
        distinct(lock.key),
        formatting.holder(holder) if holder else "",
        formatting.permits(holder) if holder and info and info.has_permits else "",
        formatting.duration(held_for or 0.0),
        formatting.lease(lease_left or 0.0),
        formatting.waiting(info) if info else "",
    )
