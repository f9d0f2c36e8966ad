"""Mutations of cache loads, each of which breaks a rule that the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory import loads
from django_redis_locks.backends.memory.store import Store
from django_redis_locks.cache.loading import run as run_load
from django_redis_locks.cache.loading import store
from django_redis_locks.cache.loading.effects import Fetch
from django_redis_locks.cache.loading.invalidation_retries import Retries
from django_redis_locks.cache.loading.singleflight import RETRY, LoadOutcome, SingleFlight
from django_redis_locks.cache.values import NOT_FOUND

Patch = pytest.MonkeyPatch


def no_token(patch: Patch) -> None:
    """[S1] A value is stored without a valid claim."""

    def end(store: Any, keys: tuple[str, ...], token: str, ttl_ms: int, value: Any, by_permit: int) -> int:
        store.records.pop(keys[0], None)
        if len(keys) > 5 and ttl_ms:
            store.values[keys[5]] = value, None
        store.wake_all(keys[0], keys[1])
        return 1

    patch.setitem(memory._steps, "load/store", end)


def no_generation(patch: Patch) -> None:
    """[S31] A claim from before a clear of the cache stays in force."""
    patch.setattr(loads, "_find_load", lambda store, key, generation: store.find(key))


def no_fence(patch: Patch) -> None:
    """[S1] An invalidation deletes the value, and leaves the claim in force."""

    def fence(store: Any, keys: tuple[str, ...], *args: int) -> int:
        lease = store.records.get(keys[0])
        found = loads.invalidate(store, keys, *args)
        if lease is not None:
            store.records[keys[0]] = lease
        return found

    patch.setitem(memory._steps, "load/invalidate", fence)


def no_block(patch: Patch) -> None:
    """[S4] A write leaves running loads in force."""
    patch.setitem(memory._steps, "load/block", lambda store, keys, token, lease: 1)


def shared_by_all(patch: Patch) -> None:
    """[S3] Followers of a load with a void claim get its value."""
    patch.setattr(
        LoadOutcome, "leader_only", property(lambda self: False, lambda self, leader_only: None), raising=False
    )


def no_second_look(patch: Patch) -> None:
    """On separate servers, a value stored between the read and the claim is ignored."""

    def reread(call: Any, claim: Any) -> Any:
        return NOT_FOUND
        yield

    patch.setattr(run_load, "reread", reread)


def no_removal(patch: Patch) -> None:
    """On separate servers, a value stored under a void claim stays."""
    patch.setattr(store, "Delete", Fetch)


def nobody_is_woken(patch: Patch) -> None:
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


def never_too_late(patch: Patch) -> None:
    """[S3] A caller that joins after the deciding read was sent gets its outcome."""
    patch.setattr(LoadOutcome, "is_valid_since", lambda self, begin: not self.leader_only)


def not_forgotten(patch: Patch) -> None:
    """[S3] A caller after an invalidation in the same process joins a load that began before it."""
    patch.setattr(SingleFlight, "forget", lambda self, key: None)
    never_too_late(patch)


def not_repeated(patch: Patch) -> None:
    """[S6] An invalidation that failed is lost."""
    patch.setattr(Retries, "add", lambda *_, **__: None)


MUTATIONS: list[tuple[Callable[[Patch], None], str, str]] = [
    (no_token, "the cache holds|is given", ""),
    (no_generation, "the cache holds|is given", ""),
    (no_fence, "the cache holds|is given", ""),
    (no_block, "the cache holds|is given", "written"),
    (shared_by_all, "is given", ""),
    (never_too_late, "is given", "invalidated"),
    (not_forgotten, "is given", "invalidated"),
    (not_repeated, "the cache holds", "invalidated, an outage"),
    (no_second_look, "it was loaded", ""),
    (no_removal, "the cache holds", ""),
    (nobody_is_woken, "nothing goes wrong", ""),
    (load_never_finished, "a load is left|never ends|nothing goes wrong", ""),
]
"""Each with a pattern of the rule that breaks, and the scene to run if it is rare in the others."""
