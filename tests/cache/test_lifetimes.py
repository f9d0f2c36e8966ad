"""For how long a value is kept: ttl, none_ttl, what the loader says, jitter."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic
from typing import Any

from django.core.cache import caches

from django_redis_locks.cache import LoadContext, get_or_load
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import Callers, Loader
from tests.contract.matrix import PATIENCE, eventually


def unstored(context: Any) -> str:
    context.skip_store()
    return "unstored"


def test_none_is_kept_for_none_ttl(callers: Callers) -> None:
    """[S16]"""
    loader = Loader(None, "now it exists")
    callers.load("k", loader, ttl=600, none_ttl=0.05, jitter=0)
    eventually(lambda: callers.value("k", loader) == "now it exists")


def test_none_is_kept_no_longer_than_a_value(cache_pair: str) -> None:
    found = get_or_load("k", lambda: None, **at(HERE), ttl=30, none_ttl=600, jitter=0, info=True)
    assert (found.value, found.fresh_for) == (None, 30)


def test_none_with_none_ttl_of_zero_is_not_kept(callers: Callers) -> None:
    loader = Loader(None, "now it exists")
    assert callers.value("k", loader, ttl=600, none_ttl=0) is None
    assert callers.value("k", loader) == "now it exists"


def test_value_without_a_ttl_is_shared_and_not_stored(callers: Callers) -> None:
    """[S47] Another process doesn't wait for it."""
    for ttl in (0, -1, -0.5):
        loading = callers.begin("value", ttl=ttl)
        (following,) = callers.follow(loading, ttl=ttl)
        assert callers.value("k", "theirs", ttl=ttl, cache=THERE) == "theirs", ttl
        assert loading.finish() == following.result(PATIENCE).value == "value", ttl
        assert caches[HERE].get("k") is None, ttl


def test_loader_sets_the_ttl_of_its_value(callers: Callers) -> None:
    def brief(context: Any) -> str:
        context.ttl = 0.05
        return "brief"

    assert callers.value("k", brief, ttl=600) == "brief"
    eventually(lambda: caches[HERE].get("k") is None)


def test_loader_sets_the_ttl_as_a_timedelta(cache_pair: str) -> None:
    def loader(context: LoadContext) -> str:
        context.ttl = timedelta(minutes=1)
        return "value"

    found = get_or_load("k", loader, **at(HERE), jitter=0, info=True)
    assert (found.value, found.fresh_for) == ("value", 60)


def test_value_that_the_loader_does_not_store_is_not_waited_for(callers: Callers) -> None:
    """[S40] Else all who want it would load one after the other."""
    assert callers.value("k", unstored, ttl=600) == "unstored"
    assert caches[HERE].get("k") is None
    found = callers.load("k", unstored, ttl=600, cache=THERE)
    assert (found.value, found.source) == ("unstored", "unlocked")


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
