"""A proxy before the shared server, those who talk through it, and a look past it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import redis

from tests.proxy import Proxy
from tests.tools.raw import Client
from tools.redis_server import RedisServer


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A look at the server, past the proxy."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[Callable[[], Client]]:
    with contextlib.ExitStack() as stack:

        def connect() -> Client:
            client = Client(proxy.url)
            stack.callback(client.close)
            return client

        yield connect


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.fixture
def other(connect: Callable[[], Client]) -> Client:
    """Somebody whom the faults of others don't touch. His answer comes after what the proxy had to do before."""
    return connect()
