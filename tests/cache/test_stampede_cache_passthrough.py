"""What a wrapped cache has in addition to Django's methods, and copies of a `StampedeCache`."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache, caches, close_caches
from django.core.cache.backends.locmem import LocMemCache

from tests.cache.backends import FILES, WRAPPER
from tests.cache.loading import loading
from tests.django.helpers import in_thread


class RichCache(LocMemCache):
    """With what django-redis and others have in addition to Django's methods."""

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
    def test_reader_is_the_wrapped_caches(self) -> None:
        cache.set("k", 1)
        assert cache.ttl("k") == 7
        assert cache.ttl("absent") is None
        assert cache.keys() == [":1:k"]
        assert cache.colour == "red"
        assert not hasattr(cache, "no_such_thing")

    def test_unknown_writer_voids_all_loads(self) -> None:
        """[S1] Which keys it means isn't known. In a loop it blocks, as Django's own synchronous methods, and is fenced."""

        async def in_a_loop() -> int:
            return int(cache.delete_pattern("*"))

        for write in (
            lambda: cache.delete_pattern("*"),
            lambda: asyncio.run(cache.adelete_pattern("*")),
            lambda: asyncio.run(in_a_loop()),
        ):
            with loading() as (_, future):
                assert write() is not None
            assert future.result() == "old"
            assert cache.get("k") is None

    def test_internal_attribute_or_key_function_is_the_wrapped_caches(self) -> None:
        """They are no writers."""
        for name in ("key_func", "_cache", "_has_expired"):
            assert getattr(cache, name) == getattr(caches["raw"], name), name

    def test_writer_of_a_lifetime_voids_the_load_of_its_key_only(self) -> None:
        """django-redis' persist and expire may be called often: other loads go on. Readers void none."""
        calls: list[tuple[Callable[[], object], object]] = [
            (lambda: cache.persist("k"), None),
            (lambda: cache.persist(key="k"), None),
            (lambda: cache.persist("k2"), "old"),
            (lambda: (cache.ttl("k"), cache.keys("*")), "old"),
            (lambda: cache.persist("k", 2), "old"),
            (lambda: cache.persist("k", version=2), "old"),
        ]
        for number, (call, stays) in enumerate(calls):
            with loading():
                call()
            assert cache.get("k") == stays, number
            cache.clear()

    def test_attribute_that_is_set_is_set_on_the_wrapped_cache(self) -> None:
        """As Django's own proxy does it."""
        cache.colour = "blue"
        assert caches["raw"].colour == "blue"
        del cache.colour
        assert caches["raw"].colour == "red"
        cache.version = 5
        cache.set("k", 1)
        assert caches["raw"].get("k", version=5) == 1
        cache.version = 1

    def test_close_closes_the_wrapped_cache(self) -> None:
        for close in (caches["default"].close, close_caches):  # the second is the end of a request
            cache.set("k", 1)
            caches["raw"].closed = False
            close()
            assert caches["raw"].closed


class TestObjects:
    def test_copy_uses_the_cache_of_its_own_thread(self) -> None:
        """[S39] As with any cache of Django's, each thread has a cache and a wrapped cache of its own."""
        original = caches["default"]
        original.set("k", 1)
        for copied in (copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))):
            theirs, raw = in_thread(lambda copied=copied: (copied(original), caches["raw"]))
            assert theirs is not original
            theirs.colour = "blue"
            assert raw.colour == "blue"
            assert caches["raw"].colour == "red"
            assert theirs.get("k") == 1

    def test_repr_names_the_wrapped_cache(self) -> None:
        assert repr(caches["default"]) == "<StampedeCache of 'raw'>"


def test_store_of_leases_that_is_down_prevents_no_write(settings: Any, tmp_path: Path) -> None:
    """[S45] The locks' server is away, the cache isn't: it goes on as without a wrapper."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0"}}
    settings.CACHES = {**settings.CACHES, "raw": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    cache.set("k", 1)
    assert cache.get("k") == 1
    assert cache.get_or_set("k2", lambda: 2) == 2
    cache.delete_many(["k"])
    assert cache.get_many(["k", "k2"]) == {"k2": 2}
    cache.clear()
    assert cache.get("k2") is None
