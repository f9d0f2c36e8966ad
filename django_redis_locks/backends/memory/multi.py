"""The steps of several locks for the memory backend. They do the same as the scripts under ``lua/multi``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from ...core.steps.locks import ReleaseLock
from . import locks
from .store import LOCK, StoredValue, micros

if TYPE_CHECKING:
    from ...core.steps.multi import AcquireLocks, MemberRequest, ReleaseLocks
    from .store import Store


def acquire(store: Store, keys: tuple[str, ...], args: AcquireLocks) -> list[Any]:
    """``multi/acquire``: acquire all locks, or none and return the holder of the first busy one."""
    counter, listing = keys[0], keys[1 + 2 * len(args.members) :]
    free: list[tuple[str, MemberRequest]] = []
    claimed: list[tuple[str, MemberRequest, StoredValue]] = []
    for number, request in enumerate(args.members):
        lock, waiters = keys[1 + number], keys[1 + len(args.members) + number]
        if request.fair and store.find(lock) is None:
            store.grant_after_lease(lock, (waiters, counter, *listing))
        record = store.find(lock)
        if record is None:
            free.append((lock, request))
        elif record.kind != LOCK:
            return [-1, number, record.description()]
        elif record.token != request.token:
            return [0, number, *record.busy()[1:]]
        else:
            claimed.append((lock, request, record))
    fences: dict[str, int] = {}
    for lock, request, record in claimed:
        locks.claim(store, lock, record, request.lease, request.holder, listing, reserved=False)
        fences[lock] = record.fence
    first = store.next_fence(counter, 0, len(free) - 1) if free else 0
    for fence, (lock, request) in enumerate(free, first):
        ends = monotonic() + request.lease / 1000
        record = StoredValue(LOCK, request.token, fence, micros() // 1000, request.holder, ends)
        store.records[lock] = record
        store.add_to_index(listing, lock, record, new=True)
        fences[lock] = fence
    return [1, *(fences[lock] for lock in keys[1 : 1 + len(args.members)])]


def release(store: Store, keys: tuple[str, ...], args: ReleaseLocks) -> list[int]:
    """``multi/release``: release the locks that are held with these tokens, and grant each to a waiter."""
    counter, listing, count = keys[0], keys[1 + 2 * len(args.tokens) :], len(args.tokens)
    return [
        locks.release(store, (keys[1 + number], keys[1 + count + number], counter, *listing), ReleaseLock(token))
        for number, token in enumerate(args.tokens)
    ]
