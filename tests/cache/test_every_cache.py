"""The main guarantees of loads, with every kind of cache, for threads and tasks."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.core.cache import caches
from django.utils.functional import lazystr

from django_redis_locks.cache import LoadFailed, get_or_load_many, invalidate, refresh
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import EACH_CACHE, STALE, Callers, Loader
from tests.contract.matrix import PATIENCE

pytestmark = EACH_CACHE


def test_hit_calls_no_loader(callers: Callers) -> None:
    first, again = Loader({"n": 1}), Loader({"n": 2})
    assert callers.load("k", first).source == "loaded"
    found = callers.load("k", again)
    assert (found.value, found.source, again.calls) == ({"n": 1}, "hit", 0)
    assert caches[HERE].get("k") == {"n": 1}  # the plain value: other code can read it


def test_concurrent_callers_of_one_process_load_once(callers: Callers) -> None:
    """[V1] [S24] Followers send no requests."""
    loading = callers.begin_load("value")
    following = callers.follow(loading, 9)
    assert loading.finish() == "value"
    results = [future.result(PATIENCE) for future in following]
    assert {(result.value, result.source) for result in results} == {("value", "waited")}
    assert loading.loader.calls == 1


def test_concurrent_callers_of_two_processes_load_once(callers: Callers) -> None:
    """[V13] The second one waits for a notification of the store."""
    loading = callers.begin_load("value")
    waiting = callers.start_waiter()
    assert loading.finish() == waiting.finish() == "value"
    assert loading.loader.calls == 1


def test_invalidation_during_a_load_prevents_its_store(callers: Callers, counted: Any) -> None:
    """[S1] [V7] [V15] [V24] The caller that loads gets the old value; the cache doesn't store it."""
    for number, cache in enumerate((HERE, THERE), 1):
        loading = callers.begin_load("old", key=cache)
        callers.call(invalidate, cache, **at(cache))
        assert callers.value(cache, "new", cache=cache) == "new"
        assert loading.finish() == "old"
        assert caches[HERE].get(cache) == "new", cache
        assert callers.value(cache, "later") == "new", cache
        assert counted()["fenced"] == number


def test_none_is_cached_as_a_value(callers: Callers) -> None:
    """[S15] So that a missing row isn't queried each time."""
    loader = Loader(None, "now it exists")
    assert callers.value("k", loader) is None
    found = callers.load("k", loader, cache=THERE)
    assert (found.value, found.source, loader.calls) == (None, "hit", 1)


def test_value_with_no_ttl_a_fraction_or_a_year_is_stored(callers: Callers) -> None:
    """[S47] memcached has whole seconds, and a limit of thirty days."""
    for number, ttl in enumerate((None, 30.5, 86400 * 60)):
        callers.load(f"k{number}", "value", ttl=ttl)
        assert callers.load(f"k{number}", "other", ttl=ttl).source == "hit", ttl


def test_key_that_is_no_str_is_converted_as_by_django(callers: Callers) -> None:
    for key in (1, 0, lazystr("lazy")):
        assert callers.value(key, "value") == "value", key
        assert caches[HERE].get(key) == "value", key
        many = callers.call(get_or_load_many, [key, "x"], lambda keys: dict.fromkeys(keys, "other"), **at(HERE))
        assert many == {key: "value", "x": "other"}
        callers.call(refresh, key, callers.loader(Loader("new")), **at(HERE), ttl=60)
        assert caches[HERE].get(key) == "new", key
        callers.call(invalidate, key, **at(HERE))
        assert caches[HERE].get(key) is None, key


def test_value_that_cannot_be_pickled_raises_for_all_callers(callers: Callers) -> None:
    """[S46] [S13] They raise the cache's own error; followers don't load again."""
    loading = callers.begin_load(threading.Lock)
    (following,) = callers.follow(loading)
    with pytest.raises(TypeError, match="cannot pickle"):
        loading.finish()
    with pytest.raises(TypeError, match="cannot pickle"):
        following.result(PATIENCE)
    assert loading.loader.calls == 1


def test_failure_with_error_ttl_is_raised_in_another_process(callers: Callers) -> None:
    """[S13] [S5] A waiter there raises it without loading."""
    loading = callers.begin_load(ValueError("no rates today"), error_ttl=30)
    waiting = callers.start_waiter(error_ttl=30)
    with pytest.raises(ValueError, match="no rates today"):
        loading.finish()
    with pytest.raises((LoadFailed, ValueError), match="no rates today"):
        waiting.finish()
    with pytest.raises(LoadFailed, match="ValueError: no rates today"):
        callers.load("k", "other", cache=THERE, error_ttl=30)
    assert callers.value("k", "other", cache=THERE) == "other"


def test_missing_values_of_many_keys_are_loaded_in_one_call(callers: Callers) -> None:
    """[S17] The result has the order of the keys; values that the loader doesn't return are None."""
    asked: list[list[str]] = []

    def loader(keys: list[str]) -> dict[str, Any]:
        asked.append(keys)
        return {key: key.upper() for key in keys if key != "d"}

    callers.load("b", "there")
    found = callers.call(get_or_load_many, ["c", "b", "a", "c", "d"], loader, **at(HERE), ttl=60)
    assert list(found.items()) == [("c", "C"), ("b", "there"), ("a", "A"), ("d", None)]
    assert asked == [["c", "a", "d"]]
    assert callers.call(get_or_load_many, ["a", "b", "c", "d"], loader, **at(THERE), ttl=60) == found
    assert len(asked) == 1
    assert callers.call(get_or_load_many, [], loader, **at(HERE)) == {}


def test_stale_value_is_returned_while_one_caller_loads(callers: Callers) -> None:
    """No other caller waits, in this process or another one."""
    callers.make_stale()
    loading = callers.begin_load("new", **STALE)
    for cache in (HERE, THERE):
        found = callers.load("k", "other", cache=cache, **STALE)
        assert (found.value, found.source) == ("old", "stale"), cache
        assert found.fresh_for < 0
    assert loading.finish() == "new"
    assert callers.load("k", "other", cache=THERE, **STALE).source == "hit"
    assert loading.loader.calls == 1
