"""Connections without TLS: TCP and Unix sockets, RESP2 and RESP3, with and without a user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from django_redis_locks import locks
from django_redis_locks.client import Locks
from tests.probes.client import connections_of_this_loop
from tests.waiting import in_thread
from tools.redis_server import RedisServer


async def many(client: Locks) -> None:
    """Send many long requests at once on one connection."""

    async def one(key: str) -> None:
        for _ in range(3):
            async with client.lock(key, expire=30, wait=30):
                await asyncio.sleep(0)

    await asyncio.gather(*[one(f"{number} {'y' * 100}") for number in range(30)])
    assert connections_of_this_loop(client) == 1


def test_every_transport_serves_threads_and_tasks(
    make_server: Callable[..., RedisServer], open_locks: Callable[..., Locks], tmp_path: Path
) -> None:
    """[L2] Scripts return the same in both protocols; user and database of the URL are used, with the schemes of Redis
    and Valkey, and never shown. SO_LINGER has no effect on a Unix socket."""
    path = f"/tmp/drl-{tmp_path.name[-40:]}.sock"  # a socket's path must be short
    server = make_server(requirepass="s3cret", unixsocket=path)
    for url, options in (
        (f"redis://:s3cret@127.0.0.1:{server.port}/0", {"protocol": 2}),
        (f"redis://default:s3cret@127.0.0.1:{server.port}/3", {"protocol": 3}),
        (f"valkey://default:s3cret@127.0.0.1:{server.port}/3", {}),
        (f"unix://default:s3cret@{path}?db=1", {}),
    ):
        client = open_locks(url, OPTIONS=options)
        lock = client.lock("a", expire=30, renew=True)
        with lock as grant:
            assert in_thread(lambda: lock.acquire(timeout=0)) is None  # noqa: B023 - of this round
            grant.ensure_held(confirm=True)
        asyncio.run(many(client))
        assert not lock.locked()
        with client.lock("x" * 150, expire=5, wait=0):
            pass
        assert "s3cret" not in repr(locks["default"]), url
