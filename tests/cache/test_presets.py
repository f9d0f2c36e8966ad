"""What the entry of a `StampedeCache` says of loads holds for whoever loads its values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import InvalidCacheBackendError, cache, caches
from django.template import Context, Engine

from django_redis_locks.cache import aget_or_load, cached, get_or_load, get_or_load_many, refresh
from django_redis_locks.cache.presets import options_for
from django_redis_locks.cache.roads import road_of
from tests.cache.wrapped import FILES, REDIS, WRAPPER


@pytest.fixture
def client(settings: Any, redis_url: str) -> Any:
    """Values live for 50 s, and 100 s more as stale ones."""
    settings.CACHES = {
        "raw": {"BACKEND": REDIS, "LOCATION": redis_url, "TIMEOUT": 10},
        "default": {
            "BACKEND": WRAPPER,
            "LOCATION": "raw",
            "TIMEOUT": 50,
            "OPTIONS": {"STALE": 100, "EARLY": 0.9, "JITTER": 0},
        },
    }
    with redis.Redis.from_url(redis_url) as client:
        yield client


def lives(client: Any, key: str) -> int:
    seconds = int(client.ttl(f":1:{key}"))
    return -(-seconds // 5) * 5  # a busy machine may take its time


def by_decorator(**options: Any) -> str:
    @cached("k", **options)
    def value() -> int:
        return 1

    value()
    return "k"


def by_decorator_refreshed(**options: Any) -> str:
    @cached("k", **options)
    def value() -> int:
        return 1

    value.refresh()
    return "k"


def by_many(**options: Any) -> str:
    get_or_load_many(["k"], lambda keys: dict.fromkeys(keys, 1), **options)
    return "k"


WAYS: dict[str, Callable[..., object]] = {
    "get_or_load": lambda **options: get_or_load("k", lambda: 1, **options),
    "by the cache itself": lambda cache="default", **options: get_or_load(
        "k", lambda: 1, cache=caches[cache], **options
    ),
    "by the default cache": lambda cache=cache, **options: get_or_load("k", lambda: 1, cache=cache, **options),
    "aget_or_load": lambda **options: asyncio.run(aget_or_load("k", lambda: 1, **options)),
    "get_or_load_many": by_many,
    "refresh": lambda **options: refresh("k", lambda: 1, **options),
    "@cached": by_decorator,
    "@cached, refreshed": by_decorator_refreshed,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
class TestWhoeverLoads:
    def test_what_the_call_leaves_open_is_the_caches(self, way: Callable[..., object], client: Any) -> None:
        way()
        assert lives(client, "k") == 150

    def test_the_call_has_the_last_word(self, way: Callable[..., object], client: Any) -> None:
        way(ttl=20, stale=10)
        assert lives(client, "k") == 30

    def test_the_cache_within_has_a_life_of_its_own(self, way: Callable[..., object], client: Any) -> None:
        """Asked by its alias it knows nothing of who wraps it."""
        way(cache="raw", jitter=0)
        assert lives(client, "k") == 10


@pytest.mark.parametrize("way", ["get_or_load", "get_or_set"])
def test_what_is_kept_for_ever_is_never_early(way: str, client: Any) -> None:
    """EARLY of the entry is a fraction of a TIMEOUT, and this value has none."""
    if way == "get_or_load":
        assert get_or_load("k", lambda: 1, ttl=None) == 1
    else:
        assert cache.get_or_set("k", lambda: 1, None) == 1
    assert client.ttl(":1:k") == -1
    with pytest.raises(ValueError, match="early needs a ttl"):
        get_or_load("other", lambda: 1, ttl=None, early=0.5)


def test_an_old_value_may_be_served_for_as_long_as_the_entry_says(client: Any) -> None:
    """`invalidate(soft=True)` of a function that doesn't say `stale` itself."""

    @cached("soft")
    def value() -> int:
        return 1

    value()
    value.invalidate(soft=True)
    assert lives(client, "soft") == 100


def test_a_fragment_has_them_too(settings: Any, redis_url: str, client: Any, tmp_path: Path) -> None:
    """`{% cached %}` says its timeout; the rest, and the locks, are those of the entry."""
    library = {"redis_locks": "django_redis_locks.templatetags.redis_locks"}
    template = "{% load redis_locks %}{% cached 20 part %}text{% endcached %}"
    render = Engine(libraries=library).from_string(template).render
    assert render(Context()) == "text"
    (key,) = client.keys("*template*part*")
    assert 100 < client.ttl(key) <= 120

    there = redis_url.removesuffix("/0") + "/1"
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}, "there": {"LOCATION": there}}
    settings.CACHES = {
        "raw": {"BACKEND": FILES, "LOCATION": str(tmp_path)},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw", "OPTIONS": {"LOCKS": "there"}},
    }
    assert render(Context()) == "text"
    assert not road_of("default").down, "it asked the server that isn't there"


def test_a_wrong_entry_is_told_of(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": WRAPPER, "LOCATION": "raw", "OPTIONS": {"STALE": -3}}, "raw": {}}
    with pytest.raises(InvalidCacheBackendError, match="STALE must be"):
        options_for("default", {})
