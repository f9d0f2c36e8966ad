"""Properties of memcached only: whole seconds, limits of values and keys. The rest is in test_every_cache.py."""

from __future__ import annotations

import pytest
from django.core.cache import InvalidCacheKey

from django_redis_locks.cache import LoadFailed
from tests.cache import backends
from tests.cache.backends import TrackedPyMemcacheCache
from tests.cache.callers import Callers, Loader, for_threads_and_tasks

pytestmark = pytest.mark.parametrize("callers", for_threads_and_tasks(backends.memcached), indirect=True)


def test_jitter_leaves_a_ttl_of_a_second_at_least(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S47] memcached doesn't store values with less than a second: each caller would load."""
    kept: list[float] = []
    monkeypatch.setattr(TrackedPyMemcacheCache, "set", lambda *args, **_: kept.append(args[3]))
    for number in range(10):
        callers.load(f"k{number}", "value", ttl=1, jitter=0.5)
    assert kept == [1.0] * 10


def test_value_that_is_too_large_raises_and_is_loaded_once(callers: Callers) -> None:
    """[S46] Waiters don't load it again, and the lease is released."""
    big = Loader("x" * 2_000_000)
    with pytest.raises(Exception, match="too large for cache"):
        callers.load("k", big, error_ttl=60)
    with pytest.raises(LoadFailed, match="too large for cache"):
        callers.load("k", big, error_ttl=60)
    assert big.calls == 1
    assert callers.load("other", "small").source == "loaded"


def test_invalid_key_raises_before_the_load(callers: Callers) -> None:
    loader = Loader("value")
    for key in ("white space", "k" * 250):
        with pytest.raises(InvalidCacheKey):
            callers.load(key, loader)
    assert loader.calls == 0
