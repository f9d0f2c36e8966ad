"""The steps of a load for the memory backend. They do the same as the scripts under ``lua/load``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.clock import monotonic
from .store import LOAD, StoredValue, micros

if TYPE_CHECKING:
    from ...core.steps.loads import (
        BlockLoads,
        ClaimLoad,
        ClearLoads,
        DeferStore,
        GetValue,
        GiveUpLoad,
        InvalidateValue,
        PutValue,
        ReadValues,
        RenewLoad,
        StoreValue,
        UnblockLoads,
    )
    from .store import Store

FAILURE = "!"
"""The token of the note of a failed load."""


def _generation(store: Store, key: str) -> int:
    return store.fences.get(key, 0)


def _find_load(store: Store, key: str, generation: int) -> StoredValue | None:
    """Return the lease of a load, unless it is from an earlier generation. The ``fence`` of such a lease is its
    generation."""
    lease = store.find(key)
    return lease if lease is not None and lease.fence == generation else None


def read(store: Store, keys: tuple[str, ...], args: ReadValues) -> list[Any]:
    """``load/read``: the remaining milliseconds and the value of each key."""
    return [part for key in keys for part in store.read_value(key)]


def get(store: Store, keys: tuple[str, ...], args: GetValue) -> Any:
    """``load/get``: the value of a key."""
    return store.read_value(keys[0])[1]


def claim(store: Store, keys: tuple[str, ...], args: ClaimLoad) -> list[Any]:
    """``load/claim``: give the load to this caller, or report its lease and what the cache holds."""
    token, lease, fresh_above = args.token, args.lease, args.fresh_above
    key, waiters, generations, lag_key, permit, *value_key = keys
    generation = _generation(store, generations)
    found = _find_load(store, key, generation)
    value_left, value = store.read_value(value_key[0]) if value_key else (-2, None)
    lag = store.find(lag_key) is not None
    fresh = value is not None and fresh_above != -1 and (value_left == -1 or value_left > fresh_above or lag)
    verdict, left, reason = 0, 0 if found is None else found.ms_left(), ""
    overridden = args.override == 1
    if fresh and not overridden and (found is None or found.token != token):
        verdict = 2
    elif found is None or overridden or found.token == token or (args.override == 2 and found.token == FAILURE):
        if overridden:
            store.records.pop(permit, None)
        store.records[key] = StoredValue(LOAD, token, generation, micros() // 1000, "", monotonic() + lease / 1000)
        verdict, left = 1, lease
    elif found.token == FAILURE:
        verdict, reason = 3, found.holder
    elif args.extra_interval != "":
        now = monotonic() * 1000
        if not found.holder or now - float(found.holder) >= int(args.extra_interval):
            found.holder = str(now)
            verdict = 4
    since = 0
    if args.address and (verdict == 0 or args.others_behind):
        since = store.enqueue(waiters, args.address, 0 if verdict else args.enqueued_at)
    elif args.address:
        store.dequeue(waiters, args.address)
    return [verdict, left, since, value_left, value, reason]


def renew(store: Store, keys: tuple[str, ...], args: RenewLoad) -> list[int]:
    """``load/renew``: extend a lease that still has this token; report the replica lag that is left."""
    key, generations, lag_key = keys
    found = _find_load(store, key, _generation(store, generations))
    if found is None or found.token != args.token:
        return [0, 0]
    found.extend(args.lease)
    lag = store.find(lag_key)
    return [1, 0 if lag is None else lag.ms_left()]


def store_value(store: Store, keys: tuple[str, ...], args: StoreValue) -> int:
    """``load/store``: store the value of a load that still has its lease or permit, and end the load."""
    key, waiters, generations, lag_key, permit, *value_key = keys
    held, ttl, value = permit if args.by_permit else key, args.ttl, args.value
    found = _find_load(store, held, _generation(store, generations))
    if found is None or found.token != args.token:
        return 0
    del store.records[held]
    store.records.pop(permit, None)
    lag = store.find(lag_key)
    left = 0 if lag is None else lag.ms_left()
    try:
        if callable(value):  # writes a cache of this process
            value(left)
        elif value_key and ttl:
            store.write_value(value_key[0], value, left if left and not 0 < ttl <= left else ttl)
    finally:
        store.wake_all(key, waiters)
    return 1


def defer(store: Store, keys: tuple[str, ...], args: DeferStore) -> str:
    """``load/defer``: replace the lease by a permit to store the value after COMMIT."""
    key, waiters, generations, permit = keys
    generation = _generation(store, generations)
    found = _find_load(store, key, generation)
    if found is None or found.token != args.token:
        return ""
    del store.records[key]
    shared = _find_load(store, permit, generation) or found
    shared.extend(args.permit_ttl)
    store.records[permit] = shared
    store.wake_all(key, waiters)
    return shared.token


def give_up(store: Store, keys: tuple[str, ...], args: GiveUpLoad) -> int:
    """``load/give_up``: end a load without a value, and keep the reason for a while."""
    key, waiters, generations = keys
    generation = _generation(store, generations)
    found = _find_load(store, key, generation)
    if found is None or found.token != args.token:
        return 0
    del store.records[key]
    if args.reason_ttl:
        ends = monotonic() + args.reason_ttl / 1000
        store.records[key] = StoredValue(LOAD, FAILURE, generation, micros() // 1000, args.reason, ends)
    store.wake_all(key, waiters)
    return 1


def invalidate(store: Store, keys: tuple[str, ...], args: InvalidateValue) -> int:
    """``load/invalidate``: void the running load, and delete the value or let it become stale."""
    key, waiters, permit, lag_key, *value_key = keys
    store.records.pop(key, None)
    store.records.pop(permit, None)
    value_left, _ = store.read_value(value_key[0]) if value_key else (-2, None)
    stale_ttl, replica_lag = args
    if value_key and not stale_ttl:
        store.values.pop(value_key[0], None)
    elif value_key and (value_left == -1 or value_left > stale_ttl):
        store.values[value_key[0]] = store.values[value_key[0]][0], monotonic() + stale_ttl / 1000
    if replica_lag:
        store.records[lag_key] = StoredValue(LOAD, "", 0, micros() // 1000, "", monotonic() + replica_lag / 1000)
    store.wake_all(key, waiters)
    return int(value_left != -2)


def put(store: Store, keys: tuple[str, ...], args: PutValue) -> int:
    """``load/put``: void the running load, and store a value."""
    key, waiters, permit, value_key = keys
    store.records.pop(key, None)
    store.records.pop(permit, None)
    store.values.pop(value_key, None)
    if args.ttl:
        store.write_value(value_key, args.value, args.ttl)
    store.wake_all(key, waiters)
    return 1


def block(store: Store, keys: tuple[str, ...], args: BlockLoads) -> int:
    """``load/block``: void the running loads of some keys, and keep new ones out during a write."""
    generation, ends = _generation(store, keys[0]), monotonic() + args.lease / 1000
    for key, permit in zip(keys[1::2], keys[2::2], strict=True):
        store.records.pop(permit, None)
        store.records[key] = StoredValue(LOAD, args.token, generation, micros() // 1000, "", ends)
    return 1


def unblock(store: Store, keys: tuple[str, ...], args: UnblockLoads) -> int:
    """``load/unblock``: let the keys be loaded again after a write."""
    generation = _generation(store, keys[0])
    for key, waiters, permit in zip(keys[1::3], keys[2::3], keys[3::3], strict=True):
        store.records.pop(permit, None)
        found = _find_load(store, key, generation)
        if found is not None and (found.token == args.token or not found.token.startswith("w:")):
            del store.records[key]
            store.wake_all(key, waiters)
    return 1


def clear(store: Store, keys: tuple[str, ...], args: ClearLoads) -> str:
    """``load/clear``: void all running loads by starting a new generation."""
    return str(store.next_fence(keys[0]))
