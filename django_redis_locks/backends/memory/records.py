"""The steps of a record for the memory backend. They do the same as the scripts under ``lua/record``."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from .store import RECORD, StoredValue, micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.steps.records import DropRecord, GetRecord, PeekRecord, PutRecord, TouchRecord
    from .store import Store


def _read(store: Store, key: str) -> list[Any]:
    record = store.find(key)
    if record is None:
        return [0]
    if record.kind != RECORD:
        return [-1, record.description()]
    return [0, record.ms_left(), record.fence, record.holder]


def get(store: Store, keys: tuple[str, ...], args: GetRecord) -> list[Any]:
    """``record/get``: return the record, and register the waiter for another version."""
    key, waiters = keys
    now = _read(store, key)
    if now[0] < 0:
        return now
    waiter, since = args.waiter, 0
    if waiter is not None and waiter.address:
        if waiter.others_behind or (now[2] if len(now) > 1 else 0) == waiter.known:
            since = store.enqueue(waiters, waiter.address, waiter.enqueued_at)
        else:
            store.dequeue(waiters, waiter.address)
    return [*now, since]


def peek(store: Store, keys: tuple[str, ...], args: PeekRecord) -> str | None:
    """``record/peek``: return the value of the key as a server stores it."""
    record = store.find(keys[0])
    return None if record is None else f"1 {record.kind} {record.token} {record.fence} {record.holder}"


def index_of(nonce: str, indexes: Sequence[str]) -> Sequence[str]:
    """Return the index that lists a record, which the end of its nonce names."""
    for index, end in zip(indexes, (".held", ".queued"), strict=False):
        if nonce.endswith(end):
            return (index,)
    return ()


def put(store: Store, keys: tuple[str, ...], args: PutRecord) -> Any:
    """``record/put``: write the record if it has the expected version."""
    key, waiters, counter, *indexes = keys
    nonce, known, lease, fields = args
    now = _read(store, key)
    record = store.records.get(key)
    if now[0] < 0:
        return now
    index = index_of(nonce, indexes)
    if record is not None and record.token == nonce:
        record.extend(lease)
        store.add_to_index(index, key, record, new=False)
        return record.fence
    version = record.fence if record is not None else 0
    if version != known:
        return now
    if record is not None:
        store.remove_from_index(index_of(record.token, indexes), key)
    fence = store.next_fence(counter, version)
    new = store.records[key] = StoredValue(RECORD, nonce, fence, micros() // 1000, fields, monotonic() + lease / 1000)
    store.add_to_index(index, key, new, new=True)
    store.wake_all(key, waiters)
    return fence


def touch(store: Store, keys: tuple[str, ...], args: TouchRecord) -> list[Any]:
    """``record/touch``: extend or shorten the lease of the record if it has the expected version."""
    key, *indexes = keys
    now = _read(store, key)
    if len(now) < 4 or now[2] != args.version:
        return now
    record = store.records[key]
    if args.shorten:
        record.ends = -inf
    record.extend(args.lease)
    store.add_to_index(index_of(record.token, indexes), key, record, new=False)
    return [1, args.version]


def drop(store: Store, keys: tuple[str, ...], args: DropRecord) -> list[Any]:
    """``record/drop``: delete the record if it has the expected version or nonce."""
    key, waiters, *indexes = keys
    now = _read(store, key)
    if len(now) < 4 or (now[2] != args.version and store.records[key].token != args.nonce):
        return now
    store.remove_from_index(index_of(store.records.pop(key).token, indexes), key)
    store.wake_all(key, waiters)
    return [1]
