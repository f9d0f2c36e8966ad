"""``StampedeCache``: writes during loads, in threads and tasks; get_or_set; timeouts; reads as in the wrapped cache."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
import redis
from django.core.cache import cache, caches
from django.core.cache.backends.base import BaseCache

from django_redis_locks import LockBackendError
from django_redis_locks.cache import StampedeCache, invalidate
from tests.cache.backends import FILES, LOCMEM, MEMCACHED, REDIS, WRAPPER
from tests.cache.callers import WRITES, awrite, load_in_task, load_in_thread, write
from tests.django.helpers import PATIENCE
from tests.probes.cache import coordinator, fail_command, is_envelope
from tests.probes.tuning import Tune
from tests.waiting import eventually
from tools.redis_server import RedisServer

every_kind = pytest.mark.parametrize("wrapped", [REDIS, LOCMEM, FILES, MEMCACHED], indirect=True)


@pytest.fixture
def on_redis(settings: Any, redis_url: str) -> None:
    settings.CACHES = {
        "raw": {"BACKEND": REDIS, "LOCATION": redis_url},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }


def configure(settings: Any, **entry: Any) -> None:
    settings.CACHES = {**settings.CACHES, "default": {**settings.CACHES["default"], **entry}}


@pytest.mark.usefixtures("wrapped")
class TestWrites:
    @every_kind
    def test_write_during_a_load_prevents_its_store(self) -> None:
        """[S1] [S4] [S31] The caller gets the loaded value; the cache has the written value, or none."""
        for name, (_, stays) in WRITES.items():
            with load_in_thread() as (_, future):
                write(name)
            assert future.result() == "old", name
            assert cache.get("k") == stays, name
            assert cache.get_or_set("k", "newer") == (stays or "newer"), name
            cache.clear()

    def test_write_after_a_failed_invalidation_is_kept_when_it_is_repeated(
        self, monkeypatch: pytest.MonkeyPatch, tune: Tune
    ) -> None:
        """[S6] Only the invalidation of the other key is repeated."""
        tune(min_invalidation_retry_delay=0.2)
        fail_command(monkeypatch, "load/invalidate", LockBackendError("refused"), "default")
        with pytest.raises(LockBackendError):
            invalidate("k", "k2")
        cache.set("k", "new")
        caches["raw"].set("k2", "old")
        monkeypatch.undo()
        eventually(lambda: caches["raw"].get("k2") is None)
        assert cache.get("k") == "new"

    def test_write_of_another_key_voids_no_load(self) -> None:
        """[S20]"""
        with load_in_thread():
            cache.set("k2", "new")
            cache.delete("k", version=2)
        assert cache.get("k") == "old"


@pytest.mark.usefixtures("wrapped")
class TestGetOrSet:
    @every_kind
    def test_get_or_set_loads_once_for_all_callers(self) -> None:
        """Django's own get_or_set calls the default once per caller."""
        with ThreadPoolExecutor(20) as pool, load_in_thread([1, 2]) as (loader, _):
            others = [pool.submit(lambda: caches["default"].get_or_set("k", lambda: "mine")) for _ in range(20)]
            loader.gate.set()
            assert [other.result(PATIENCE) for other in others] == [[1, 2]] * 20
        assert loader.calls == 1

    def test_get_or_set_refuses_an_async_function(self) -> None:
        """[S23] Before storing anything; Django would try to pickle its coroutine."""

        async def load() -> str:
            return "never"

        class Load:
            async def __call__(self) -> str:
                return "never"

        for there in (None, "value"):
            if there:
                cache.set("k", there)
            for loader in (load, Load()):
                with pytest.raises(TypeError, match=r"await aget_or_set\(\) instead"):
                    cache.get_or_set("k", loader)
            with pytest.raises(TypeError, match="without calling it"):
                cache.get_or_set("k", load())
            if not there:
                with pytest.raises(TypeError, match="awaitable"):
                    cache.get_or_set("k", lambda: load())  # noqa: PLW0108 - a lambda hides that it is async
            assert cache.get("k") == there

    def test_get_or_load_and_get_or_set_share_loads(self) -> None:
        assert coordinator("default") is coordinator("raw") is coordinator(cache) is coordinator(caches["default"])


@pytest.mark.usefixtures("on_redis")
class TestTimeouts:
    WRITES: dict[str, Callable[[], object]] = {  # noqa: RUF012 - constant
        "set": lambda: cache.set("k", 1),
        "get_or_set": lambda: cache.get_or_set("k", 1),
        "add": lambda: cache.add("k", 1),
        "set_many": lambda: cache.set_many({"k": 1}),
        "touch": lambda: (cache.set("k", 1, 5), cache.touch("k")),
    }

    @pytest.mark.parametrize(
        ("outer", "inner", "expected"),
        [({"TIMEOUT": 50}, {"TIMEOUT": 7}, 50), ({}, {"TIMEOUT": 70}, 70)],
        ids=["its-own", "the-wrapped-cache's"],
    )
    def test_default_timeout_is_that_of_the_wrapper_or_of_the_wrapped_cache(
        self, settings: Any, redis_client: redis.Redis, outer: Any, inner: Any, expected: int
    ) -> None:
        settings.CACHES["raw"] |= inner
        configure(settings, **outer, OPTIONS={"JITTER": 0})
        assert cache.default_timeout == expected
        for name, call in self.WRITES.items():
            call()
            assert expected - 10 <= redis_client.ttl(":1:k") <= expected, name
            cache.delete("k")
        cache.set("k", 1, None)
        assert redis_client.ttl(":1:k") == -1


class TestReading:
    @pytest.mark.exact("counts commands")
    def test_read_costs_one_command(self, make_server: Callable[..., RedisServer], settings: Any) -> None:
        """[S43] As with the wrapped cache, for hits and misses; a miss takes no lease."""
        server = make_server()  # without the background work of other tests

        def commands() -> int:
            return int(server.command("INFO", "stats").split("total_commands_processed:")[1].split()[0])

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
            before = commands()
            read()
            assert commands() - before == 2  # and INFO
        assert server.command("KEYS", "*absent*") == []

    @pytest.mark.usefixtures("on_redis")
    def test_read_returns_a_value_that_is_due_for_an_early_refresh(self, settings: Any) -> None:
        """[S44] Early refresh is for loads only: `get` and `in` don't report the value as missing."""
        configure(settings, OPTIONS={"EARLY": 0.01, "STALE": 60})
        cache.get_or_set("k", "value", 60)
        assert {cache.get("k", "nothing") for _ in range(100)} == {"value"}
        assert "k" in cache

    @every_kind
    def test_wrapper_and_wrapped_cache_read_each_others_values(self, wrapped: str) -> None:
        """Prefix, version and format are those of the wrapped cache."""
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
    def test_value_in_an_envelope_is_read_as_the_value(self, wrapped: str, settings: Any) -> None:
        """A cache without a `ttl` method stores loads with STALE in an envelope."""
        configure(settings, OPTIONS={"STALE": 60})
        assert cache.get_or_set("k", lambda: 41) == 41
        assert is_envelope(caches["raw"].get("k")), "nothing to test: there is no envelope"
        assert cache.get("k") == 41
        assert cache.get_many(["k"]) == {"k": 41}
        assert cache.get_or_set("k", 0) == 41
        assert cache.incr_version("k") == 2
        assert cache.get("k", version=2) == 41
        assert cache.incr("k", version=2) == 42
        assert cache.decr("k", 2, version=2) == 40
        assert cache.get("k", version=2) == 40


class TestKeys:
    def test_methods_can_be_patched_by_tests(self, wrapped: str) -> None:
        with mock.patch.object(cache, "get_or_set", return_value="patched"):
            assert cache.get_or_set("k", "value") == "patched"
        assert cache.get_or_set("k", None) is None
        with mock.patch.object(caches["default"], "key_func", return_value="patched"):
            cache.set("k", 1)
            assert caches["raw"].make_key("k") == "patched"
        assert cache.get("k") is None


@pytest.mark.usefixtures("wrapped")
class TestInTasks:
    @every_kind
    def test_write_in_a_loop_during_a_load_prevents_its_store(self) -> None:
        """[S1] [S4] [S31] As in threads, also by synchronous methods, which Django's caches allow in a loop."""

        async def scenario() -> None:
            for name, (_, stays) in WRITES.items():
                async with load_in_task() as load_in_thread:
                    await awrite(name)
                assert load_in_thread.result() == "old", name
                assert await cache.aget("k") == stays, name
                await cache.aclear()
                async with load_in_task():
                    write(name)
                assert await cache.aget("k") != "old", name
                await cache.aclear()

        asyncio.run(scenario())

    def test_aget_or_set_loads_once_for_all_tasks(self) -> None:
        async def scenario() -> None:
            calls: list[int] = []

            async def load() -> str:
                calls.append(1)
                await asyncio.sleep(0)
                return "value"

            found = await asyncio.gather(*(cache.aget_or_set("k", load) for _ in range(20)))
            assert found == ["value"] * 20
            assert calls == [1]
            assert await cache.aget("k") == "value"

        asyncio.run(scenario())

    def test_aget_or_set_takes_async_functions_callables_and_values(self) -> None:
        """[S23] Django would pickle the coroutine of an async function."""

        async def load() -> str:
            return "async"

        async def scenario() -> None:
            assert await cache.aget_or_set("async", load) == "async"
            assert await cache.aget_or_set("returns", lambda: load()) == "async"  # noqa: PLW0108
            assert await cache.aget_or_set("plain", lambda: "plain") == "plain"
            assert await cache.aget_or_set("value", "value") == "value"
            assert await cache.aget_or_set("class", list) == []
            assert await cache.aget_or_set("none", None) is None
            assert await cache.ahas_key("none")
            with pytest.raises(TypeError, match="without calling it"):
                await cache.aget_or_set("coroutine", load())
            stored = {"async": "async", "returns": "async", "plain": "plain", "value": "value"}
            assert await cache.aget_many([*stored, "coroutine"]) == stored

        asyncio.run(scenario())

    def test_synchronous_get_or_set_in_a_loop_loads_without_waiting(self) -> None:
        """As Django's get_or_set: it can't wait for a task of the loop that it blocks."""

        async def scenario() -> None:
            async with load_in_task():
                assert cache.get_or_set("k", lambda: "mine") == "mine"

        asyncio.run(scenario())


def recording_method(name: str) -> Any:
    async def method(self: Any, *args: Any, **kwargs: Any) -> int:
        self.calls.append((name, threading.current_thread()))
        return 1

    return method


class NativeAsyncCache(BaseCache):
    """A cache with native async methods. Its synchronous methods must not be called."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.calls: list[tuple[str, threading.Thread]] = []

    aget, aset, aadd, atouch, adelete, aclear = map(recording_method, ("get", "set", "add", "touch", "delete", "clear"))


def test_every_async_method_awaits_that_of_the_wrapped_cache(settings: Any) -> None:
    """[S22] Without a thread, if the wrapped cache needs none."""
    settings.CACHES = {
        "raw": {"BACKEND": f"{__name__}.NativeAsyncCache"},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }

    async def scenario() -> list[tuple[str, threading.Thread]]:
        for name in ("get", "has_key", "touch", "delete", "incr", "decr", "incr_version", "decr_version"):
            await getattr(cache, f"a{name}")("k")
        for name in ("set", "add"):
            await getattr(cache, f"a{name}")("k", 1)
        await cache.aget_many(["k"])
        await cache.aset_many({"k": 1})
        await cache.adelete_many(["k"])
        await cache.aclear()
        await cache.aclose()
        calls: list[tuple[str, threading.Thread]] = caches["raw"].calls
        return calls

    calls = asyncio.run(scenario())
    assert {thread for _, thread in calls} == {threading.current_thread()}
    assert len(calls) >= 14


def test_every_method_of_djangos_caches_is_overridden_or_calls_one_that_is() -> None:
    """A method that a newer Django adds would bypass the wrapped cache and the guard of writes."""
    through_others = {
        "__contains__",  # has_key
        "decr",  # incr
        "adecr",
        "decr_version",  # incr_version
        "adecr_version",
    }
    public = {name for name, value in vars(BaseCache).items() if callable(value) and not name.startswith("__")}
    assert public | {"__contains__"} <= set(vars(StampedeCache)) | through_others
