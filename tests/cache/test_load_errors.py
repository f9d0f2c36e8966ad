"""Loaders that fail: who hears of it, for how long it is remembered, and that no claim is left."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks.cache import LoadContext, LoadFailed, get_or_load, invalidate
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import STALE, Callers, Loader
from tests.contract.matrix import eventually


def test_failure_is_forgotten_without_error_ttl_or_by_an_invalidation(callers: Callers) -> None:
    """[S13] The next caller tries at once."""
    for error_ttl, cache in ((0, THERE), (30, HERE)):
        with pytest.raises(ValueError, match="once"):
            callers.load(cache, ValueError("once"), error_ttl=error_ttl)
        if error_ttl:
            callers.call(invalidate, cache, **at(HERE))
        assert callers.value(cache, "value", cache=cache) == "value"


def test_failure_leaves_the_stale_value(callers: Callers, counted: Any) -> None:
    """[S14] [V8] The loader isn't called again for a while, here or elsewhere; then it is."""
    callers.make_stale()
    loader = Loader(ValueError("no rates today"), "new")
    found = callers.load("k", loader, **STALE, retry_after_error=30)
    assert (found.value, found.source) == ("old", "stale")
    for cache in (HERE, THERE):
        assert callers.value("k", loader, cache=cache, **STALE) == "old"
    assert loader.calls == 1
    assert counted()["failures"] == 1
    callers.make_stale("brief")
    loader.calls = 0
    callers.load("brief", loader, **STALE, retry_after_error=0.05)
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
