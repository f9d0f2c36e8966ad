"""Invalidations and writes during loads: an older value is never stored. The basic cases are in test_every_cache.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks import LockBackendError
from django_redis_locks.cache import MISSING, get_or_load, invalidate, refresh
from tests.cache import backends
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import ON_REDIS, STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import before_command, clear_guard, fail_command, wait_until_idle, write_guard
from tests.probes.tuning import Tune


def test_follower_of_an_invalidated_load_loads_again(callers: Callers) -> None:
    """[S3] The load that it follows began before the invalidation, so that its value may be outdated."""
    loading = callers.begin_load("old", "new")
    (following,) = callers.follow(loading)
    callers.call(invalidate, "k", **at(HERE))
    assert loading.finish() == "old"
    assert following.result(PATIENCE).value == "new"
    assert caches[HERE].get("k") == "new"


def test_follower_of_an_unstored_load_that_another_process_invalidates_loads_again(callers: Callers) -> None:
    """[S3] The value of a void claim is outdated, even if it isn't to be stored."""
    loading = callers.begin_load("old", "new", store_if=lambda _: False)
    callers.call(invalidate, "k", **at(THERE))
    (following,) = callers.follow(loading, store_if=lambda _: False)
    assert loading.finish() == "old"
    assert following.result(PATIENCE).value == "new"


def test_caller_during_a_guarded_write_gets_the_written_value(callers: Callers) -> None:
    """[S4] It waits for the write instead of loading."""
    with write_guard("k", **at(HERE)):
        waiting = callers.start_waiter()
        caches[HERE].set("k", "written")
    assert waiting.finish() == "written"


def test_caller_after_a_clear_does_not_join_the_load(callers: Callers) -> None:
    """[S31] A new generation voids all loads, as after `delete_pattern`, or a clear of values that aren't beside the
    leases."""
    for cache in (HERE, THERE):
        loading = callers.begin_load("old", key=cache)
        with clear_guard(**at(cache)):
            pass
        assert callers.value(cache, "new", cache=cache) == "new", cache
        loading.finish()
        assert caches[HERE].get(cache) == "new", cache


def test_refresh_during_a_load_prevents_its_store(callers: Callers) -> None:
    """[S1] The load began before the refresh, so that its value may be older."""
    loading = callers.begin_load("old")
    assert callers.call(refresh, "k", callers.loader(Loader("new")), **at(THERE), ttl=60) == "new"
    loading.finish()
    assert caches[HERE].get("k") == "new"


def test_invalidation_during_the_refresh_of_a_stale_value_prevents_its_store(callers: Callers) -> None:
    """[S2] The refresh began before the invalidation: its claim is void."""
    callers.make_stale()
    loading = callers.begin_load("older", **STALE)
    callers.call(invalidate, "k", **at(THERE))
    assert callers.value("k", "new", cache=THERE, **STALE) == "new"
    assert loading.finish() == "older"
    assert callers.value("k", "x", **STALE) == "new"


def test_value_deleted_between_read_and_claim_is_not_passed_as_stale(
    redis_pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader must not receive it as the value to replace."""
    caches[HERE].set("k", "old", 500)  # less than `stale` is left
    before_command(monkeypatch, "load/claim", lambda: caches[THERE].delete("k"), cache=HERE)
    seen: list[Any] = []
    get_or_load("k", lambda context: seen.append(context.stale_value), cache=HERE, **STALE)
    assert seen == [MISSING]


@ON_REDIS
def test_invalidation_with_stale_keeps_the_old_value_as_stale(callers: Callers) -> None:
    """Callers that accept stale values get it while one loads."""
    callers.load("k", "old", **STALE)
    callers.call(invalidate, "unknown", "k", cache=HERE, stale=600)
    loading = callers.begin_load("new", **STALE)
    assert callers.value("k", "x", cache=THERE, **STALE) == "old"
    assert loading.finish() == "new"


def test_value_loaded_within_replica_lag_after_an_invalidation_is_kept_briefly(callers: Callers) -> None:
    """[S7] It may have been read from a replica that is behind."""
    for seconds in (0.3, 3.0, 20.0):  # after that time a value is kept for its ttl
        begin = monotonic()
        callers.call(invalidate, "k", **at(HERE), replica_lag=seconds)
        assert callers.value("k", "replica's", ttl=600, cache=THERE) == "replica's"
        if monotonic() < begin + seconds:
            break
    eventually(lambda: caches[HERE].get("k") is None)
    assert callers.value("k", "new", ttl=600) == "new"


def test_invalidation_in_locmem_is_atomic_with_the_store_of_a_load(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is checked and the value written in one step, so that an invalidation is before or after both."""
    settings.CACHES = {HERE: {"BACKEND": backends.LOCMEM, "LOCATION": "window"}}
    cache = caches[HERE]
    write, over = cache.set, threading.Event()
    seen: list[Any] = []

    def change() -> None:
        invalidate("k", cache=HERE)
        over.set()

    def stepped(*args: Any, **kwargs: Any) -> None:
        thread.start()
        over.wait(0.05)
        write(*args, **kwargs)
        seen.extend([cache.get("k")] if over.is_set() else [])

    thread = threading.Thread(target=change)
    monkeypatch.setattr(cache, "set", stepped)
    assert get_or_load("k", lambda: "old", cache=HERE, ttl=60) == "old"
    thread.join(PATIENCE)
    assert seen == []
    assert cache.get("k") is None


# With a cache that isn't on Redis, checking the claim and writing the value are two steps. A value that is invalidated
# in between is in the cache until a second check, after the write, removes it


in_files = pytest.mark.parametrize("cache_pair", [backends.files], ids=["files"], indirect=True)


class Steps:
    """Patches a cache to call functions just before and just after it is written."""

    def __init__(self, patch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object]) -> None:
        self.seen: list[Any] = []
        cache = caches[HERE]
        write, remove = cache.set, cache.delete

        def stepped(key: str, value: Any, *args: Any, **kwargs: Any) -> None:
            before()
            write(key, value, *args, **kwargs)
            self.seen.append(cache.get(key))
            after()

        def removed(key: str, *args: Any, **kwargs: Any) -> Any:
            self.seen.append(cache.get(key))
            return remove(key, *args, **kwargs)

        patch.setattr(cache, "set", stepped)
        patch.setattr(cache, "delete", removed)


SEEN = {"load": [None], "before": [None, "old", "old"], "after": ["old", "old", None]}
"""The values in the cache at each moment: what the invalidation removes, what is written, and what is removed again."""


@in_files
@pytest.mark.parametrize("when", SEEN)
def test_invalidation_between_check_and_write_leaves_no_old_value(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """[S1] The old value is in the cache for two steps at most, and removed when the load has ended."""

    def moment(name: str) -> None:
        if name == when:
            invalidate("k", **at(THERE))  # as another process

    steps = Steps(monkeypatch, lambda: moment("before"), lambda: moment("after"))

    def load() -> str:
        moment("load")
        return "old"

    assert get_or_load("k", load, **at(HERE), ttl=60) == "old"  # its own caller gets it
    assert steps.seen == SEEN[when]
    assert caches[HERE].get("k") is None
    assert get_or_load("k", lambda: "new", **at(HERE), ttl=60) == "new"


@in_files
def test_old_value_that_could_not_be_removed_is_removed_later(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """[S6] Otherwise callers would get it for its ttl."""
    tune(min_invalidation_retry_delay=0.05)
    cache, write = caches[HERE], caches[HERE].set

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("full")

    def stepped(*args: Any, **kwargs: Any) -> None:
        invalidate("k", **at(THERE))
        monkeypatch.setattr(cache, "delete", refuse)
        write(*args, **kwargs)

    monkeypatch.setattr(cache, "set", stepped)
    with pytest.raises(OSError, match="full"):
        get_or_load("k", lambda: "old", **at(HERE), ttl=60)
    eventually(lambda: cache.get("k") is None)


@in_files
@pytest.mark.parametrize("name", ["load/store", "load/renew"])
def test_check_of_a_claim_without_a_reply_leaves_neither_value_nor_claim(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is unknown whether the claim was still valid."""
    fail_command(monkeypatch, name, LockBackendError("no answer", outcome_unknown=True, transient=True), **at(HERE))
    assert get_or_load("k", lambda: "old", **at(HERE), ttl=60) == "old"
    monkeypatch.undo()
    assert caches[HERE].get("k") is None
    wait_until_idle(**at(HERE))
    assert get_or_load("k", lambda: "new", **at(THERE), ttl=60, wait=0, on_timeout="raise") == "new"
