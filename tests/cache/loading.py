"""Helpers for tests of StampedeCache: its writes, and a `get_or_set` whose loader waits for the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from django.core.cache import cache, caches

from tests.django.helpers import PATIENCE

WRITES: dict[str, tuple[list[tuple[str, tuple[Any, ...], dict[str, Any]]], object]] = {
    "set": ([("set", ("k", "new"), {})], "new"),
    "set_many": ([("set_many", ({"a": 1, "k": "new"},), {})], "new"),
    "add": ([("add", ("k", "new"), {})], "new"),
    "touch": ([("touch", ("k", 50), {})], None),
    "delete": ([("delete", ("k",), {})], None),
    "delete_many": ([("delete_many", (["a", "k"],), {})], None),
    "clear": ([("clear", (), {})], None),
    "incr": ([("incr", ("k",), {})], None),
    "decr": ([("decr", ("k",), {})], None),
    "incr_version": ([("incr_version", ("k",), {})], None),
    "incr_version to it": ([("set", ("k", "v0"), {"version": 0}), ("incr_version", ("k",), {"version": 0})], "v0"),
    "decr_version to it": ([("set", ("k", "v2"), {"version": 2}), ("decr_version", ("k",), {"version": 2})], "v2"),
}
"""Calls that write the value "k", by name, and what the cache has afterwards if another thread loads it meanwhile."""


def write(name: str) -> None:
    for method, args, options in WRITES[name][0]:
        with suppress(ValueError):  # there is nothing to be incremented
            getattr(cache, method)(*args, **options)


async def awrite(name: str) -> None:
    for method, args, options in WRITES[name][0]:
        with suppress(ValueError):
            await getattr(cache, f"a{method}")(*args, **options)


class Slow:
    """A loader that says that it runs, and returns when it may."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.runs = threading.Event()
        self.may_end = threading.Event()
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        self.runs.set()
        assert self.may_end.wait(6 * PATIENCE)  # another process may have to start meanwhile
        return self.value


class Loading:
    """`get_or_set` in another thread, whose loader runs until the block ends; or, if it is `patient`, need not."""

    def __init__(self, key: str = "k", alias: str = "default", value: Any = "old", *, patient: bool = False) -> None:
        self.loader = Slow(value)
        self.result: list[Any] = []
        self._key = key
        self._alias = alias
        self._patient = patient

    def _work(self) -> None:
        try:
            self.result.append(caches[self._alias].get_or_set(self._key, self.loader))
        except Exception as error:  # noqa: BLE001 - the test compares
            self.result.append(error)
        finally:
            self.loader.runs.set()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._patient or self.loader.runs.wait(PATIENCE)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.loader.may_end.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@asynccontextmanager
async def aloading() -> AsyncIterator[asyncio.Task[Any]]:
    """The same by `aget_or_set` in another task."""
    runs, may_end = asyncio.Event(), asyncio.Event()

    async def loader() -> str:
        runs.set()
        await asyncio.wait_for(may_end.wait(), PATIENCE)
        return "old"

    task = asyncio.create_task(cache.aget_or_set("k", loader))
    await asyncio.wait_for(runs.wait(), PATIENCE)
    yield task
    may_end.set()
    await asyncio.wait_for(task, PATIENCE)
