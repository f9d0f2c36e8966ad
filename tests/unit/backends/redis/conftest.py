"""Connections to the shared server, directly and through a proxy, and inboxes on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest
import redis

from django_redis_locks.backends.redis import subscriber as inbox_module
from django_redis_locks.backends.redis.redispy import connection_makers
from django_redis_locks.backends.redis.subscriber import RedisSubscriber
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tests.unit.backends.redis.subscribers import ANSWER, TICK, InboxOwner
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
    """The inbox checks its connection every 150 ms, and allows a busy server some seconds for a subscription and for the
    reply to a PING."""
    tune(max_poll_interval=TICK)
    tune(subscribe_timeout=30.0)
    send, listen = inbox_module.PubSubReader.send, inbox_module.PubSubReader.next
    pinged: set[inbox_module.PubSubReader] = set()

    def note_ping(reader: inbox_module.PubSubReader, request: bytes) -> None:
        send(reader, request)
        if request == inbox_module.PING:
            pinged.add(reader)

    def wait_longer_after_ping(reader: inbox_module.PubSubReader, seconds: float) -> object:
        reply = listen(reader, ANSWER if reader in pinged else seconds)
        pinged.discard(reader)
        return reply

    monkeypatch.setattr(inbox_module.PubSubReader, "send", note_ping)
    monkeypatch.setattr(inbox_module.PubSubReader, "next", wait_longer_after_ping)


@pytest.fixture
def owner() -> InboxOwner:
    return InboxOwner()


@pytest.fixture
def make_inbox(owner: InboxOwner) -> Iterator[Callable[..., RedisSubscriber]]:
    """`make_inbox(url)`: an inbox that reports to the owner."""
    made: list[RedisSubscriber] = []

    def make(url: str, max_age: float = 3600.0) -> RedisSubscriber:
        make_resp2 = connection_makers(url, {"socket_timeout": 5.0, "socket_connect_timeout": 5.0})[2]
        made.append(RedisSubscriber(make_resp2, owner, "the server", max_age))
        return made[-1]

    yield make
    for inbox in made:
        inbox.close()


@pytest.fixture
def inbox(make_inbox: Callable[..., RedisSubscriber], proxy: Proxy) -> RedisSubscriber:
    return make_inbox(proxy.url)
