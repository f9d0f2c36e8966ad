"""What memcached does as no other cache: whole seconds, small values, short keys. All else is in the tests of each cache."""

from __future__ import annotations

import pytest
from django.core.cache import InvalidCacheKey

from django_redis_locks.cache.errors import LoadFailed
from tests.cache.conftest import Loader, Stage, on_memcached
from tests.cache.wrapped import Closing

pytestmark = pytest.mark.parametrize("road", [pytest.param(on_memcached, id="memcached")], indirect=True)


def test_jitter_leaves_a_second(road: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S47] It drops what lives for less than a second: each caller would load."""
    kept: list[float] = []
    monkeypatch.setattr(Closing, "set", lambda *args, **_: kept.append(args[3]))
    for number in range(10):
        stage.load(f"k{number}", Loader("value"), ttl=1, jitter=0.5)
    assert kept == [1.0] * 10


def test_longer_than_a_month(road: str, stage: Stage) -> None:
    """[S47] It takes more than thirty days for a date."""
    assert stage.load("k", Loader("value"), ttl=40 * 86_400).source == "loaded"
    assert stage.load("k", Loader("other"), ttl=40 * 86_400).value == "value"


def test_what_is_too_big_is_an_error(road: str, stage: Stage) -> None:
    """[S46] As the cache's own; nobody loads it again and again, and the lease is given back."""
    big = Loader("x" * 2_000_000)
    with pytest.raises(Exception, match="too large for cache"):
        stage.load("k", big, ttl=60, error_ttl=60)
    with pytest.raises(LoadFailed, match="too large for cache"):
        stage.load("k", big, ttl=60, error_ttl=60)
    assert big.calls == 1
    assert stage.load("other", Loader("small"), ttl=60).source == "loaded"


@pytest.mark.parametrize("key", ["white space", "k" * 250])
def test_a_key_that_it_does_not_take(road: str, stage: Stage, key: str) -> None:
    """The cache's own error, before anything is loaded."""
    loader = Loader("value")
    with pytest.raises(InvalidCacheKey):
        stage.load(key, loader, ttl=60)
    assert loader.calls == 0
