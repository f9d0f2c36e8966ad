"""How long values and failures are kept: ttl, none_ttl, error_ttl, jitter, early refresh, and options set by the
loader."""

from __future__ import annotations

import traceback
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from django_redis_locks.cache import LoadContext, LoadFailed, XFetch, get_or_load, get_or_load_many, invalidate
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import STALE, Callers, Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import is_same_server, seconds_learned


def unstored(context: Any) -> str:
    context.skip_store()
    return "unstored"


def test_none_is_kept_for_none_ttl_and_no_longer_than_a_value(callers: Callers) -> None:
    """[S16]"""
    loader = Loader(None, "now it exists", None, "now it exists")
    assert callers.value("unkept", loader, ttl=600, none_ttl=0) is None
    assert callers.value("unkept", loader) == "now it exists"
    assert callers.value("brief", loader, ttl=600, none_ttl=0.05, jitter=0) is None
    eventually(lambda: callers.value("brief", loader) == "now it exists")
    assert callers.load("k", None, ttl=30, none_ttl=600, jitter=0).fresh_for == 30


def test_loader_sets_the_ttl_of_its_value(callers: Callers) -> None:
    def load(context: Any) -> str:
        context.ttl = timedelta(milliseconds=50)
        return "brief"

    assert callers.load("k", load, ttl=600, jitter=0).fresh_for == 0.05
    eventually(lambda: caches[HERE].get("k") is None)


def test_function_as_ttl_decides_for_each_value(callers: Callers) -> None:
    """None has its own option, and what the loader sets precedes."""

    def sets_ttl(context: Any) -> int:
        context.ttl = 7
        return 600

    options: dict[str, Any] = {"ttl": lambda seconds: seconds, "jitter": 0, "none_ttl": 9, "early": XFetch()}
    for number, (loader, fresh_for) in enumerate(((300, 300), (timedelta(hours=1), 3600), (None, 9), (sets_ttl, 7))):
        assert callers.load(f"k{number}", loader, **options).fresh_for == fresh_for
    assert callers.load("ever", "value", ttl=lambda _: None).fresh_for is None
    assert callers.load("default", "value", jitter=0, ttl=lambda _: DEFAULT_TIMEOUT).fresh_for == 300
    assert callers.value("unstored", 0, **options) == 0
    with pytest.raises(ValueError, match="ttl is a number of seconds"):
        callers.load("wrong", "one hour", **options)
    assert [key for key in ("k0", "unstored", "wrong") if caches[HERE].get(key, "none") != "none"] == ["k0"]
    many = callers.call(get_or_load_many, ["a", "bb"], lambda _: {"a": 10, "bb": 20}, info=True, **at(HERE), **options)
    assert [found.fresh_for for found in many.values()] == [10, 20]


def test_value_that_store_if_refuses_is_returned_and_not_stored(callers: Callers) -> None:
    """[S40] Callers of other processes don't wait for it. None is passed to it, too."""
    options: dict[str, Any] = {"store_if": bool, "cache": THERE}
    for number, (value, stored) in enumerate((("full", True), ("", False), (None, False))):
        assert callers.value(f"k{number}", value, **options) == value
        assert callers.value(f"k{number}", "next", **options) == (value if stored else "next")
    many = callers.call(get_or_load_many, ["a", "b"], lambda _: {"a": 1}, **at(HERE), store_if=bool)
    assert many == {"a": 1, "b": None}
    assert (caches[HERE].get("a"), caches[HERE].get("b", "none")) == (1, "none")


@pytest.mark.parametrize("ttl", [0, -1, -0.5])
def test_callers_with_a_ttl_of_zero_load_for_themselves(callers: Callers, ttl: float) -> None:
    """[S47] A load that began before may have read older data. Nor do other callers wait for theirs."""
    keeping = callers.begin_load("kept")
    loading = callers.begin_load("older", ttl=ttl)
    for cache in (HERE, THERE):
        assert callers.value("k", "newer", ttl=ttl, cache=cache) == "newer"
    load = lambda keys: dict.fromkeys(keys, "newest")  # noqa: E731
    assert callers.call(get_or_load_many, ["k"], load, **at(HERE), ttl=ttl) == {"k": "newest"}
    assert caches[HERE].get("k") is None
    assert (keeping.finish(), loading.finish(), caches[HERE].get("k")) == ("kept", "older", "kept")


def test_callers_do_not_wait_for_a_value_that_the_loader_does_not_store(callers: Callers) -> None:
    """[S40] Waiters would load it one after the other. [S10] Later callers load as usual."""
    assert callers.value("k", unstored, ttl=600) == "unstored"
    assert caches[HERE].get("k") is None
    assert callers.load("k", "stored", cache=THERE).source == "loaded"
    assert caches[HERE].get("k") == "stored"


def test_jitter_shortens_a_ttl_and_never_extends_it(redis_pair: str, redis_client: Any) -> None:
    """[S33] By a random share of the ttl, so that values loaded together don't expire together."""
    begin = monotonic()
    for number in range(30):
        get_or_load(f"k{number}", lambda: 1, cache=HERE, ttl=100, stale=50, jitter=0.2)
    ends = [redis_client.pttl(f":1:k{number}") for number in range(30)]
    passed = 1000 * (monotonic() - begin)
    assert max(ends) <= 150_000
    assert min(ends) + passed > 129_900
    assert len({end // 1000 for end in ends}) > 5


def test_early_refresh_by_fraction_is_done_by_one_caller(callers: Callers) -> None:
    options: dict[str, Any] = {"ttl": 60, "jitter": 0, "early": 0.0001, "stale": 0}
    # in a cache without TTLs an envelope contains the age of the value
    callers.load("k", "old", **(options if not is_same_server(**at(HERE)) else {"jitter": 0}))
    begin = monotonic()
    eventually(lambda: monotonic() - begin > 0.03)  # 6 ms are a ten-thousandth of the ttl
    loading = callers.begin_load("new", **options)
    found = callers.load("k", "other", cache=THERE, **options)
    assert (found.value, found.source) == ("old", "hit")
    assert loading.finish() == "new"
    assert loading.loader.calls == 1


def test_duration_of_a_failed_load_is_not_stored_for_early_refresh(redis_pair: str) -> None:
    """[S51] Only the duration of successful loads is stored."""
    with pytest.raises(ValueError, match="x"):
        get_or_load("slow:1", Loader(ValueError("x")), cache=HERE, early=XFetch())
    assert seconds_learned("slow") is None
    get_or_load("slow:2", Loader("v"), cache=HERE, early=XFetch())
    assert (seconds_learned("slow") or PATIENCE) < PATIENCE


# Failures: which callers raise them, how long they are kept, and that no claim remains


def test_next_caller_loads_after_a_failure_without_error_ttl_or_after_an_invalidation(callers: Callers) -> None:
    """[S13] It loads at once."""
    for error_ttl, cache in ((0, THERE), (30, HERE)):
        with pytest.raises(ValueError, match="once"):
            callers.load(cache, ValueError("once"), error_ttl=error_ttl)
        if error_ttl:
            callers.call(invalidate, cache, **at(HERE))
        assert callers.value(cache, "value", cache=cache) == "value"


class NoRates(Exception):
    def __init__(self, currency: str) -> None:
        super().__init__(f"no rates of {currency}")
        self.currency = currency


def test_exception_of_a_loader_is_raised_by_each_follower_as_a_copy(callers: Callers) -> None:
    """[S5] The traceback of a copy doesn't grow with the number of followers. Later callers load."""
    for error in (NoRates("EUR"), OSError(2, "no such file", "rates")):
        loading = callers.begin_load(error)
        following = callers.follow(loading, 5)
        with pytest.raises(type(error)):
            loading.finish()
        failures = [future.exception(PATIENCE) for future in following]
        assert len({id(failure) for failure in [*failures, error]}) == 6
        for failure in failures:
            assert (type(failure), str(failure)) == (type(error), str(error))
            assert vars(failure) == vars(error)
            names = [frame.name for frame in traceback.extract_tb(failure.__traceback__)]
            assert names.count("_end") == 1
            assert len(names) < 40
        for cache in (HERE, THERE):
            with pytest.raises(ZeroDivisionError):
                callers.load("k", ZeroDivisionError(), cache=cache)


def test_failure_keeps_the_stale_value(callers: Callers, counted: Any) -> None:
    """[S14] [V8] For a short time no process calls the loader again; then one does."""
    callers.make_stale()
    loader = Loader(ValueError("no rates today"), "new")
    found = callers.load("k", loader, **STALE, error_ttl=30)
    assert (found.value, found.source) == ("old", "stale")
    for cache in (HERE, THERE):
        assert callers.value("k", loader, cache=cache, **STALE) == "old"
    assert loader.calls == 1
    assert counted()["failures"] == 1
    callers.make_stale("brief")
    loader.calls = 0
    callers.load("brief", loader, **STALE, error_ttl=0.05)
    eventually(lambda: callers.value("brief", loader, **STALE) == "new")


def test_context_fail_returns_the_stale_value_or_raises(callers: Callers) -> None:
    """Without stale_if_error it raises."""

    def load(context: Any) -> None:
        context.fail(f"half of it is missing, keep {context.stale_value}")

    callers.make_stale()
    assert callers.value("k", load, **STALE) == "old"
    with pytest.raises(LoadFailed, match="half of it is missing"):
        callers.load("other", load, **STALE)
    callers.make_stale("third")
    with pytest.raises(ValueError, match="no rates"):
        callers.load("third", ValueError("no rates"), **STALE, stale_if_error=False)


def test_wrong_ttl_set_by_the_loader_is_a_failure_of_the_load(cache_pair: str) -> None:
    """No claim remains that is renewed without end."""
    for number, ttl in enumerate(("60", float("inf"), True)):
        key = f"k{number}"

        def loader(context: LoadContext, ttl: Any = ttl) -> str:
            context.ttl = ttl
            return "value"

        with pytest.raises(ValueError, match="ttl is a number of seconds"):
            get_or_load(key, loader, **at(HERE), ttl=60, error_ttl=0)
        found = get_or_load(key, lambda: "other", **at(THERE), ttl=60, wait=20, info=True)
        assert (found.value, found.source) == ("other", "loaded"), ttl
