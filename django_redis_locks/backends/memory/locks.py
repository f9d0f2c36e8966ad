"""The steps of a lock for the memory backend. They do the same as the scripts under ``lua/lock``, ``lua/waiters`` and
``lua/fence``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from ...core.queue_values import LAST
from ...core.steps.locks import AcquireAbove, AcquireLock, RenewLocks
from ...core.tuning import RESERVED_FENCES
from . import records
from .store import LOCK, RECORD, StoredValue, micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.steps.locks import (
        AcquireFair,
        AdoptLock,
        ForceReleaseLock,
        InspectLock,
        RaiseFence,
        ReleaseLock,
        TransferLock,
        UnregisterWaiter,
    )
    from .store import Store


def acquire(store: Store, keys: tuple[str, ...], args: AcquireLock | AcquireAbove) -> list[Any] | int:
    """``lock/acquire``: acquire a free lock, or return its holder and register the waiter."""
    lock, counter = keys[:2]
    token, lease, holder, _ = args
    waiter, least = (None, args.least) if isinstance(args, AcquireAbove) else (args.waiter, 0)
    listing = keys[2 if waiter is None else 3 :]

    def register(busy: bool) -> list[int]:
        if waiter is None:
            return [0, 0]
        waiters = keys[2]
        since = 0
        if waiter.address and busy and waiter.enqueued_at != LAST:
            since = store.enqueue(waiters, waiter.address, waiter.enqueued_at)
        elif waiter.address:
            store.dequeue(waiters, waiter.address)
        return [since, int(len(store.queues.get(waiters, ())) > bool(since))]

    record = store.find(lock)
    if record is not None:
        if record.kind != LOCK:
            return [-1, record.description()]
        if record.token == token:
            claim(store, lock, record, lease, holder, listing, reserved=True)
            return [1, record.fence, 0, *register(busy=False)]
        if waiter is None or record.token != waiter.handed:
            return [*record.busy(), *register(busy=True)]
    last = least if record is None else record.fence
    waits = waiter is not None
    fence = store.next_fence(counter, last, RESERVED_FENCES if waits else 0)
    ends = monotonic() + lease / 1000
    new = store.records[lock] = StoredValue(LOCK, token, fence, micros() // 1000, holder, ends, reserved=waits)
    store.add_to_index(listing, lock, new, new=True)
    return [1, fence, int(record is None), *register(busy=False)] if waits else fence


def acquire_fair(store: Store, keys: tuple[str, ...], args: AcquireFair) -> list[Any] | int:
    """``lock/acquire_fair``: as ``acquire``, but a free lock with waiters goes to the first of them."""
    lock, counter, waiters, *listing = keys
    token, lease, holder, waiter = args
    address, place = ("", 0) if waiter is None else waiter[:2]
    if store.find(lock) is None:
        store.grant_after_lease(lock, (waiters, counter, *listing), address, place)
    record = store.find(lock)
    if record is None:
        acquire(store, (lock, counter, *listing), AcquireLock(token, lease, holder))
    elif record.kind != LOCK:
        return [-1, record.description()]
    elif record.token == token:
        claim(store, lock, record, lease, holder, listing, reserved=False)
    elif place == LAST:
        store.dequeue(waiters, address)
        return [*record.busy(), 0]
    else:
        place = place or store.place_in_line(waiters, address)
        if address:
            store.enqueue(waiters, address, place)
        return [*record.busy(), place]
    store.dequeue(waiters, address)
    return store.records[lock].fence


def claim(
    store: Store, lock: str, record: StoredValue, lease: int, holder: str, listing: Sequence[str], *, reserved: bool
) -> None:
    """Extend the lease of a lock that has the token of the request. If it was granted to a waiter, it gets the holder of
    the request."""
    if record.unclaimed:
        record.unclaimed, record.reserved, record.holder, record.ends = False, reserved, holder, monotonic()
    record.extend(lease)
    store.add_to_index(listing, lock, record, new=False)


def release(store: Store, keys: tuple[str, ...], args: ReleaseLock) -> int:
    """``lock/release``: release the lock if it is held with this token, and grant it to a waiter."""
    lock, waiters = keys[:2]
    if store.find_owned(lock, args.token) is None:
        return 0
    del store.records[lock]
    store.remove_from_index(keys[3:], lock)
    if args.next_turn is not None:
        store.enqueue(waiters, args.next_turn.address, 0)
    return 1 + bool(store.grant_next(lock, keys[1:]))


def renew(store: Store, keys: tuple[str, ...], args: RenewLocks) -> list[int]:
    """``lock/renew``: extend the leases of the locks that are held with these tokens."""
    records = [store.find_owned(lock, token) for lock, token in zip(keys, args.tokens, strict=False)]
    for lock, record in zip(keys, records, strict=False):
        if record is not None:
            record.extend(args.lease)
            store.add_to_index(keys[len(args.tokens) :], lock, record, new=False)
    return [int(record is not None) for record in records]


def adopt(store: Store, keys: tuple[str, ...], args: AdoptLock) -> list[int]:
    """``lock/adopt``: describe the new holder of a lock that was handed over, and extend its lease."""
    record = store.find_owned(keys[0], args.token)
    if record is not None and (record.fence < args.fence or (record.fence == args.fence and record.reserved)):
        record.fence, record.since, record.holder = args.fence, micros() // 1000 - args.age, args.holder
        record.reserved = record.unclaimed = False
    return renew(store, keys, RenewLocks(args.lease, (args.token,)))


def transfer(store: Store, keys: tuple[str, ...], args: TransferLock) -> int:
    """``lock/transfer``: give a held lock another token."""
    record = store.find_owned(keys[0], args.next_token)
    if record is not None:
        record.extend(args.lease)
    else:
        record = store.find_owned(keys[0], args.token)
        if record is None:
            return 0
        if args.may_shorten:
            record.ends = 0.0
        record.extend(args.lease)
        record.token, record.fence, record.holder = args.next_token, args.fence or record.fence, args.holder
        record.since = micros() // 1000 - args.age
        record.reserved = record.unclaimed = False
    store.add_to_index(keys[1:], keys[0], record, new=False)
    return record.fence


def inspect(store: Store, keys: tuple[str, ...], args: InspectLock) -> list[Any]:
    """``lock/inspect``: return the holder of the lock."""
    record = store.find(keys[0])
    if record is None:
        return []
    return record.busy() if record.kind == args.kind else [-1, record.description()]


def force_release(store: Store, keys: tuple[str, ...], args: ForceReleaseLock) -> int:
    """``lock/force_release``: release the lock or record regardless of its holder."""
    lock, waiters = keys[:2]
    fence, channel, request_fence = args
    record = store.find(lock)
    if record is None or record.kind not in (LOCK, RECORD):
        return 0
    if record.kind == RECORD:
        if "." not in record.token or fence not in ("", record.fence):
            return 0
        del store.records[lock]
        store.remove_from_index(records.index_of(record.token, keys[3:]), lock)
        store.broadcast(lock, channel)
        store.wake_all(lock, waiters)
        return 1
    if record.kind != LOCK:
        return 0
    fences_ahead = 0 if fence == "" else int(fence) - record.fence
    reserved = record.reserved and not record.unclaimed
    if fence != "" and reserved and request_fence and 0 <= fences_ahead <= RESERVED_FENCES:
        store.broadcast(lock, channel)
        return 3
    if fences_ahead:
        return 0
    del store.records[lock]
    store.remove_from_index(keys[3:4], lock)
    store.broadcast(lock, channel)
    return 1 + bool(store.grant_next(lock, keys[1:4]))


def unregister(store: Store, keys: tuple[str, ...], args: UnregisterWaiter) -> int:
    """``waiters/unregister``: remove a waiter, free the lock if it was granted to it, and grant or notify the next one
    if the lock is free."""
    lock, waiters = keys[:2]
    address, grant = args
    store.dequeue(waiters, address)
    _, _, token, *_ = *address.split(" ", 3), "", "", ""
    owned = store.find_owned(lock, token if grant is None else grant.token)
    if owned is not None:
        if grant is not None and not (owned.unclaimed and owned.fence == grant.fence):
            return 0
        del store.records[lock]
        store.remove_from_index(keys[3:], lock)
    elif store.find(lock) is not None:
        return 0
    passed_on = store.wake(lock, waiters) if len(keys) == 2 else store.grant_next(lock, keys[1:])
    return 2 if passed_on else int(owned is not None)


def raise_fence(store: Store, keys: tuple[str, ...], args: RaiseFence) -> list[str]:
    """``fence/raise``: raise a fence counter."""
    (counter,) = keys
    last = store.fences.get(counter, 0)
    if last < args.least:
        last = store.fences[counter] = args.least
    return [str(last), str(micros())]
