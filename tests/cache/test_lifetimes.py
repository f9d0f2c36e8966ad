"""For how long a value is kept: ttl, none_ttl, what the loader says, jitter, early refreshes; and loaders that fail."""

from __future__ import annotations

import traceback
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import LoadContext, LoadFailed, get_or_load, invalidate
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


def test_value_without_a_ttl_is_shared_and_not_stored(callers: Callers) -> None:
    """[S47] Another process doesn't wait for it."""
    for ttl in (0, -1, -0.5):
        loading = callers.begin("value", ttl=ttl)
        (following,) = callers.follow(loading, ttl=ttl)
        assert callers.value("k", "theirs", ttl=ttl, cache=THERE) == "theirs", ttl
        assert loading.finish() == following.result(PATIENCE).value == "value", ttl
        assert caches[HERE].get("k") is None, ttl


def test_value_that_the_loader_does_not_store_is_not_waited_for(callers: Callers) -> None:
    """[S40] Otherwise all waiters would load one after the other. [S10] Later callers aren't concerned."""
    assert callers.value("k", unstored, ttl=600) == "unstored"
    assert caches[HERE].get("k") is None
    assert callers.load("k", "stored", cache=THERE).source == "loaded"
    assert caches[HERE].get("k") == "stored"


def test_jitter_ends_values_earlier_and_never_later(redis_pair: str, direct: Any) -> None:
    """[S33] A random share of the ttl less, so that what was loaded together doesn't end together."""
    begin = monotonic()
    for number in range(30):
        get_or_load(f"k{number}", lambda: 1, cache=HERE, ttl=100, stale=50, jitter=0.2)
    ends = [direct.pttl(f":1:k{number}") for number in range(30)]
    passed = 1000 * (monotonic() - begin)
    assert max(ends) <= 150_000
    assert min(ends) + passed > 129_900
    assert len({end // 1000 for end in ends}) > 5


def test_early_fraction_lets_one_caller_load(callers: Callers) -> None:
    options: dict[str, Any] = {"ttl": 60, "jitter": 0, "early": 0.0001, "stale": 0}
    # an envelope tells the age of a value in a cache that doesn't
    callers.load("k", "old", **(options if not is_same_server(**at(HERE)) else {"jitter": 0}))
    begin = monotonic()
    eventually(lambda: monotonic() - begin > 0.03)  # 6 ms are a ten-thousandth of the ttl
    loading = callers.begin("new", **options)
    found = callers.load("k", "other", cache=THERE, **options)
    assert (found.value, found.source) == ("old", "hit")
    assert loading.finish() == "new"
    assert loading.loader.calls == 1


def test_duration_of_a_failed_load_is_not_learned(redis_pair: str) -> None:
    """[S51] Only what a loader took that brought a value."""
    with pytest.raises(ValueError, match="x"):
        get_or_load("slow:1", Loader(ValueError("x")), cache=HERE)
    assert seconds_learned("slow") is None
    get_or_load("slow:2", Loader("v"), cache=HERE)
    assert (seconds_learned("slow") or PATIENCE) < PATIENCE


# Failures: which callers they reach, for how long they are remembered, and that no claim is left


def test_failure_is_forgotten_without_error_ttl_or_by_an_invalidation(callers: Callers) -> None:
    """[S13] The next caller tries at once."""
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


def test_exception_of_a_loader_is_raised_by_its_followers_as_a_copy(callers: Callers) -> None:
    """[S5] Each gets a copy of the error, whose traceback doesn't grow with their number. Later callers load."""
    for error in (NoRates("EUR"), OSError(2, "no such file", "rates")):
        loading = callers.begin(error)
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


def test_failure_leaves_the_stale_value(callers: Callers, counted: Any) -> None:
    """[S14] [V8] The loader isn't called again for a while, here or elsewhere; then it is."""
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


def test_context_fail_gives_the_stale_value_or_raises(callers: Callers) -> None:
    """Without stale_if_error every failure is raised."""

    def load(context: Any) -> None:
        context.fail(f"half of it is missing, keep {context.stale_value}")

    callers.make_stale()
    assert callers.value("k", load, **STALE) == "old"
    with pytest.raises(LoadFailed, match="half of it is missing"):
        callers.load("other", load, **STALE)
    callers.make_stale("third")
    with pytest.raises(ValueError, match="no rates"):
        callers.load("third", ValueError("no rates"), **STALE, stale_if_error=False)


def test_ttl_of_context_that_is_none_is_a_failure_of_the_loader(cache_pair: str) -> None:
    """No claim is left that is renewed without end."""
    for number, ttl in enumerate(("60", float("inf"), True)):
        key = f"k{number}"

        def loader(context: LoadContext, ttl: Any = ttl) -> str:
            context.ttl = ttl
            return "value"

        with pytest.raises(ValueError, match="ttl is a number of seconds"):
            get_or_load(key, loader, **at(HERE), ttl=60, error_ttl=0)
        found = get_or_load(key, lambda: "other", **at(THERE), ttl=60, wait=20, info=True)
        assert (found.value, found.source) == ("other", "loaded"), ttl
