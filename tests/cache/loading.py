"""Helpers for tests of StampedeCache: its writes, and a `get_or_set` whose loader waits for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from django.core.cache import cache

from tests.cache.callers import Loader

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


@contextmanager
def loading(value: Any = "old") -> Iterator[tuple[Loader, Future[Any]]]:
    """`get_or_set` of "k" in another thread, whose loader runs until the block ends."""
    loader = Loader(value, gate=True)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: cache.get_or_set("k", loader))
        loader.wait()
        try:
            yield loader, future
        finally:
            loader.gate.set()


@asynccontextmanager
async def aloading() -> AsyncIterator[asyncio.Task[Any]]:
    """The same by `aget_or_set` in another task."""
    loader = Loader("old", gate=True)
    task = asyncio.create_task(cache.aget_or_set("k", loader.asynchronously))
    await asyncio.to_thread(loader.wait)
    yield task
    loader.gate.set()
    await task
