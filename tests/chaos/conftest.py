"""Locks over a proxy, locks on servers that tests disturb, and a plain client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

from django_redis_locks import Lock, locks
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync
from tests.chaos.jobs import acquire
from tests.chaos.workers import CAP, Worker
from tests.probes.engine import Event, event_listener
from tests.probes.tuning import Tune
from tests.proxy import Proxy
from tools.redis_server import RedisServer

if os.environ.get("EVENT_LOOP") == "uvloop":
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

PATIENT = 5.0
"""The socket timeout of these tests, in seconds: a busy machine may take a second for a reply."""

SILENCE = 1.0
"""The socket timeout of tests with a silent server. A module sets it for `proxied` by `SOCKET_TIMEOUT`."""


@pytest.fixture
def open_locks(settings) -> Callable[..., Locks]:
    """`open_locks(url, EXPIRE=1)`: the locks of a server, with other settings of the alias."""

    def open_locks(url: str, **entry: object) -> Locks:
        options = {"socket_timeout": PATIENT, **entry.pop("OPTIONS", {})}
        settings.REDIS_LOCKS = {"default": {"LOCATION": url, "OPTIONS": options, **entry}}
        return locks["default"]

    return open_locks


@pytest.fixture
def open_both(settings) -> Callable[..., list[Locks]]:
    """`here, there = open_both(url)`: two aliases of one server with different URLs. Each has its own subscriber,
    maintenance thread and queues, like two processes."""

    def open_both(url: str, **entry: object) -> list[Locks]:
        options = {"socket_timeout": PATIENT, **entry.pop("OPTIONS", {})}
        settings.REDIS_LOCKS = {
            host: {"LOCATION": url.replace("127.0.0.1", host), "OPTIONS": options, **entry}
            for host in ("127.0.0.1", "localhost")
        }
        return [locks[host] for host in settings.REDIS_LOCKS]

    return open_both


@pytest.fixture
def open_lock(open_both: Callable[..., list[Locks]]) -> Callable[..., list[Lock]]:
    """`theirs, ours = open_lock(url, expire=60)`: the lock "a" of two aliases that share no state in this process."""

    def open_lock(url: str, **given: object) -> list[Lock]:
        entry = {"OPTIONS": {}, **{name: given.pop(name) for name in list(given) if name.isupper()}}
        return [client.lock("a", **given) for client in open_both(url, **entry)]

    return open_lock


@pytest.fixture
def no_polling(tune: Tune) -> None:
    """Disable polling: a waiter that gets a lock within a minute was woken by a message."""
    tune(max_poll_interval=60.0)


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: Proxy, open_locks: Callable[..., Locks], request: pytest.FixtureRequest) -> Locks:
    """Locks with script calls through the proxy; scripts are loaded, and one connection is idle."""
    client = open_locks(proxy.url, OPTIONS={"socket_timeout": getattr(request.module, "SOCKET_TIMEOUT", PATIENT)})
    for _ in range(2):
        with client.lock("warm up") as grant:
            grant.extend(30)
    proxy.calls.clear()
    return client


@pytest.fixture(params=[Sync, Async], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Iterator[Sync | Async]:
    """A lock driven by threads, and by the tasks of a loop."""
    face = request.param()
    yield face
    face.close()


@pytest.fixture
def direct(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client on the shared server."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """The events emitted during the test."""
    events: list[Event] = []
    with event_listener(events.append):
        yield events


@pytest.fixture
def workers(redis_url: str) -> Iterator[Callable[..., Worker]]:
    """`workers("waiter", max_poll_interval=60)`: a process that executes jobs with locks on the shared server, with
    these values of `Tuning`. Its connections have its name."""
    with ExitStack() as stack:

        def start(name: str, **tuning: float) -> Worker:
            worker = Worker(redis_url, name, tuning)
            stack.callback(worker.close)
            return worker

        yield start


@pytest.fixture
def holder(workers: Callable[..., Worker]) -> Worker:
    """A process that holds the lock "a" until the test calls `release`."""
    holder = workers("holder", max_poll_interval=CAP)
    assert holder.call(acquire, "a")
    return holder
