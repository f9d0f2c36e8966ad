"""Connections of event loops that ended are closed, and keep no loop in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import locks
from django_redis_locks.client import Locks
from tests.waiting import eventually
from tools.redis_server import RedisServer

Open = Callable[[str], Locks]


@pytest.fixture
def open_locks(settings: Any) -> Open:
    def open_locks(url: str) -> Locks:
        settings.REDIS_LOCKS = {"default": {"LOCATION": url, "OPTIONS": {"socket_timeout": 5.0}}}
        return locks["default"]

    return open_locks


@pytest.fixture
def own_url(make_server: Callable[..., RedisServer]) -> str:
    """The URL of a server without other clients."""
    return make_server().url()


@pytest.fixture
def clients(own_url: str) -> Iterator[Callable[[], int]]:
    with redis.Redis.from_url(own_url) as direct:
        yield lambda: direct.info("clients")["connected_clients"]


def test_release_at_the_end_of_a_loop_leaks_no_connection(
    open_locks: Open, own_url: str, clients: Callable[[], int]
) -> None:
    """[D39] [H20] The generators of a loop are closed together: the one that closes the connections is done before the
    reply to a release in another one arrives."""
    client = open_locks(own_url)
    with client.lock("warm up", renew=True):
        pass
    before = clients()
    kept: list[Any] = []

    async def work(key: str) -> AsyncIterator[None]:
        async with client.lock(key):
            yield

    async def main() -> None:
        for key in "ab":
            kept.append(work(key))
            await anext(kept[-1])

    for _ in range(3):
        asyncio.run(main())
        assert not client.lock("a").locked()
    eventually(lambda: clients() <= before)
    assert not [
        reference
        for reference in client.engine.backend._loop_connections._by_loop.values()
        if reference() and reference().current
    ]


@pytest.mark.skipif(os.environ.get("EVENT_LOOP") == "uvloop", reason="uvloop keeps loops that aren't closed")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_dropped_loop_is_collected(open_locks: Open, own_url: str, clients: Callable[[], int]) -> None:
    """[E10] A loop that is never closed is collected too, although its connection refers to it. The last loop may
    stay."""
    client = open_locks(own_url)
    before = clients()
    loops: list[weakref.ref[Any]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with client.lock("a"):
            pass

    for _ in range(5):
        asyncio.new_event_loop().run_until_complete(main())
    gc.collect()
    assert [loop() for loop in loops[:-1]] == [None] * 4
    eventually(lambda: clients() <= before + 1)
    asyncio.run(main())
    gc.collect()
    assert loops[4]() is None


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Python's, of transports that outlive their loop
def test_closed_loop_is_forgotten_by_the_next_one(open_locks: Open, own_url: str, clients: Callable[[], int]) -> None:
    """[H20] The connections of a loop that is closed without `shutdown_asyncgens` are closed when another loop
    connects."""
    client = open_locks(own_url)
    before = clients()
    loops: list[weakref.ref[Any]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with client.lock("a"):
            pass

    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    del loop
    asyncio.run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 6
    eventually(lambda: clients() <= before)
