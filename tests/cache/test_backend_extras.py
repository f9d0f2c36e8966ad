"""What a wrapped cache has besides Django's methods, and what a wrapper is made of."""

from __future__ import annotations

import asyncio
import copy
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import InvalidCacheBackendError, cache, caches, close_caches

from django_redis_locks.cache import StampedeCache
from tests.cache.wrapped import FILES, LOCMEM, RICH, WRAPPER, Loading
from tests.django.helpers import in_thread


@pytest.fixture(autouse=True)
def rich(settings: Any, request: pytest.FixtureRequest) -> None:
    settings.CACHES = {
        "raw": {"BACKEND": RICH, "LOCATION": request.node.nodeid},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }


class TestForwarding:
    def test_readers_are_the_wrapped_caches(self) -> None:
        cache.set("k", 1)
        assert cache.ttl("k") == 7
        assert cache.ttl("absent") is None
        assert cache.keys() == [":1:k"]
        assert cache.colour == "red"
        assert not hasattr(cache, "no_such_thing")

    def test_a_reader_voids_no_load(self) -> None:
        with Loading():
            cache.ttl("k")
            cache.keys("*")
        assert cache.get("k") == "old"

    @pytest.mark.parametrize(
        "write",
        [lambda: cache.delete_pattern("*"), lambda: asyncio.run(cache.adelete_pattern("*"))],
        ids=["sync", "async"],
    )
    def test_an_unknown_writer_voids_all_loads(self, write: Callable[[], object]) -> None:
        """[S1] Nobody knows which keys it means."""
        with Loading() as loading:
            assert write() is not None
        assert loading.result == ["old"]
        assert cache.get("k") is None

    def test_what_is_no_method_of_it_or_internal_is_left_alone(self) -> None:
        """A key function isn't a writer, and who calls what is internal knows what he does."""
        raw = caches["raw"]
        assert cache.key_func is raw.key_func
        assert cache._cache is raw._cache
        assert cache._has_expired == raw._has_expired

    def test_an_unknown_writer_in_a_loop(self) -> None:
        """As Django's own synchronous methods it blocks the loop, and is fenced."""

        async def story() -> None:
            cache.delete_pattern("*")

        with Loading():
            asyncio.run(story())
        assert cache.get("k") is None

    @pytest.mark.parametrize(
        ("call", "stays"),
        [
            (lambda: cache.persist("k"), None),
            (lambda: cache.persist(key="k"), None),
            (lambda: cache.persist("k2"), "old"),
            (lambda: cache.persist("k", 2), "old"),
            (lambda: cache.persist("k", version=2), "old"),
        ],
        ids=["key", "by-name", "another", "another-version", "version-by-name"],
    )
    def test_a_lifetime_concerns_one_key(self, call: Callable[[], object], stays: object) -> None:
        """django-redis' persist and expire may be called often: other loads go on."""
        with Loading():
            call()
        assert cache.get("k") == stays

    def test_what_is_set_on_it_is_set_on_the_wrapped_one(self) -> None:
        """As Django's own proxy does it."""
        cache.colour = "blue"
        assert caches["raw"].colour == "blue"
        del cache.colour
        assert caches["raw"].colour == "red"
        cache.version = 5
        cache.set("k", 1)
        assert caches["raw"].get("k", version=5) == 1
        cache.version = 1

    def test_it_is_closed_with_it(self) -> None:
        cache.set("k", 1)
        caches["default"].close()
        assert caches["raw"].closed

    def test_the_end_of_a_request(self) -> None:
        cache.set("k", 1)
        close_caches()  # what Django does then
        assert caches["raw"].closed


class TestObjects:
    def test_each_thread_has_its_own_pair(self) -> None:
        """[S39] As with any cache of Django's, nothing that a thread has reaches another one."""
        mine = caches["default"]
        theirs = in_thread(lambda: (caches["default"], caches["default"]._inner, caches["raw"]))
        assert theirs[0] is not mine
        assert theirs[1] is theirs[2]
        assert theirs[1] is not mine._inner
        assert mine._inner is caches["raw"]

    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))],
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_a_copy_takes_the_cache_of_its_own_thread(self, copied: Callable[[Any], Any]) -> None:
        original = caches["default"]
        original.set("k", 1)
        copies = in_thread(lambda: (copied(original), caches["raw"]))
        assert copies[0]._inner is copies[1]
        assert copies[0]._inner is not original._inner
        assert copies[0].get("k") == 1

    def test_one_that_is_just_being_made_has_nothing(self) -> None:
        """Who looks at it then, such as a debugger, isn't sent round in circles."""
        assert not hasattr(StampedeCache.__new__(StampedeCache), "ttl")

    def test_it_says_what_it_is(self) -> None:
        assert repr(caches["default"]) == "<StampedeCache of 'raw'>"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"LOCATION": "rawe"}, r"LOCATION 'rawe' isn't in CACHES. Did you mean 'raw'\?"),
        ({}, "LOCATION '' isn't in CACHES"),
        ({"LOCATION": "default"}, "it wraps itself: 'default' → 'default'"),
        ({"LOCATION": "other"}, "it wraps itself: 'other' → 'default' → 'other'"),
        ({"LOCATION": "raw", "OPTIONS": {"STALLE": 5}}, r"unknown option 'STALLE'. Did you mean 'STALE'\?"),
        ({"LOCATION": "raw", "OPTIONS": {"WAIT": "long"}}, "WAIT must be seconds"),
        (
            {"LOCATION": "raw", "OPTIONS": {"LOCKS": "defualt"}},
            r"LOCKS 'defualt' isn't in REDIS_LOCKS. Did you mean 'default'\?",
        ),
        ({"LOCATION": "raw", "KEY_PREFIX": "x"}, "KEY_PREFIX is the wrapped cache's. Move it to 'raw'."),
    ],
)
def test_wrong_settings_are_told_at_the_first_use(settings: Any, entry: dict[str, Any], message: str) -> None:
    """A program that runs no checks hears of it too, and a circle doesn't overflow the stack."""
    settings.CACHES = {
        "raw": {"BACKEND": LOCMEM},
        "default": {"BACKEND": WRAPPER, **entry},
        "other": {"BACKEND": WRAPPER, "LOCATION": "default"},
    }
    with pytest.raises(InvalidCacheBackendError, match=message):
        cache.get("k")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections, because somebody has it and doesn't listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_store_that_is_down_prevents_no_write(settings: Any, closed_port: int, tmp_path: Path) -> None:
    """[S45] The locks' server is away, the cache isn't: it goes on as without a wrapper."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": f"redis://127.0.0.1:{closed_port}/0"}}
    settings.CACHES = {**settings.CACHES, "raw": {"BACKEND": FILES, "LOCATION": str(tmp_path)}}
    cache.set("k", 1)
    assert cache.get("k") == 1
    assert cache.get_or_set("k2", lambda: 2) == 2
    cache.delete_many(["k"])
    assert cache.get_many(["k", "k2"]) == {"k2": 2}
    cache.clear()
    assert cache.get("k2") is None
