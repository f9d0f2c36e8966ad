"""`StampedeCache`: methods of the wrapped cache beyond Django's, copies, and options as defaults of all loads."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import cache, caches, close_caches
from django.core.cache.backends.locmem import LocMemCache
from django.template import Context, Engine

from django_redis_locks.cache import aget_or_load, cached, get_or_load, get_or_load_many, refresh
from tests.cache.backends import FILES, REDIS, WRAPPER
from tests.cache.callers import load_in_thread
from tests.django.helpers import in_thread
from tests.probes.cache import is_down


class RichCache(LocMemCache):
    """Has methods that django-redis and others add to Django's."""

    colour = "red"

    def ttl(self, key: str, version: int | None = None) -> int | None:
        return 7 if self.has_key(key, version) else None

    def keys(self, pattern: str = "*") -> list[str]:
        return sorted(self._cache)

    def delete_pattern(self, pattern: str) -> int:
        found = list(self._cache)
        for key in found:
            self._delete(key)
        return len(found)

    async def adelete_pattern(self, pattern: str) -> int:
        return self.delete_pattern(pattern)

    def persist(self, key: str, version: int | None = None) -> bool:
        return self.touch(key, None, version)

    def close(self, **kwargs: Any) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def rich(settings: Any, request: pytest.FixtureRequest) -> None:
    settings.CACHES = {
        "raw": {"BACKEND": f"{__name__}.RichCache", "LOCATION": request.node.nodeid},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }


class TestForwarding:
    def test_reading_method_or_private_attribute_is_that_of_the_wrapped_cache(self) -> None:
        for name in ("key_func", "_cache", "_has_expired"):  # they don't write
            assert getattr(cache, name) == getattr(caches["raw"], name), name
        cache.set("k", 1)
        assert cache.ttl("k") == 7
        assert cache.ttl("absent") is None
        assert cache.keys() == [":1:k"]
        assert cache.colour == "red"
        assert not hasattr(cache, "no_such_thing")
        assert repr(caches["default"]) == "<StampedeCache of 'raw'>"

    def test_unknown_method_voids_all_loads(self) -> None:
        """[S1] It may write any key. In a loop it blocks, like Django's synchronous methods."""

        async def in_a_loop() -> int:
            return int(cache.delete_pattern("*"))

        for write in (
            lambda: cache.delete_pattern("*"),
            lambda: asyncio.run(cache.adelete_pattern("*")),
            lambda: asyncio.run(in_a_loop()),
        ):
            with load_in_thread() as (_, future):
                assert write() is not None
            assert future.result() == "old"
            assert cache.get("k") is None

    def test_method_that_changes_a_ttl_voids_the_load_of_its_key_only(self) -> None:
        """Such as persist and expire of django-redis. Reading methods void no loads."""
        calls: list[tuple[Callable[[], object], object]] = [
            (lambda: cache.persist("k"), None),
            (lambda: cache.persist(key="k"), None),
            (lambda: cache.persist("k2"), "old"),
            (lambda: (cache.ttl("k"), cache.keys("*")), "old"),
            (lambda: cache.persist("k", 2), "old"),
            (lambda: cache.persist("k", version=2), "old"),
        ]
        for number, (call, stays) in enumerate(calls):
            with load_in_thread():
                call()
            assert cache.get("k") == stays, number
            cache.clear()

    def test_attribute_that_is_set_is_set_on_the_wrapped_cache(self) -> None:
        """As with Django's `cache` proxy."""
        cache.colour = "blue"
        assert caches["raw"].colour == "blue"
        del cache.colour
        assert caches["raw"].colour == "red"
        cache.version = 5
        cache.set("k", 1)
        assert caches["raw"].get("k", version=5) == 1
        cache.version = 1

    def test_close_closes_the_wrapped_cache(self) -> None:
        for close in (caches["default"].close, close_caches):  # the second one runs at the end of a request
            cache.set("k", 1)
            caches["raw"].closed = False
            close()
            assert caches["raw"].closed

    def test_copy_used_in_another_thread_uses_the_cache_of_that_thread(self) -> None:
        """[S39] As with all Django caches, each thread has its own wrapper and wrapped cache."""
        original = caches["default"]
        original.set("k", 1)
        for copied in (copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))):
            theirs, raw = in_thread(lambda copied=copied: (copied(original), caches["raw"]))
            assert theirs is not original
            theirs.colour = "blue"
            assert raw.colour == "blue"
            assert caches["raw"].colour == "red"
            assert theirs.get("k") == 1


@pytest.fixture
def client(settings: Any, redis_url: str, redis_client: redis.Redis) -> redis.Redis:
    """A StampedeCache with a TIMEOUT of 50 s and a STALE of 100 s. Returns a client of its server."""
    options = {"STALE": 100, "EARLY": 0.9, "JITTER": 0}
    settings.CACHES = {
        "raw": {"BACKEND": REDIS, "LOCATION": redis_url, "TIMEOUT": 10},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw", "TIMEOUT": 50, "OPTIONS": options},
    }
    return redis_client


def ttl_of(client: Any, key: str) -> int:
    seconds = int(client.ttl(f":1:{key}"))
    return -(-seconds // 5) * 5  # rounded up, for slow machines


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
    """Options of a call override them. The wrapped cache, by its own alias, has its own timeout."""
    for name, way in WAYS.items():
        for options, seconds in (({}, 150), ({"ttl": 20, "stale": 10}, 30), ({"cache": "raw", "jitter": 0}, 10)):
            way(**options)
            assert ttl_of(client, "k") == seconds, (name, options)
            client.flushdb()


def test_value_without_expiry_has_no_early_refresh(client: redis.Redis) -> None:
    """EARLY is a fraction of the timeout, and this value has none."""
    for way in (lambda: get_or_load("k", lambda: 1, ttl=None), lambda: cache.get_or_set("k", lambda: 1, None)):
        assert way() == 1
        assert client.ttl(":1:k") == -1
        client.flushdb()
    with pytest.raises(ValueError, match="early needs a ttl"):
        get_or_load("other", lambda: 1, ttl=None, early=0.5)


def test_invalidation_with_stale_keeps_a_value_for_stale_of_the_cache(client: Any) -> None:
    """With `invalidate(stale=True)` of a function without its own `stale`."""
    value = by_decorator()
    value()
    value.invalidate(stale=True)
    assert ttl_of(client, "k") == 100


def test_options_of_the_cache_are_the_defaults_of_a_fragment(
    settings: Any, redis_url: str, client: Any, tmp_path: Path
) -> None:
    """`{% cached %}` states its timeout; other options and the locks are those of the entry."""
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
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw", "OPTIONS": {"USING": "there"}},
    }
    assert render(Context()) == "text"
    assert not is_down("default"), "it asked the server that isn't there"
