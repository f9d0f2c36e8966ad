"""The a-methods of ``StampedeCache``: native, and the same fences."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.core.cache import cache, caches
from django.core.cache.backends.base import BaseCache

from django_redis_locks.cache import StampedeCache
from tests.cache.backends import FILES, LOCMEM, MEMCACHED, REDIS, WRAPPER
from tests.cache.callers import WRITES, aloading, awrite, write

every_kind = pytest.mark.parametrize("wrapped", [REDIS, LOCMEM, FILES, MEMCACHED], indirect=True)


@pytest.mark.usefixtures("wrapped")
class TestWrites:
    @every_kind
    def test_write_in_a_loop_during_a_load_wins(self) -> None:
        """[S1] [S4] [S31] As in threads. Django's caches allow synchronous writes in a loop: a wrapper that raised would break
        code that works."""

        async def story() -> None:
            for name, (_, stays) in WRITES.items():
                async with aloading() as loading:
                    await awrite(name)
                assert loading.result() == "old", name
                assert await cache.aget("k") == stays, name
                await cache.aclear()
                async with aloading():
                    write(name)
                assert await cache.aget("k") != "old", name
                await cache.aclear()

        asyncio.run(story())


@pytest.mark.usefixtures("wrapped")
class TestGetOrSet:
    def test_aget_or_set_loads_once_for_all_tasks(self) -> None:
        async def story() -> None:
            calls: list[int] = []

            async def load() -> str:
                calls.append(1)
                await asyncio.sleep(0)
                return "value"

            found = await asyncio.gather(*(cache.aget_or_set("k", load) for _ in range(20)))
            assert found == ["value"] * 20
            assert calls == [1]
            assert await cache.aget("k") == "value"

        asyncio.run(story())

    def test_aget_or_set_takes_async_functions_callables_and_values(self) -> None:
        """[S23] Django calls an async function, and pickles its coroutine."""

        async def load() -> str:
            return "async"

        async def story() -> None:
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

        asyncio.run(story())

    def test_synchronous_get_or_set_in_a_loop_loads_without_waiting(self) -> None:
        """As Django's: it can't wait for a task of the loop that it blocks."""

        async def story() -> None:
            async with aloading():
                assert cache.get_or_set("k", lambda: "mine") == "mine"

        asyncio.run(story())


def noted(name: str) -> Any:
    async def method(self: Any, *args: Any, **kwargs: Any) -> int:
        self.calls.append((name, threading.current_thread()))
        return 1

    return method


class Native(BaseCache):
    """Its a-methods need no thread, and its other ones must not be called."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.calls: list[tuple[str, threading.Thread]] = []

    aget, aset, aadd, atouch, adelete, aclear = map(noted, ("get", "set", "add", "touch", "delete", "clear"))


def test_every_async_method_awaits_that_of_the_wrapped_cache(settings: Any) -> None:
    """[S22] None goes through a thread when the wrapped cache needs none."""
    settings.CACHES = {
        "raw": {"BACKEND": f"{__name__}.Native"},
        "default": {"BACKEND": WRAPPER, "LOCATION": "raw"},
    }

    async def story() -> list[tuple[str, threading.Thread]]:
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

    calls = asyncio.run(story())
    assert {thread for _, thread in calls} == {threading.current_thread()}
    assert len(calls) >= 14


def test_every_method_of_django_is_overridden_or_goes_through_another() -> None:
    """A method that a newer Django adds would reach neither the wrapped cache nor the fences."""
    through_others = {
        "__contains__",  # has_key
        "decr",  # incr
        "adecr",
        "decr_version",  # incr_version
        "adecr_version",
    }
    public = {name for name, value in vars(BaseCache).items() if callable(value) and not name.startswith("__")}
    assert public | {"__contains__"} <= set(vars(StampedeCache)) | through_others
