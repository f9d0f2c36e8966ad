"""What memcached does as no other cache: whole seconds, small values, short keys. All else is in test_every_cache."""

from __future__ import annotations

import pytest
from django.core.cache import InvalidCacheKey

from django_redis_locks.cache import LoadFailed
from tests.cache import backends
from tests.cache.backends import Closing
from tests.cache.callers import Callers, Loader, cells

pytestmark = pytest.mark.parametrize("callers", cells(backends.memcached), indirect=True)


def test_jitter_leaves_a_whole_second(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S47] It drops what lives for less than a second: each caller would load."""
    kept: list[float] = []
    monkeypatch.setattr(Closing, "set", lambda *args, **_: kept.append(args[3]))
    for number in range(10):
        callers.load(f"k{number}", "value", ttl=1, jitter=0.5)
    assert kept == [1.0] * 10


def test_value_that_is_too_big_raises_the_caches_error(callers: Callers) -> None:
    """[S46] It isn't loaded again and again, and the lease is given back."""
    big = Loader("x" * 2_000_000)
    with pytest.raises(Exception, match="too large for cache"):
        callers.load("k", big, error_ttl=60)
    with pytest.raises(LoadFailed, match="too large for cache"):
        callers.load("k", big, error_ttl=60)
    assert big.calls == 1
    assert callers.load("other", "small").source == "loaded"


def test_key_that_it_does_not_take_raises_before_the_load(callers: Callers) -> None:
    loader = Loader("value")
    for key in ("white space", "k" * 250):
        with pytest.raises(InvalidCacheKey):
            callers.load(key, loader)
    assert loader.calls == 0
