"""Invalidations and writes while loads run: what is older is never stored. The simplest cases are in test_every_cache."""

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
    """[S3] What it joined was older than the invalidation: it isn't shared."""
    loading = callers.begin("old", "new")
    (following,) = callers.follow(loading)
    callers.call(invalidate, "k", **at(HERE))
    assert loading.finish() == "old"
    assert following.result(PATIENCE).value == "new"
    assert caches[HERE].get("k") == "new"


def test_caller_during_a_write_gets_what_is_written(callers: Callers) -> None:
    """[S4] It doesn't load during the write."""
    with write_guard("k", **at(HERE)):
        waiting = callers.wait_for()
        caches[HERE].set("k", "written")
    assert waiting.finish() == "written"


def test_caller_after_a_clear_does_not_join_the_load(callers: Callers) -> None:
    """[S31] A new generation alone voids it: a pattern was deleted, or the values are on another store than the leases."""
    for cache in (HERE, THERE):
        loading = callers.begin("old", key=cache)
        with clear_guard(**at(cache)):
            pass
        assert callers.value(cache, "new", cache=cache) == "new", cache
        loading.finish()
        assert caches[HERE].get(cache) == "new", cache


def test_refresh_during_load_wins(callers: Callers) -> None:
    """[S1] What began before the refresh may be older."""
    loading = callers.begin("old")
    assert callers.call(refresh, "k", callers.loader(Loader("new")), **at(THERE), ttl=60) == "new"
    loading.finish()
    assert caches[HERE].get("k") == "new"


def test_invalidation_during_refresh_of_stale_value_wins(callers: Callers) -> None:
    """[S2] The refresh began before it: its claim is void."""
    callers.make_stale()
    loading = callers.begin("older", **STALE)
    callers.call(invalidate, "k", **at(THERE))
    assert callers.value("k", "new", cache=THERE, **STALE) == "new"
    assert loading.finish() == "older"
    assert callers.value("k", "x", **STALE) == "new"


def test_value_deleted_between_the_look_and_the_claim_is_not_stale(
    redis_pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader must not take it for the value that it replaces."""
    caches[HERE].set("k", "old", 500)  # less than `stale` is left
    before_command(monkeypatch, "load/claim", lambda: caches[THERE].delete("k"), cache=HERE)
    seen: list[Any] = []
    get_or_load("k", lambda context: seen.append(context.stale_value), cache=HERE, **STALE)
    assert seen == [MISSING]


@ON_REDIS
def test_invalidation_with_stale_keeps_the_old_value_for_it(callers: Callers) -> None:
    """A caller that takes stale values is served the old one, while one loads."""
    callers.load("k", "old", **STALE)
    callers.call(invalidate, "unknown", "k", cache=HERE, stale=600)
    loading = callers.begin("new", **STALE)
    assert callers.value("k", "x", cache=THERE, **STALE) == "old"
    assert loading.finish() == "new"


def test_replica_lag_keeps_what_is_loaded_only_briefly(callers: Callers) -> None:
    """[S7] What is loaded right after an invalidation may be what a replica still has."""
    for seconds in (0.3, 3.0, 20.0):  # what is loaded later than that may be kept
        begin = monotonic()
        callers.call(invalidate, "k", **at(HERE), replica_lag=seconds)
        assert callers.value("k", "replica's", ttl=600, cache=THERE) == "replica's"
        if monotonic() < begin + seconds:
            break
    eventually(lambda: caches[HERE].get("k") is None)
    assert callers.value("k", "new", ttl=600) == "new"


def test_invalidation_of_locmem_leaves_no_window(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S2d] The claim is checked and the value written in one step: an invalidation comes before it, or after it."""
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


# A cache that isn't on Redis is written in two steps: what is invalidated between the check and the write comes back for a
# moment, and the check after the write takes it out again


in_files = pytest.mark.parametrize("cache_pair", [backends.files], ids=["files"], indirect=True)


class Steps:
    """A cache that lets others go first, just before and just after it is written."""

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
"""What the invalidation removes, what is written, and what is taken out again: all that was in the cache at such a moment."""


@in_files
@pytest.mark.parametrize("when", SEEN)
def test_invalidation_around_the_check_and_the_write_leaves_no_old_value(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """[S1] The old value was there for the time of two steps at most, and is gone when the load has ended."""

    def moment(name: str) -> None:
        if name == when:
            invalidate("k", **at(THERE))  # by another process

    steps = Steps(monkeypatch, lambda: moment("before"), lambda: moment("after"))

    def load() -> str:
        moment("load")
        return "old"

    assert get_or_load("k", load, **at(HERE), ttl=60) == "old"  # to its own caller
    assert steps.seen == SEEN[when]
    assert caches[HERE].get("k") is None
    assert get_or_load("k", lambda: "new", **at(HERE), ttl=60) == "new"


@in_files
def test_old_value_that_could_not_be_taken_out_is_taken_out_later(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch, tune: Tune
) -> None:
    """[S6] It would be served for its ttl."""
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
def test_check_without_an_answer_leaves_neither_value_nor_claim(
    cache_pair: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It isn't known whether the claim was still in force."""
    fail_command(monkeypatch, name, LockBackendError("no answer", outcome_unknown=True, transient=True), **at(HERE))
    assert get_or_load("k", lambda: "old", **at(HERE), ttl=60) == "old"
    monkeypatch.undo()
    assert caches[HERE].get("k") is None
    wait_until_idle(**at(HERE))
    assert get_or_load("k", lambda: "new", **at(THERE), ttl=60, wait=0, on_timeout="raise") == "new"
