"""Callers of ``get_or_load`` in threads or tasks, loaders that wait for the test, and the writes of a StampedeCache."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from time import monotonic
from typing import Any

import pytest
from django.core.cache import cache

from django_redis_locks.cache import LoadResult, get_or_load
from tests.cache import backends
from tests.cache.backends import HERE, THERE, at
from tests.contract.matrix import PATIENCE, Caller, Task, Thread, eventually
from tests.probes import cache as probes


class Loader:
    """Returns its next value, raises it if it is an exception, or calls it. Counts its calls. With ``gate=True`` it
    waits until the test opens the gate."""

    def __init__(self, *values: Any, gate: bool = False) -> None:
        self.values = values
        self.calls = 0
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        if not gate:
            self.gate.set()
        self._mutex = threading.Lock()

    def __call__(self) -> Any:
        value = self._begin()
        assert self.gate.wait(PATIENCE)
        return self._end(value)

    async def asynchronously(self) -> Any:
        value = self._begin()
        assert await asyncio.get_running_loop().run_in_executor(None, self.gate.wait, PATIENCE)
        return self._end(value)

    def _begin(self) -> Any:
        with self._mutex:
            value = self.values[min(self.calls, len(self.values) - 1)]
            self.calls += 1
        self.began.release()
        return value

    def _end(self, value: Any) -> Any:
        if isinstance(value, BaseException) or (isinstance(value, type) and issubclass(value, BaseException)):
            raise value
        return value() if callable(value) else value

    def wait(self) -> None:
        """Wait until one more call has begun."""
        assert self.began.acquire(timeout=PATIENCE)


class RunningLoad:
    """A load that runs until the test calls ``finish``."""

    def __init__(self, loader: Loader, future: Future[Any]) -> None:
        self.loader = loader
        self.future = future

    def finish(self) -> Any:
        """Open the gate. Return what its caller gets, or raise what it raises."""
        self.loader.gate.set()
        result = self.future.result(PATIENCE)
        return result.value if isinstance(result, LoadResult) else result


class Callers:
    """Callers of ``get_or_load`` in threads, or in tasks. Options are its options; ``ttl`` is 60 by default."""

    def __init__(self, face: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.is_async = face is Task
        self._face = face
        self._loop = loop
        self._callers: list[Caller] = []

    def caller(self) -> Caller:
        caller: Caller = self._face(self._loop)
        self._callers.append(caller)
        return caller

    def loader(self, loader: Any) -> Any:
        """The loader, as a coroutine function for tasks."""
        return loader.asynchronously if self.is_async and isinstance(loader, Loader) else loader

    def start(self, key: Any, loader: Any, *, cache: str = HERE, **options: Any) -> Future[Any]:
        """Load in a new caller. Return the future of its ``LoadResult``."""
        options = {"ttl": 60, "wait": PATIENCE, **options}
        return self.caller().start(get_or_load, key, self.loader(loader), **at(cache), info=True, **options)

    def load(self, key: Any, loader: Any, **options: Any) -> Any:
        """Load, and return the ``LoadResult``. ``loader`` may be the value."""
        return self.start(key, loader if callable(loader) else Loader(loader), **options).result(PATIENCE)

    def value(self, key: Any, loader: Any, **options: Any) -> Any:
        """Load, and return the value."""
        return self.load(key, loader, **options).value

    def begin_load(self, *values: Any, key: Any = "k", **options: Any) -> RunningLoad:
        """Start a load and wait until its loader has begun."""
        loader = Loader(*values, gate=True)
        running = RunningLoad(loader, self.start(key, loader, **options))
        loader.wait()
        return running

    def follow(self, running: RunningLoad, number: int = 1, **options: Any) -> list[Future[Any]]:
        """Start callers, and wait until they follow this load."""
        futures = [self.start("k", running.loader, **options) for _ in range(number)]
        eventually(lambda: self.followers() == number)
        return futures

    def start_waiter(self, *, key: str = "k", cache: str = THERE, **options: Any) -> RunningLoad:
        """Start a caller, and wait until it waits for the load of another one. Its own loader must not be called."""
        loader = Loader(AssertionError("it was loaded twice"))
        future = self.start(key, loader, cache=cache, **options)
        eventually(lambda: probes.waiters_in_store(**at(cache)) or self.followers(cache) or future.done())
        return RunningLoad(loader, future)

    def make_stale(self, key: str = "k", value: Any = "old", **options: Any) -> None:
        """Load a value that is stale afterwards, for ten minutes."""
        self.load(key, value, **{"ttl": 0.01, "jitter": 0.0, "stale": 600, **options})
        begin = monotonic()
        eventually(lambda: monotonic() - begin > 0.03)

    def followers(self, cache: str = HERE) -> int:
        """The number of callers that wait for other callers' loads in this process."""
        leaders = len(probes.loads_in_flight(**at(cache))) if self.is_async else 0
        return probes.followers(**at(cache)) - leaders

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, or in a task its async twin."""
        return self.caller()(function, *args, **kwargs)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()


STALE: dict[str, Any] = {"ttl": 60, "stale": 600}
"""Options of callers that accept a stale value."""

FACES = {"sync": Thread, "async": Task}


def for_threads_and_tasks(*kinds: Any) -> list[Any]:
    """Parameters of the fixture ``callers``: each kind of cache, for threads and for tasks."""
    return [pytest.param((kind, face), id=f"{kind.__name__}-{name}") for kind in kinds for name, face in FACES.items()]


EACH_CACHE = pytest.mark.parametrize(
    "callers",
    for_threads_and_tasks(backends.redis, backends.django_redis, backends.files, backends.memcached, backends.locmem),
    indirect=True,
)
"""All kinds of caches. By default only two: on Redis, where leases are beside the values, and files."""
ON_REDIS = pytest.mark.parametrize("callers", for_threads_and_tasks(backends.redis), indirect=True)
PROXIED = pytest.mark.parametrize("callers", for_threads_and_tasks(backends.proxied), indirect=True)


# StampedeCache


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
"""Writes of the key "k" by name, and its value afterwards if a concurrent load began before the write."""


def write(name: str) -> None:
    for method, args, options in WRITES[name][0]:
        with suppress(ValueError):  # there is no value to increment
            getattr(cache, method)(*args, **options)


async def awrite(name: str) -> None:
    for method, args, options in WRITES[name][0]:
        with suppress(ValueError):
            await getattr(cache, f"a{method}")(*args, **options)


@contextmanager
def load_in_thread(value: Any = "old") -> Iterator[tuple[Loader, Future[Any]]]:
    """`get_or_set("k")` in another thread; its loader runs until the block ends."""
    loader = Loader(value, gate=True)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: cache.get_or_set("k", loader))
        loader.wait()
        try:
            yield loader, future
        finally:
            loader.gate.set()


@asynccontextmanager
async def load_in_task() -> AsyncIterator[asyncio.Task[Any]]:
    """`aget_or_set("k")` in another task; its loader runs until the block ends."""
    loader = Loader("old", gate=True)
    task = asyncio.create_task(cache.aget_or_set("k", loader.asynchronously))
    await asyncio.to_thread(loader.wait)
    yield task
    loader.gate.set()
    await task
