"""Connections to the shared server, directly and through a proxy, and subscribers on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks.backends.redis import subscriber as subscriber_module
from django_redis_locks.backends.redis.pubsub_reader import PubSubReader
from django_redis_locks.backends.redis.redispy import connection_makers
from django_redis_locks.backends.redis.subscriber import RedisSubscriber
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.unit.backends.redis.subscribers import ANSWER, TICK, RecordingHandler
from tools.redis_server import RedisServer

if os.environ.get("EVENT_LOOP") == "uvloop":
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client on the shared server."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def short_polls(monkeypatch: pytest.MonkeyPatch, tune: Tune) -> None:
    """The subscriber checks its connection every 150 ms, and allows a busy server some seconds for a subscription and
    for the reply to a PING."""
    tune(max_poll_interval=TICK)
    tune(subscribe_timeout=30.0)
    send, listen = PubSubReader.send, PubSubReader.read
    pinged: set[PubSubReader] = set()

    def note_ping(reader: PubSubReader, request: bytes) -> None:
        send(reader, request)
        if request == subscriber_module.PING:
            pinged.add(reader)

    def wait_longer_after_ping(reader: PubSubReader, seconds: float) -> bool:
        received = listen(reader, ANSWER if reader in pinged else seconds)
        pinged.discard(reader)
        return received

    monkeypatch.setattr(PubSubReader, "send", note_ping)
    monkeypatch.setattr(PubSubReader, "read", wait_longer_after_ping)


@pytest.fixture
def handler() -> RecordingHandler:
    return RecordingHandler()


@pytest.fixture
def make_subscriber(handler: RecordingHandler) -> Iterator[Callable[..., RedisSubscriber]]:
    """`make_subscriber(url)`: a subscriber that reports to `handler`."""
    made: list[RedisSubscriber] = []

    def make(url: str, max_age: float = 3600.0) -> RedisSubscriber:
        make_resp2 = connection_makers(url, {"socket_timeout": 5.0, "socket_connect_timeout": 5.0})[2]
        made.append(RedisSubscriber(make_resp2, handler, "the server", max_age))
        return made[-1]

    yield make
    for subscriber in made:
        subscriber.close()


@pytest.fixture
def subscriber(make_subscriber: Callable[..., RedisSubscriber], proxy: Proxy) -> RedisSubscriber:
    return make_subscriber(proxy.url)
