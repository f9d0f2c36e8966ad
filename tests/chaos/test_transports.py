"""The ways to a server: TCP, a unix socket, TLS; RESP2 and RESP3; with a user and without."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.credentials import CredentialProvider

from django_redis_locks import locks
from django_redis_locks.client import Locks
from tests.chaos.tls import Certificates, encrypting
from tests.probes.client import connections_of_this_loop
from tests.waiting import in_thread
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]


def new_loops() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    """Of every kind that is installed: each has transports of its own, which are handed to us in full flight."""
    loops = [asyncio.new_event_loop]
    with contextlib.suppress(ImportError):
        loops.append(importlib.import_module("uvloop").new_event_loop)
    return loops


def both_faces(client: Locks) -> None:
    lock = client.lock("a", expire=30, renew=True)
    with lock as grant:
        assert in_thread(lambda: lock.acquire(timeout=0)) is None
        grant.ensure_held(confirm=True)

    async def main() -> None:
        async with lock as grant:
            await grant.aextend(30)
            assert in_thread(lambda: lock.acquire(timeout=0.1)) is None

    for new_loop in new_loops():
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
            runner.run(many(client))
    assert not lock.locked()
    assert client.lock("x" * 150, expire=5, wait=0).acquire()


async def many(client: Locks) -> None:
    """Many at once, on one connection, in long requests."""

    async def one(key: str) -> None:
        for _ in range(3):
            async with client.lock(key, expire=30, wait=30):
                await asyncio.sleep(0)

    await asyncio.gather(*[one(f"{number} {'y' * 100}") for number in range(30)])
    assert connections_of_this_loop(client) == 1


@pytest.mark.parametrize("protocol", [2, 3])
def test_scripts_answer_alike_in_both_protocols(redis_url: str, open_locks: Open, protocol: int) -> None:
    """[L2] The replies of the scripts are read alike in both protocols."""
    both_faces(open_locks(redis_url, OPTIONS={"protocol": protocol}))


class Rotating(CredentialProvider):
    """A password that changes now and then."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.given = 0

    def get_credentials(self) -> tuple[str, str]:
        self.given += 1
        self._server.command("ACL", "SETUSER", "rotating", "reset", "on", f">{self.given}", "~*", "&*", "+@all")
        return "rotating", str(self.given)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_password_that_changes(make_server: Make, open_locks: Open, protocol: int) -> None:
    """[H24] Who makes passwords is asked with each connection, and connections are replaced before they are too old."""
    server = make_server()
    provider = Rotating(server)
    options = {"credential_provider": provider, "max_connection_age": 0.1, "protocol": protocol}
    client = open_locks(f"redis://127.0.0.1:{server.port}/0", OPTIONS=options)

    async def main() -> None:
        for _ in range(3):
            async with client.lock("a"):
                await asyncio.sleep(0.12)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # redis-py's, of a provider that isn't asynchronous
        asyncio.run(main())
        before = provider.given
        for _ in range(3):
            with client.lock("a"):
                clock_passes(0.12)
    assert before > 3
    assert provider.given > before + 3


def clock_passes(seconds: float) -> None:
    threading.Event().wait(seconds)


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_user_and_database_in_the_url_are_used(make_server: Make, open_locks: Open, scheme: str) -> None:
    """In Redis's and in Valkey's spelling."""
    server = make_server(requirepass="s3cret")
    both_faces(open_locks(f"{scheme}://default:s3cret@127.0.0.1:{server.port}/3"))
    assert "s3cret" not in repr(locks["default"])


def test_a_unix_socket(make_server: Make, open_locks: Open, tmp_path: Path) -> None:
    """SO_LINGER means nothing there, and harms nothing."""
    path = f"/tmp/drl-{tmp_path.name[-40:]}.sock"  # a socket's path must be short
    make_server(unixsocket=path)
    both_faces(open_locks(f"unix://{path}?db=1"))


@pytest.mark.servers
def test_tls_connection_is_dropped_closed_and_shared(make_server: Make, open_locks: Open, tmp_path: Path) -> None:
    """An encrypted connection is dropped, closed and shared as a plain one."""
    certificates = Certificates(tmp_path)
    _, port = encrypting(make_server, certificates)
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificates.path('ca')}"
    both_faces(open_locks(url, OPTIONS={"socket_timeout": 20}))
