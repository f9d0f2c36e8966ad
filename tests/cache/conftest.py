"""Caches of each kind, callers of each kind, and a fresh state for each test."""

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
from tests.cache.backends import DUMMY, FILES, REDIS, WRAPPER, Closing, cache_entry, redis_caches
from tests.cache.callers import Callers, cells
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
    """No answer of a store and no load is given up, no guard of a write ends, and no note about a load is dropped within a
    test."""
    tune(socket_timeout=PATIENCE, writer_lease=60.0, unstored_note_ttl=60.0, max_wait_in_transaction=PATIENCE)


@pytest.fixture(autouse=True)
def fresh_state(tmp_path: Path, settings: Any) -> Iterator[None]:
    """The caches of a test are disconnected before its settings end."""
    probes.forget_state()
    yield
    probes.disconnect_caches()
    probes.forget_state()


@pytest.fixture(params=cells(backends.redis, backends.files))
def callers(request: pytest.FixtureRequest, settings: Any, loop: asyncio.AbstractEventLoop) -> Iterator[Callers]:
    """Callers, and caches HERE and THERE; see ``EACH_CACHE`` and ``ON_REDIS`` for others than the default."""
    entries, face = request.param
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **entries(request)}
    callers = Callers(face, loop)
    yield callers
    callers.close()
    caches.close_all()


@pytest.fixture(params=[backends.redis, backends.files], ids=["redis", "files"])
def cache_pair(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """Caches HERE and THERE, for tests that bring their own threads or tasks; its kind."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **request.param(request)}
    yield request.param.__name__
    caches.close_all()


@pytest.fixture
def redis_pair(settings: Any, redis_url: str) -> Iterator[str]:
    """The same, on Redis only; its URL."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}, **redis_caches(redis_url)}
    yield redis_url
    caches.close_all()


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the shared server."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A proxy before the shared server; see ``PROXIED``."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture(params=[REDIS, FILES], ids=lambda kind: kind.rpartition(".")[2])
def wrapped(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """`default` is a StampedeCache of `raw`, which is a cache of some kind; its kind."""
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
    """The address of the shared server, empty."""
    memcached_server.flush()
    yield memcached_server.address
    while Closing.opened:
        Closing.opened.pop().close()


@pytest.fixture
def counted() -> Iterator[Callable[[], Counter[str]]]:
    """What was counted since the test began, of all caches."""

    def total() -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, what), number in counters().items():
            found[what] += number
        return found

    before = total()
    return lambda: total() - before


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`wall_clock(61)`: it is this many seconds later than it was when the test began."""
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
