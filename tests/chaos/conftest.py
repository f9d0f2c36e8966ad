"""Locks over a proxy, over a server that may be hurt, and a direct look at the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks import locks
from django_redis_locks.client import Locks
from django_redis_locks.core import events
from tests.chaos.proxy import Proxy
from tools.redis_server import RedisServer

SILENCE = 0.25
"""The socket timeout of these tests, in seconds."""


@pytest.fixture
def open_locks(settings) -> Callable[..., Locks]:
    """`open_locks(url, EXPIRE=1)`: the locks of a server, with other settings of the alias."""

    def open_locks(url: str, **entry: object) -> Locks:
        options = {"socket_timeout": SILENCE, **entry.pop("OPTIONS", {})}
        settings.REDIS_LOCKS = {"default": {"LOCATION": url, "OPTIONS": options, **entry}}
        return locks["default"]

    return open_locks


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: Proxy, open_locks: Callable[..., Locks]) -> Locks:
    """Locks whose script calls go through the proxy; scripts are loaded, and one connection is idle."""
    client = open_locks(proxy.url)
    for _ in range(2):
        with client.lock("warm up") as grant:
            grant.extend(30)
    proxy.calls.clear()
    return client


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client on the shared server."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def heard() -> Iterator[list[events.Event]]:
    """Every event while the test runs."""
    heard: list[events.Event] = []
    events.listen(heard.append)
    yield heard
    events._listeners.remove(heard.append)
