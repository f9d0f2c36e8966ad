"""The steps of a lock for the memory backend. They do the same as the scripts under ``lua/lock``, ``lua/waiters`` and
``lua/fence``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from ...core.queue_values import LAST
from ...core.tuning import RESERVED_FENCES
from . import records
from .store import LOCK, RECORD, StoredValue, micros

if TYPE_CHECKING:
    from .store import Store


def acquire(
    store: Store,
    keys: tuple[str, ...],
    token: str,
    lease: int,
    holder: str,
    handed: str | None = None,
    address: str | None = None,
    enqueued_at: int = 0,
    waiter_ttl: int = 0,
) -> list[Any] | int:
    """``lock/acquire``: acquire a free lock, or return its holder and register the waiter."""
    lock, counter = keys[:2]
    listing = keys[2 if handed is None else 3 :]

    def register(busy: bool) -> list[int]:
        if address is None:
            return [0, 0]
        waiters = keys[2]
        since = 0
        if address and busy and enqueued_at != LAST:
            since = store.enqueue(waiters, address, enqueued_at)
        elif address:
            store.dequeue(waiters, address)
        return [since, int(len(store.queues.get(waiters, ())) > bool(since))]

    record = store.find(lock)
    if record is not None:
        if record.kind != LOCK:
            return [-1, record.description()]
        if record.token == token:
            if record.unclaimed:
                record.unclaimed, record.holder, record.ends = False, holder, monotonic()
            record.extend(lease)
            store.add_to_index(listing, lock, record, new=False)
            return [1, record.fence, 0, *register(busy=False)]
        if record.token != handed:
            return [*record.busy(), *register(busy=True)]
    last = 0 if record is None else record.fence
    fence = store.next_fence(counter, last, 0 if handed is None else RESERVED_FENCES)
    ends = monotonic() + lease / 1000
    waits = handed is not None
    new = store.records[lock] = StoredValue(LOCK, token, fence, micros() // 1000, holder, ends, reserved=waits)
    store.add_to_index(listing, lock, new, new=True)
    return fence if handed is None else [1, fence, int(record is None), *register(busy=False)]


def release(store: Store, keys: tuple[str, ...], token: str, address: str = "", waiter_ttl: int = 0) -> int:
    """``lock/release``: release the lock if it is held with this token, and grant it to a waiter."""
    lock, waiters = keys[:2]
    if store.find_owned(lock, token) is None:
        return 0
    del store.records[lock]
    store.remove_from_index(keys[3:], lock)
    if address:
        store.enqueue(waiters, address, 0)
    return 1 + store.grant_next(lock, keys[1:])


def renew(store: Store, keys: tuple[str, ...], lease: int, *tokens: str) -> list[int]:
    """``lock/renew``: extend the leases of the locks that are held with these tokens."""
    records = [store.find_owned(lock, token) for lock, token in zip(keys, tokens, strict=False)]
    for lock, record in zip(keys, records, strict=False):
        if record is not None:
            record.extend(lease)
            store.add_to_index(keys[len(tokens) :], lock, record, new=False)
    return [int(record is not None) for record in records]


def adopt(store: Store, keys: tuple[str, ...], lease: int, token: str, fence: int, age: int, holder: str) -> list[int]:
    """``lock/adopt``: describe the new holder of a lock that was handed over, and extend its lease."""
    record = store.find_owned(keys[0], token)
    if record is not None and (record.fence < fence or (record.fence == fence and record.reserved)):
        record.fence, record.since, record.holder = fence, micros() // 1000 - age, holder
        record.reserved = record.unclaimed = False
    return renew(store, keys, lease, token)


def transfer(
    store: Store,
    keys: tuple[str, ...],
    token: str,
    next_token: str,
    lease: int,
    fence: int,
    age: int,
    holder: str,
) -> int:
    """``lock/transfer``: give a held lock another token."""
    record = store.find_owned(keys[0], next_token)
    if record is not None:
        record.extend(lease)
    else:
        record = store.find_owned(keys[0], token)
        if record is None:
            return 0
        if lease:
            record.ends = monotonic() + lease / 1000
        record.token, record.fence, record.holder = next_token, fence or record.fence, holder
        record.since = micros() // 1000 - age
        record.reserved = record.unclaimed = False
    store.add_to_index(keys[1:], keys[0], record, new=False)
    return record.fence


def inspect(store: Store, keys: tuple[str, ...], kind: str) -> list[Any]:
    """``lock/inspect``: return the holder of the lock."""
    record = store.find(keys[0])
    if record is None:
        return []
    return record.busy() if record.kind == kind else [-1, record.description()]


def force_release(store: Store, keys: tuple[str, ...], fence: int | str, channel: str, ask: int) -> int:
    """``lock/force_release``: release the lock or record regardless of its holder."""
    lock, waiters = keys[:2]
    record = store.find(lock)
    if record is None:
        return 0
    if record.kind == RECORD:
        if "." not in record.token or fence not in ("", record.fence):
            return 0
        del store.records[lock]
        store.remove_from_index(records.index_of(record.token, keys[3:]), lock)
        store.broadcast(lock, channel)
        store.wake_all(lock, waiters)
        return 1
    fences_ahead = 0 if fence == "" else int(fence) - record.fence
    if fence != "" and record.reserved and ask and 0 <= fences_ahead <= RESERVED_FENCES:
        store.broadcast(lock, channel)
        return 3
    if fences_ahead:
        return 0
    del store.records[lock]
    store.remove_from_index(keys[3:4], lock)
    store.broadcast(lock, channel)
    return 1 + store.grant_next(lock, keys[1:4])


def unregister(store: Store, keys: tuple[str, ...], address: str, unexpected: str = "", fence: int = 0) -> int:
    """``waiters/unregister``: remove a waiter, free the lock if it was granted to it, and grant or notify the next one
    if the lock is free."""
    lock, waiters = keys[:2]
    store.dequeue(waiters, address)
    _, _, token, *_ = *address.split(" ", 3), "", "", ""
    owned = store.find_owned(lock, unexpected or token)
    if owned is not None:
        if unexpected and not (owned.unclaimed and owned.fence == fence):
            return 0
        del store.records[lock]
        store.remove_from_index(keys[3:], lock)
    elif store.find(lock) is not None:
        return 0
    passed_on = store.wake(lock, waiters) if len(keys) == 2 else store.grant_next(lock, keys[1:])
    return 2 if passed_on else int(owned is not None)


def raise_fence(store: Store, keys: tuple[str, ...], least: int) -> list[str]:
    """``fence/raise``: raise a fence counter."""
    (counter,) = keys
    last = store.fences.get(counter, 0)
    if last < least:
        last = store.fences[counter] = least
    return [str(last), str(micros())]
