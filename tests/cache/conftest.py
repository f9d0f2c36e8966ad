"""Fixtures: caches of each kind, callers of each kind, and fresh state for each test."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import caches

from django_redis_locks.cache import counters
from tests.cache import backends
from tests.cache.backends import DUMMY, FILES, REDIS, WRAPPER, TrackedPyMemcacheCache, cache_entry, redis_caches
from tests.cache.callers import Callers, for_threads_and_tasks
from tests.contract.matrix import PATIENCE
from tests.probes import cache as probes
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.servers import unavailable
from tools.memcached_server import Memcached
from tools.processes import ServerNotFound
from tools.redis_server import RedisServer


@pytest.fixture(autouse=True)
def long_time_limits(tune: Tune) -> None:
    """Long timeouts, so that none of them ends within a test on a slow machine."""
    tune(socket_timeout=PATIENCE, writer_lease=60.0, unstored_note_ttl=60.0, max_wait_in_transaction=PATIENCE)


@pytest.fixture(autouse=True)
def fresh_state(tmp_path: Path, settings: Any) -> Iterator[None]:
    """Reset the process's state of caches. Disconnect the test's caches while its settings are in force."""
    probes.forget_state()
    yield
    probes.disconnect_caches()
    probes.forget_state()


@pytest.fixture(params=for_threads_and_tasks(backends.redis, backends.files))
def callers(request: pytest.FixtureRequest, settings: Any, loop: asyncio.AbstractEventLoop) -> Iterator[Callers]:
    """Callers, and the caches HERE and THERE. ``EACH_CACHE`` and ``ON_REDIS`` select other kinds than the default
    ones."""
    entries, face = request.param
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **entries(request)}
    callers = Callers(face, loop)
    yield callers
    callers.close()
    caches.close_all()


@pytest.fixture(params=[backends.redis, backends.files], ids=["redis", "files"])
def cache_pair(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """The caches HERE and THERE, for tests with their own threads or tasks. Returns the kind."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **request.param(request)}
    yield request.param.__name__
    caches.close_all()


@pytest.fixture
def redis_pair(settings: Any, redis_url: str) -> Iterator[str]:
    """The caches HERE and THERE on Redis. Returns the URL of the server."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(redis_url)}
    yield redis_url
    caches.close_all()


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the shared server."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A proxy in front of the shared server; see ``PROXIED``."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture(params=[REDIS, FILES], ids=lambda kind: kind.rpartition(".")[2])
def wrapped(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """`default` is a StampedeCache that wraps the cache `raw`. Returns the kind of `raw`."""
    wrapper = {"BACKEND": WRAPPER, "LOCATION": "raw", "OPTIONS": {"WAIT": PATIENCE}}
    settings.CACHES = {"raw": cache_entry(request, request.param), "default": wrapper}
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
    """The address of the shared server, which is empty."""
    memcached_server.flush()
    yield memcached_server.address
    while TrackedPyMemcacheCache.opened:
        TrackedPyMemcacheCache.opened.pop().close()


@pytest.fixture
def counted() -> Iterator[Callable[[], Counter[str]]]:
    """`counted()`: the cache counters since the test began, summed over all caches."""

    def total() -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, what), number in counters().items():
            found[what] += number
        return found

    before = total()
    return lambda: total() - before


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`wall_clock(61)`: set the wall clock to 61 seconds after the start of the test."""
    return lambda seconds: probes.pass_wall_time(monkeypatch, seconds)


@pytest.fixture(params=["redis", "locmem"])
def pages(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    """An empty default cache, on Redis or in this process."""
    if request.param == "redis":
        entry = {"BACKEND": REDIS, "LOCATION": request.getfixturevalue("redis_url")}
    else:
        entry = {"BACKEND": backends.LOCMEM, "LOCATION": "test_pages"}
    settings.CACHES = {"default": entry}
    caches["default"].clear()
    yield
    caches["default"].clear()


@pytest.fixture
def redis_cache(settings: Any, redis_url: str) -> None:
    """Empty caches `default` and `other` on Redis."""
    entry = {"BACKEND": REDIS, "LOCATION": redis_url}
    settings.CACHES = {"default": entry, "other": {**entry, "KEY_PREFIX": "o"}}
