"""The steps that list locks and records for the memory backend. They do the same as the scripts under ``lua/index``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from ...core.steps.locks import InspectLock
from . import locks, permits
from .latches import StoredLatch
from .store import RECORD, micros

if TYPE_CHECKING:
    from ...core.steps.indexes import InspectLocks, ReadIndex
    from .store import Store


def page(store: Store, keys: tuple[str, ...], args: ReadIndex) -> list[int | str]:
    """``index/page``: return one page of an index, sorted by the ends of the leases."""
    now, clock = micros() // 1000, monotonic()
    index = store.indexes.get(keys[0], {})
    which, offset, most, last_first = args
    found = sorted(
        ((ends, lock) for lock, ends in index.items() if (ends > clock) == (which == "held")), reverse=bool(last_first)
    )
    entries = [(lock, now + round((ends - clock) * 1000)) for ends, lock in found[offset : offset + most]]
    return [now, len(found), *(value for pair in entries for value in pair)]


def inspect_many(store: Store, keys: tuple[str, ...], args: InspectLocks) -> list[Any]:
    """``index/inspect``: return the holder or record of each key, and the number of its waiters."""
    inspect = InspectLock(args.kind)
    count = len(keys) // 3
    return [
        micros() // 1000,
        *(
            [
                sum(at > 0 for at in store.queues.get(waiters, {}).values()),  # without the mark of a fair lock
                *(_no_lock(store, lock) or locks.inspect(store, (lock,), inspect)),
            ]
            for lock, waiters in zip(keys[:count], keys[count : 2 * count], strict=True)
        ),
    ]


def _no_lock(store: Store, lock: str) -> list[Any]:
    """Return the reply for a record, with the index that lists it, for a latch or for permits; [] if the key holds
    something else."""
    found = store.find(lock)
    if isinstance(found, StoredLatch):
        return [2, found.ms_left(), found.left]
    if isinstance(found, permits.Permits):
        return [3, permits.listed(found)]
    if found is None or found.kind != RECORD:
        return []
    return [1, found.ms_left(), found.fence, found.holder, found.token.partition(".")[2]]
