"""``StampedeCache``: what is written through it wins over loads, and reading stays what it was."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
from django.core.cache import cache, caches

from django_redis_locks.cache.roads import road_of
from django_redis_locks.cache.values import Kept
from tests.cache.wrapped import FILES, LOCMEM, MEMCACHED, REDIS, WRAPPER, Loading
from tests.django.helpers import PATIENCE, in_thread
from tools.redis_server import RedisServer


@pytest.fixture
def on_redis(settings: Any, redis_server: RedisServer, redis_url: str) -> RedisServer:
    settings.CACHES = {
        "raw": {"BACKEND": REDIS, "LOCATION": redis_url},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }
    return redis_server


def absent(call: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="not found"):
        call("k")


WRITERS: dict[str, tuple[Callable[[], object], object]] = {
    "set": (lambda: cache.set("k", "new"), "new"),
    "set_many": (lambda: cache.set_many({"a": 1, "k": "new"}), "new"),
    "add": (lambda: cache.add("k", "new"), "new"),
    "touch": (lambda: cache.touch("k", 50), None),
    "delete": (lambda: cache.delete("k"), None),
    "delete_many": (lambda: cache.delete_many(iter(["a", "k"])), None),
    "clear": (lambda: cache.clear(), None),  # noqa: PLW0108 - the proxy of this thread
    "incr": (lambda: absent(cache.incr), None),
    "decr": (lambda: absent(cache.decr), None),
    "incr_version": (lambda: absent(cache.incr_version), None),
    "incr_version-to-it": (lambda: (cache.set("k", "v0", version=0), cache.incr_version("k", version=0)), "v0"),
    "decr_version-to-it": (lambda: (cache.set("k", "v2", version=2), cache.decr_version("k", version=2)), "v2"),
}


@pytest.mark.usefixtures("wrapped")
class TestWritesWin:
    @pytest.mark.parametrize(("write", "stays"), WRITERS.values(), ids=WRITERS)
    def test_what_is_written_during_a_load_stays(self, write: Callable[[], object], stays: object) -> None:
        """[S1] [S4] [S31] Whoever loaded gets his value; the cache keeps what was written meanwhile, or nothing."""
        with Loading() as loading:
            write()
        assert loading.result == ["old"]
        assert cache.get("k") == stays
        assert cache.get_or_set("k", "newer") == (stays or "newer")

    def test_a_load_of_another_key_is_stored(self) -> None:
        """[S20] What is written under one key concerns no other one."""
        with Loading():
            cache.set("k2", "new")
            cache.delete("k", version=2)
        assert cache.get("k") == "old"

    def test_the_caller_after_a_write_does_not_join_the_load(self) -> None:
        """[S3] A load that began before the deletion isn't shared by whoever comes after it."""
        with Loading() as loading:
            cache.delete("k")
            assert in_thread(lambda: caches["default"].get_or_set("k", lambda: "new")) == "new"
        assert loading.result == ["old"]
        assert cache.get("k") == "new"


@pytest.mark.usefixtures("wrapped")
class TestGetOrSet:
    def test_one_load_for_all(self) -> None:
        """Django's own runs once for each of them."""
        with ThreadPoolExecutor(20) as pool, Loading(value=[1, 2]) as loading:
            others = [pool.submit(lambda: caches["default"].get_or_set("k", lambda: "mine")) for _ in range(20)]
            loading.loader.may_go_on.set()
            assert [other.result(PATIENCE) for other in others] == [[1, 2]] * 20
        assert loading.loader.calls == 1

    def test_what_is_there_is_not_loaded(self) -> None:
        cache.set("k", None)
        assert cache.get_or_set("k", lambda: pytest.fail("it was called")) is None

    def test_a_callable_is_called_as_django_calls_it(self) -> None:
        """Without arguments, also if it could take one."""

        def load(seen: object = "nothing") -> object:
            return seen

        assert cache.get_or_set("function", load) == "nothing"
        assert cache.get_or_set("class", list) == []
        assert cache.get_or_set("value", "text") == "text"

    @pytest.mark.parametrize("there", [False, True])
    def test_an_async_function_is_refused(self, there: bool) -> None:
        """[S23] Before anything is stored: Django stores nothing but an error of pickle."""

        async def load() -> str:
            return "never"

        class Load:
            async def __call__(self) -> str:
                return "never"

        if there:
            cache.set("k", "value")
        for loader in (load, Load()):
            with pytest.raises(TypeError, match=r"await aget_or_set\(\) instead"):
                cache.get_or_set("k", loader)
        coroutine = load()
        with pytest.raises(TypeError, match="without calling it"):
            cache.get_or_set("k", coroutine)
        assert cache.get("k") == ("value" if there else None)

    def test_a_function_that_returns_an_awaitable_is_refused(self) -> None:
        """[S23] It is known only when it has been called, and still nothing is stored."""

        async def load() -> str:
            return "never"

        with pytest.raises(TypeError, match="awaitable"):
            cache.get_or_set("k", lambda: load())  # noqa: PLW0108 - a plain function, to whoever looks
        assert not cache.has_key("k")

    def test_the_error_of_the_loader_is_its_callers(self) -> None:
        def load() -> None:
            raise LookupError("no such row")

        with pytest.raises(LookupError, match="no such row"):
            cache.get_or_set("k", load)

    @pytest.mark.parametrize("timeout", [0, -1])
    def test_what_is_not_to_be_kept_is_not(self, timeout: int) -> None:
        """[S47] As in Django."""
        assert cache.get_or_set("k", lambda: "value", timeout) == "value"
        assert cache.get("k") is None

    def test_the_road_is_the_wrapped_caches(self) -> None:
        """`get_or_load(cache="default")` and `cache.get_or_set` share loads and fences."""
        assert road_of("default") is road_of("raw") is road_of(cache) is road_of(caches["default"])


class TestTimeouts:
    def ttl(self, server: RedisServer, key: str = ":1:k") -> int:
        import redis

        with redis.Redis(port=server.port) as client:
            return int(client.ttl(key))

    @pytest.mark.parametrize("write", ["set", "get_or_set", "add", "set_many", "touch"])
    @pytest.mark.parametrize(("outer", "inner", "expected"), [({"TIMEOUT": 50}, {}, 50), ({}, {"TIMEOUT": 70}, 70)])
    def test_its_own_or_the_wrapped_ones(
        self, on_redis: RedisServer, settings: Any, write: str, outer: Any, inner: Any, expected: int
    ) -> None:
        """The wrapper's TIMEOUT goes before the wrapped cache's."""
        settings.CACHES = {
            "raw": {**settings.CACHES["raw"], **inner},
            "default": {**settings.CACHES["default"], **outer, "OPTIONS": {"JITTER": 0}},
        }
        {
            "set": lambda: cache.set("k", 1),
            "get_or_set": lambda: cache.get_or_set("k", 1),
            "add": lambda: cache.add("k", 1),
            "set_many": lambda: cache.set_many({"k": 1}),
            "touch": lambda: (cache.set("k", 1, 5), cache.touch("k")),
        }[write]()
        assert expected - 10 <= self.ttl(on_redis) <= expected
        assert cache.default_timeout == expected
        cache.set("k", 1, None)
        assert self.ttl(on_redis) == -1

    def test_the_options_reach_the_load(self, on_redis: RedisServer, settings: Any) -> None:
        """STALE: kept so much longer than its TIMEOUT."""
        settings.CACHES["default"] |= {"TIMEOUT": 50, "OPTIONS": {"STALE": 100, "JITTER": 0}}
        settings.CACHES = dict(settings.CACHES)
        cache.get_or_set("k", 1)
        assert 130 <= self.ttl(on_redis) <= 150


class TestReading:
    def commands(self, server: RedisServer) -> int:
        return int(server.command("INFO", "stats").split("total_commands_processed:")[1].split()[0])

    @pytest.mark.exact("counts commands")
    def test_it_costs_nothing(self, make_server: Callable[..., RedisServer], settings: Any) -> None:
        """[S43] One command as before, whether there is a value or not, and no lease for what isn't there."""
        server = make_server()  # what was left to do for other tests isn't done there
        settings.CACHES = {
            "raw": {"BACKEND": REDIS, "LOCATION": server.url()},
            "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
        }
        cache.set("there", 1)
        for read in (
            lambda: cache.get("there"),
            lambda: cache.get("absent"),
            lambda: cache.get_many(["there", "absent"]),
            lambda: cache.has_key("absent"),
            lambda: "there" in cache,
        ):
            read()
            before = self.commands(server)
            read()
            assert self.commands(server) - before == 2  # and INFO
        assert server.command("KEYS", "*absent*") == []

    def test_it_never_denies_a_value(self, on_redis: RedisServer, settings: Any) -> None:
        """[S44] Early refresh is for loads: a session or an `in` isn't told that there is nothing."""
        settings.CACHES["default"]["OPTIONS"] = {"EARLY": 0.01, "STALE": 60}
        settings.CACHES = dict(settings.CACHES)
        cache.get_or_set("k", "value", 60)
        assert {cache.get("k", "nothing") for _ in range(100)} == {"value"}
        assert "k" in cache

    def test_both_read_what_either_wrote(self, wrapped: str) -> None:
        """Prefix, version and values are the wrapped cache's."""
        raw = caches["raw"]
        cache.set("a", [1], version=3)
        raw.set("b", {"x": None})
        cache.get_or_set("c", lambda: "loaded")
        assert raw.get("a", version=3) == [1]
        assert raw.get("a") is None
        assert raw.get("c") == "loaded"
        assert cache.get_many(["b", "c", "d"]) == {"b": {"x": None}, "c": "loaded"}
        assert cache.make_key("b") == raw.make_key("b")

    @pytest.mark.parametrize("wrapped", [LOCMEM, FILES, MEMCACHED], indirect=True)
    def test_an_envelope_is_opened(self, wrapped: str, settings: Any) -> None:
        """Where a cache doesn't tell how long a value has left, loads keep it in an envelope. Who reads finds the value."""
        settings.CACHES = {**settings.CACHES, "default": {**settings.CACHES["default"], "OPTIONS": {"STALE": 60}}}
        assert cache.get_or_set("k", lambda: 41) == 41
        assert isinstance(caches["raw"].get("k"), Kept), "nothing to test: there is no envelope"
        assert cache.get("k") == 41
        assert cache.get_many(["k"]) == {"k": 41}
        assert cache.get_or_set("k", 0) == 41
        assert cache.incr_version("k") == 2
        assert cache.get("k", version=2) == 41
        assert cache.incr("k", version=2) == 42
        assert cache.decr("k", 2, version=2) == 40
        assert cache.get("k", version=2) == 40


class TestKeys:
    def test_loads_of_two_prefixes_are_two(self, on_redis: RedisServer, settings: Any) -> None:
        """[S30] Two projects share a server: their loads have nothing to do with each other."""
        settings.CACHES = {
            **settings.CACHES,
            "raw2": {**settings.CACHES["raw"], "KEY_PREFIX": "other"},
            "raw3": {**settings.CACHES["raw"], "VERSION": 2},
            "other": {"BACKEND": WRAPPER, "LOCATION": "raw2", "OPTIONS": {"ON_CONFLICT": "raise", "WAIT": 0}},
            "third": {"BACKEND": WRAPPER, "LOCATION": "raw3", "OPTIONS": {"ON_CONFLICT": "raise", "WAIT": 0}},
        }
        with Loading(value="mine"):
            assert caches["other"].get_or_set("k", "theirs") == "theirs"
            assert caches["third"].get_or_set("k", "third") == "third"
            caches["other"].delete("k")
        assert cache.get("k") == "mine"

    def test_a_key_function_is_the_wrapped_caches(self, settings: Any) -> None:
        settings.CACHES = {
            "raw": {
                "BACKEND": LOCMEM,
                "LOCATION": "key-function",
                "KEY_FUNCTION": lambda key, prefix, version: f"<{key}>",
            },
            "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
        }
        cache.get_or_set("k", "value")
        assert caches["raw"].get("k") == "value"
        assert cache.make_key("k") == "<k>"

    def test_tests_may_patch_it(self, wrapped: str) -> None:
        """A method that is replaced on the cache is replaced for those who call it."""
        with mock.patch.object(cache, "get_or_set", return_value="patched"):
            assert cache.get_or_set("k", "value") == "patched"
        assert cache.get_or_set("k", None) is None
        with mock.patch.object(caches["default"], "key_func", return_value="patched"):
            cache.set("k", 1)
            assert caches["raw"].make_key("k") == "patched"
        assert cache.get("k") is None
