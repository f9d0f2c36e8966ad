"""Loaders that fail: who hears of it, for how long it is remembered, and that no claim is left."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import caches

from django_redis_locks.cache import LoadContext, LoadFailed, get_or_load, get_or_load_many, invalidate
from tests.cache import backends
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import STALE, Callers, Loader
from tests.contract.matrix import eventually


def test_failure_with_error_ttl_of_zero_is_not_remembered(callers: Callers) -> None:
    """[S13] The next caller tries at once."""
    with pytest.raises(ValueError, match="once"):
        callers.load("k", ValueError("once"), error_ttl=0)
    assert callers.value("k", "value", cache=THERE) == "value"


def test_failure_is_forgotten_by_an_invalidation(callers: Callers) -> None:
    with pytest.raises(ValueError, match="once"):
        callers.load("k", ValueError("once"), error_ttl=30)
    callers.call(invalidate, "k", **at(HERE))
    assert callers.value("k", "value") == "value"


def test_failure_leaves_the_stale_value(callers: Callers, counted: Any) -> None:
    """[S14] [V8] The loader isn't called again for a while, here or elsewhere."""
    callers.make_stale()
    loader = Loader(ValueError("no rates today"))
    found = callers.load("k", loader, **STALE, retry_after_error=30)
    assert (found.value, found.source) == ("old", "stale")
    for cache in (HERE, THERE):
        assert callers.value("k", loader, cache=cache, **STALE) == "old"
    assert loader.calls == 1
    assert counted()["failures"] == 1


def test_failure_is_tried_again_after_retry_after_error(callers: Callers) -> None:
    """[S14]"""
    callers.make_stale()
    loader = Loader(ValueError("no rates today"), "new")
    callers.load("k", loader, **STALE, retry_after_error=0.05)
    eventually(lambda: callers.value("k", loader, **STALE) == "new")
    assert loader.calls == 2


def test_failure_is_raised_without_stale_if_error(callers: Callers) -> None:
    callers.make_stale()
    with pytest.raises(ValueError, match="no rates"):
        callers.load("k", ValueError("no rates"), **STALE, stale_if_error=False)


def test_context_fail_gives_the_stale_value_or_raises(callers: Callers) -> None:
    def load(context: Any) -> None:
        context.fail(f"half of it is missing, keep {context.stale_value}")

    callers.make_stale()
    assert callers.value("k", load, **STALE) == "old"
    with pytest.raises(LoadFailed, match="half of it is missing"):
        callers.load("other", load, **STALE)


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


@pytest.mark.parametrize("cache_pair", [backends.files, backends.locmem], ids=["files", "locmem"], indirect=True)
def test_second_read_of_many_that_fails_gives_up_the_claims(cache_pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, reads = type(caches[HERE]), []
    get_many = kind.get_many

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        reads.append(args)
        if len(reads) == 2:
            raise OSError("no such disk")
        return get_many(self, *args, **kwargs)

    monkeypatch.setattr(kind, "get_many", failing)
    with pytest.raises(OSError, match="no such disk"):
        get_or_load_many(["a", "b"], lambda keys: dict.fromkeys(keys, 1), **at(HERE), ttl=60)
    assert get_or_load("a", lambda: 2, **at(THERE), ttl=60, wait=20, info=True).source == "loaded"
