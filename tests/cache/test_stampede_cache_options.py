"""The options of a `StampedeCache` are the defaults of every way to load its values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import cache, caches
from django.template import Context, Engine

from django_redis_locks.cache import aget_or_load, cached, get_or_load, get_or_load_many, refresh
from tests.cache.backends import FILES, REDIS, WRAPPER
from tests.probes.cache import is_down


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


def by_decorator(**options: Any) -> Any:
    return cached("k", **options)(lambda: 1)


WAYS: dict[str, Callable[..., object]] = {
    "get_or_load": lambda **options: get_or_load("k", lambda: 1, **options),
    "by the cache itself": lambda cache="default", **options: get_or_load(
        "k", lambda: 1, cache=caches[cache], **options
    ),
    "by the default cache": lambda cache=cache, **options: get_or_load("k", lambda: 1, cache=cache, **options),
    "aget_or_load": lambda **options: asyncio.run(aget_or_load("k", lambda: 1, **options)),
    "get_or_load_many": lambda **options: get_or_load_many(["k"], lambda keys: dict.fromkeys(keys, 1), **options),
    "refresh": lambda **options: refresh("k", lambda: 1, **options),
    "@cached": lambda **options: by_decorator(**options)(),
    "@cached, refreshed": lambda **options: by_decorator(**options).refresh(),
}


def test_options_of_the_cache_are_the_defaults_of_every_way(client: redis.Redis) -> None:
    """What the call says goes before; the wrapped cache, by its alias, has a timeout of its own."""
    for name, way in WAYS.items():
        for options, seconds in (({}, 150), ({"ttl": 20, "stale": 10}, 30), ({"cache": "raw", "jitter": 0}, 10)):
            way(**options)
            assert lives(client, "k") == seconds, (name, options)
            client.flushdb()


def test_value_without_an_end_is_never_early(client: redis.Redis) -> None:
    """EARLY of the cache is a fraction of a TIMEOUT, and this value has none."""
    for way in (lambda: get_or_load("k", lambda: 1, ttl=None), lambda: cache.get_or_set("k", lambda: 1, None)):
        assert way() == 1
        assert client.ttl(":1:k") == -1
        client.flushdb()
    with pytest.raises(ValueError, match="early needs a ttl"):
        get_or_load("other", lambda: 1, ttl=None, early=0.5)


def test_soft_invalidation_keeps_a_value_for_stale_of_the_cache(client: Any) -> None:
    """`invalidate(soft=True)` of a function that doesn't say `stale` itself."""
    value = by_decorator()
    value()
    value.invalidate(soft=True)
    assert lives(client, "k") == 100


def test_options_of_the_cache_are_the_defaults_of_a_fragment(
    settings: Any, redis_url: str, client: Any, tmp_path: Path
) -> None:
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
    assert not is_down("default"), "it asked the server that isn't there"
