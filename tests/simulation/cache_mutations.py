"""Mutations of cache loads. The simulation must report a violated rule for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory import loads
from django_redis_locks.backends.memory.store import Store
from django_redis_locks.cache.loading import groups, store
from django_redis_locks.cache.loading.effects import Fetch
from django_redis_locks.cache.loading.invalidation_retries import Retries
from django_redis_locks.cache.loading.singleflight import RETRY, LoadOutcome, SingleFlight
from django_redis_locks.cache.values import CachedValue
from django_redis_locks.core.steps.loads import InvalidateValue, StoreValue

Patch = pytest.MonkeyPatch


def store_without_claim(patch: Patch) -> None:
    """[S1] A value is stored without a valid claim."""

    def end(store: Any, keys: tuple[str, ...], args: StoreValue) -> int:
        store.records.pop(keys[0], None)
        if len(keys) > 5 and args.ttl:
            store.values[keys[5]] = args.value, None
        store.wake_all(keys[0], keys[1])
        return 1

    patch.setitem(memory._steps, "load/store", end)


def claim_survives_clear(patch: Patch) -> None:
    """[S31] A claim from before a clear of the cache stays in force."""
    patch.setattr(loads, "_find_load", lambda store, key, generation: store.find(key))


def claim_survives_invalidation(patch: Patch) -> None:
    """[S1] An invalidation deletes the value, and leaves the claim in force."""

    def fence(store: Any, keys: tuple[str, ...], args: InvalidateValue) -> int:
        lease = store.records.get(keys[0])
        found = loads.invalidate(store, keys, args)
        if lease is not None:
            store.records[keys[0]] = lease
        return found

    patch.setitem(memory._steps, "load/invalidate", fence)


def claim_survives_write(patch: Patch) -> None:
    """[S4] A write leaves running loads in force."""
    patch.setitem(memory._steps, "load/block", lambda store, keys, args: 1)


def invalid_value_shared(patch: Patch) -> None:
    """[S3] Followers of a load with a void claim get its value."""
    patch.setattr(
        LoadOutcome, "leader_only", property(lambda self: False, lambda self, leader_only: None), raising=False
    )


def no_reread(patch: Patch) -> None:
    """On separate servers, a value stored between the read and the claim is ignored."""
    patch.setattr(CachedValue, "newer_than", lambda self, before: False)


def invalid_value_not_deleted(patch: Patch) -> None:
    """On separate servers, a value stored under a void claim stays."""
    patch.setattr(store, "Delete", Fetch)


def no_waiter_is_woken(patch: Patch) -> None:
    """[S24] The end of a load wakes no waiter."""
    patch.setattr(Store, "wake_all", lambda self, lock, waiters: None)


def load_never_finished(patch: Patch) -> None:
    """[S21] A load whose leader was interrupted never ends for its followers."""
    patch.setattr(
        SingleFlight,
        "finish",
        lambda self, key, inflight, outcome, finish=SingleFlight.finish: (
            outcome is RETRY or finish(self, key, inflight, outcome)
        ),
    )


def late_caller_gets_outcome(patch: Patch) -> None:
    """[S3] A caller that joins after the deciding read was sent gets its outcome."""
    patch.setattr(LoadOutcome, "is_valid_since", lambda self, begin: not self.leader_only)


def running_load_not_forgotten(patch: Patch) -> None:
    """[S3] A caller after an invalidation in the same process joins a load that began before it."""
    patch.setattr(SingleFlight, "forget", lambda self, key: None)
    late_caller_gets_outcome(patch)


def failed_invalidation_not_retried(patch: Patch) -> None:
    """[S6] A failed invalidation is lost."""
    patch.setattr(Retries, "add", lambda *_, **__: None)


def stamps_not_compared(patch: Patch) -> None:
    """A value is served although its group was invalidated."""

    def value_of(request: Any, found: Any, value_of: Any = groups._value_of) -> Any:
        cached = groups.read_envelope(found[request.user_key][1])
        return cached._replace(stamps=value_of(request, found).stamps)

    patch.setattr(groups, "_value_of", value_of)


def stamps_not_read_at_the_end(patch: Patch) -> None:
    """A load whose group was invalidated is shared with callers that began after that."""
    patch.setattr(store.LoadCompletion, "_store_if_unchanged", lambda self, claim, storing: storing)


MUTATIONS: list[tuple[Callable[[Patch], None], str, str]] = [
    (store_without_claim, "the cache holds|is given", ""),
    (claim_survives_clear, "the cache holds|is given", ""),
    (claim_survives_invalidation, "the cache holds|is given", ""),
    (claim_survives_write, "the cache holds|is given", "written"),
    (invalid_value_shared, "is given", ""),
    (late_caller_gets_outcome, "is given", "invalidated"),
    (running_load_not_forgotten, "is given", "invalidated"),
    (failed_invalidation_not_retried, "the cache holds", "invalidated, an outage"),
    (no_reread, "it was loaded", ""),
    (invalid_value_not_deleted, "the cache holds", ""),
    (no_waiter_is_woken, "nothing goes wrong", ""),
    (stamps_not_compared, "whose group was invalidated", "group"),
    (stamps_not_read_at_the_end, "whose group was invalidated", "group"),
    (load_never_finished, "a load is left|never ends|nothing goes wrong", ""),
]
"""Each mutation with a pattern of the violated rule, and a scene if it is rare in the others."""
