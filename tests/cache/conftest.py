"""Caches of each kind, each under two names: what one name loads the other one hears of only from the store, as two
processes do."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import caches

from django_redis_locks.cache import early, get_or_load, metrics, roads
from django_redis_locks.cache.flights import Flight
from django_redis_locks.cache.roads import Road, road_of
from tests.cache.wrapped import FILES, LOCMEM, MEMCACHED, REDIS, WRAPPER, Closing, raw_entry
from tests.contract.matrix import FACES, PATIENCE, Caller, Task
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.servers import unavailable
from tools.memcached_server import Memcached
from tools.processes import ServerNotFound
from tools.redis_server import RedisServer

HERE, THERE = "here", "there"


def redis_caches(url: str, **entry: Any) -> dict[str, Any]:
    """One database of one server under two names, which share nothing in this process."""
    return {
        name: {"BACKEND": REDIS, **entry, "LOCATION": url.replace("127.0.0.1", host)}
        for name, host in ((HERE, "127.0.0.1"), (THERE, "localhost"))
    }


def redis_locks(url: str, **entry: Any) -> dict[str, Any]:
    """One server of locks under two names, which share nothing in this process."""
    return {
        name: {"LOCATION": url.replace("127.0.0.1", host), **entry}
        for name, host in ((HERE, "127.0.0.1"), (THERE, "localhost"))
    }


def at(name: str) -> dict[str, str]:
    """The arguments of who is here, or there. The leases of a cache that isn't on Redis bear its alias, so there it is
    the alias of the locks that differs."""
    return {"cache": name if settings.CACHES[HERE]["BACKEND"].endswith(".RedisCache") else HERE, "using": name}


def road_at(name: str) -> Road:
    return road_of(**at(name))


def fused(request: pytest.FixtureRequest) -> dict[str, Any]:
    return redis_caches(request.getfixturevalue("redis_url"))


def django_redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Another cache on Redis, with its own ways to pack values."""
    options = {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"}
    return redis_caches(request.getfixturevalue("redis_url"), BACKEND="django_redis.cache.RedisCache", OPTIONS=options)


def beside(request: pytest.FixtureRequest, kind: str = FILES) -> dict[str, Any]:
    """Files; the leases are on a server of Redis."""
    request.getfixturevalue("settings").REDIS_LOCKS = redis_locks(request.getfixturevalue("redis_url"))
    entry = raw_entry(request, kind)
    return {HERE: entry, THERE: entry}


def on_memcached(request: pytest.FixtureRequest) -> dict[str, Any]:
    """As for files."""
    return beside(request, MEMCACHED)


def local(request: pytest.FixtureRequest) -> dict[str, Any]:
    entry = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": request.node.name}
    return {HERE: entry, THERE: entry}


ROADS = [
    pytest.param(fused, id="fused"),
    pytest.param(django_redis, id="django_redis"),
    pytest.param(beside, id="beside"),
    pytest.param(on_memcached, id="memcached"),
    pytest.param(local, id="local"),
]


class Loader:
    """Returns a value each time, once its gate is open; counts."""

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
        """Until it has begun once more."""
        assert self.began.acquire(timeout=PATIENCE)


def flights_at(cache: str = HERE) -> list[Flight]:
    """The loads of this process that are on their way."""
    return list(road_at(cache).flights._flying.values())


class Stage:
    """Callers of one kind, and the caches."""

    def __init__(self, kind: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.is_async = kind is Task
        self._kind = kind
        self._loop = loop
        self._callers: list[Caller] = []

    def caller(self) -> Caller:
        caller: Caller = self._kind(self._loop)
        self._callers.append(caller)
        return caller

    def face(self, loader: Any) -> Any:
        return loader.asynchronously if self.is_async and isinstance(loader, Loader) else loader

    def start(
        self, key: str, loader: Any, *, cache: str = HERE, by: Caller | None = None, **options: Any
    ) -> Future[Any]:
        """Have somebody load, and return the future of his ``LoadResult``."""
        caller = by or self.caller()
        options.setdefault("wait", PATIENCE)
        return caller.start(get_or_load, key, self.face(loader), **at(cache), info=True, **options)

    def load(self, key: str, loader: Any, **options: Any) -> Any:
        """Load; a ``LoadResult``."""
        return self.start(key, loader, **options).result(PATIENCE)

    def followers(self, cache: str = HERE) -> int:
        """How many wait for flights of this process that others lead. A task waits for its own, too."""
        return sum(len(flight.gates) - self.is_async for flight in flights_at(cache))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function with a twin, as a caller of this kind."""
        return self.caller()(function, *args, **kwargs)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()


@pytest.fixture(params=FACES)
def stage(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Iterator[Stage]:
    stage = Stage(request.param, loop)
    yield stage
    stage.close()


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """Caches of each kind."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **request.param(request)}
    yield str(request.node.callspec.id)
    caches.close_all()


@pytest.fixture
def on_redis(request: pytest.FixtureRequest, settings: Any, redis_url: str) -> Iterator[str]:
    """Caches on Redis only; its URL."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(redis_url)}
    yield redis_url
    caches.close_all()


DUMMY = "django.core.cache.backends.dummy.DummyCache"


@pytest.fixture(params=[REDIS, LOCMEM, FILES, MEMCACHED], ids=lambda kind: kind.rpartition(".")[2])
def wrapped(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """`default` wraps `raw`, which is a cache of each kind; its kind."""
    wrapper = {"BACKEND": WRAPPER, "LOCATION": "raw", "OPTIONS": {"WAIT": PATIENCE}}
    settings.CACHES = {"raw": raw_entry(request, request.param), "default": wrapper}
    yield request.param
    caches.close_all()


@pytest.fixture(scope="session")
def memcached_server() -> Iterator[Memcached]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(Memcached())
        except ServerNotFound as error:
            unavailable(str(error))


@pytest.fixture
def memcached(memcached_server: Memcached) -> Iterator[str]:
    """The address of the shared server, empty."""
    memcached_server.flush()
    yield memcached_server.address
    while Closing.opened:
        Closing.opened.pop().close()


@pytest.fixture
def counted() -> Iterator[Callable[[], Counter[str]]]:
    """What was counted since the test began, of all caches."""
    before = Counter(metrics._counts)

    def since() -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, what), number in (Counter(metrics._counts) - before).items():
            found[what] += number
        return found

    return since


@pytest.fixture
def proxied(redis_server: RedisServer, settings: Any, redis_url: str) -> Iterator[Proxy]:
    """The caches behind a proxy."""
    with Proxy(redis_server.port) as proxy:
        settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(proxy.url)}
        yield proxy
        caches.close_all()


@pytest.fixture(autouse=True)
def patient(tune: Tune) -> None:
    """However long a server or a thread stands still: no answer comes too late, no claim of one who writes ends before he
    does, and what was said of a load isn't forgotten in the same test."""
    tune(socket_timeout=PATIENCE, writer_lease=60.0, unstored_memory=60.0)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    """What is remembered of loads of one name isn't the next test's."""
    early._seconds.clear()
    roads.forget_roads()
    yield
    roads.forget_roads()


@pytest.fixture(params=["redis", "locmem"])
def pages(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    """Pages in a cache of either road."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        entry = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
    else:
        entry = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "test_pages"}
    settings.CACHES = {"default": entry}
    caches["default"].clear()
    yield
    caches["default"].clear()
