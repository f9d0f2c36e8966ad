"""Slow replies, replies without a request, and closed connections. See also tests/chaos/test_replies.py."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis.async_connections import LoopConnections
from django_redis_locks.backends.redis.redispy import Failure, connection_makers
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.sync_connections import ConnectionPool
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.waiting import BUSY, eventually

PING = pack("PING")


class Threads:
    def __init__(self, url: str, **options: Any) -> None:
        self.connections = ConnectionPool(connection_makers(url, OPTIONS | options)[0], 3600)

    def execute(self, request: bytes = PING) -> Any:
        return self.connections.execute(request)

    def close(self) -> None:
        self.connections.close()


class Loop:
    def __init__(self, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.connections = LoopConnections(connection_makers(url, OPTIONS | options)[1], 3600)

    def execute(self, request: bytes = PING) -> Any:
        async def execute() -> Any:
            return await self.connections.execute(request)

        return self._runner.run(execute())

    def close(self) -> None:
        self._runner.close()


OPTIONS = {"socket_timeout": 30.0, "socket_connect_timeout": 30, "protocol": 2}
SHORT_TIMEOUT = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
"""For tests with a silent server."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture(params=[Threads, Loop], ids=["thread", "loop"])
def client_type(request: pytest.FixtureRequest) -> type[Threads | Loop]:
    kind: type[Threads | Loop] = request.param
    return kind


@pytest.fixture
def client(client_type: type[Threads | Loop], server: ScriptedServer) -> Iterator[Threads | Loop]:
    with closing(client_type(server.url)) as client:
        yield client


@pytest.fixture
def short_timeout_client(client_type: type[Threads | Loop], server: ScriptedServer) -> Iterator[Threads | Loop]:
    with closing(client_type(server.url, **SHORT_TIMEOUT)) as client:
        yield client


@pytest.mark.parametrize("what", ["handshake", "request", "reply"])
def test_exchange_byte_by_byte_ends_after_the_socket_timeout(
    short_timeout_client: Threads | Loop, server: ScriptedServer, what: str
) -> None:
    """[E4] [L9] Single bytes don't restart the timeout, in a handshake, a request that the server reads, or a reply."""
    server.trickles = what == "handshake"
    if what != "handshake":
        short_timeout_client.execute()
        server.reply_with(lambda server, link: server.trickle(link))
    started = clock.now()
    with pytest.raises(Failure):
        short_timeout_client.execute(pack("PING", "x" * 40_000_000) if what == "request" else PING)
    assert clock.now() - started < 3 + BUSY


def test_host_with_many_silent_addresses_fails_after_the_connect_timeout(
    server: ScriptedServer, client_type: type[Threads | Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E4] The timeout is for all addresses together."""
    resolve = socket.getaddrinfo
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        address = full.getsockname()
        for _ in range(3):  # fills the backlog
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, port, *how, **why: resolve(host, port, *how, **why) * 30
        )
        limits = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
        with closing(client_type(f"redis://127.0.0.1:{address[1]}/0", **limits)) as client:
            started = clock.now()
            with pytest.raises(Failure):
                client.execute()
            assert clock.now() - started < 1 + BUSY


def test_tls_handshake_byte_by_byte_ends_with_its_requests() -> None:
    """[E4] The timeout of `execute_many` bounds the handshake too: a renewal of a short lease has less time than the
    socket timeout."""
    ended = threading.Event()

    def trickle() -> None:
        with listener.accept()[0] as link, contextlib.suppress(OSError):
            link.sendall(b"\x16\x03\x03\x40\x00")  # a record of the handshake
            while not ended.wait(0.05):
                link.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=trickle)
        server.start()
        with closing(Threads(f"rediss://127.0.0.1:{listener.getsockname()[1]}/0")) as client:
            started = clock.now()
            with pytest.raises(Failure):
                client.connections.execute_many([PING], 1.0)
            assert clock.now() - started < 1 + BUSY
        ended.set()
        server.join()


def clock_sleep(seconds: float) -> None:
    """Sleep in real time."""
    threading.Event().wait(seconds)


def test_signals_during_a_request_prolong_no_timeout(server: ScriptedServer) -> None:
    """[L9] [H21] Each signal interrupts a system call, which Python repeats."""
    count = 0

    def ring(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        if count == 300:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, ring)
    client = Threads(server.url, **SHORT_TIMEOUT)
    server.reply_with(None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(Failure, match="silent"):
            client.execute()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        client.close()
    assert count < 300, "300 signals are fifteen seconds"


@pytest.mark.parametrize("what", ["handshake", "replies", "request"])
def test_slow_exchange_fails_after_its_timeout(server: ScriptedServer, what: str) -> None:
    """[L9] All replies arrive in time, or the exchange fails, so that a slow server doesn't delay the renewal of every
    lock. The next exchange uses another connection."""
    with closing(Threads(server.url)) as client:
        if what != "handshake":
            client.execute()
        server.pause = 0.4 if what == "handshake" else 0.1
        if what == "request":
            server.reads.clear()
            requests = [pack("ECHO", "x" * 20_000_000)]
        else:
            requests = [PING] * 200
        started = clock.now()
        with pytest.raises(Failure) as caught:
            client.connections.execute_many(requests, 0.3)
        assert 0.2 < clock.now() - started < 0.3 + BUSY
        assert not caught.value.on_reused_connection
        server.pause = 0.0
        server.reads.set()
        assert len(client.connections.execute_many([PING] * 2, 10)) == 2


@pytest.mark.chaos
@pytest.mark.parametrize("idle", [True, False], ids=["idle connection", "handshake"])
def test_connection_after_a_short_timeout_has_its_usual_one(server: ScriptedServer, idle: bool) -> None:
    """The timeout of `execute_many` doesn't apply to the next request on the same connection."""
    with closing(Threads(server.url, **SHORT_TIMEOUT)) as client:
        connections = client.connections
        if idle:
            client.execute()
        connections.execute_many([PING], 20.0)
        (connection,) = connections._idle
        client.execute()
        connections.execute_many([PING], 20.0)
        assert connections._idle == [connection]
        assert connection.redispy_connection._sock is connection.sock
        assert connection.sock.gettimeout() is None, "the kernel enforces the timeout"
        server.pause = 30
        started = clock.now()
        with pytest.raises(Failure, match="silent for 1 s"):
            client.execute()
        assert 0.9 < clock.now() - started < 1 + BUSY


def test_surplus_reply_to_a_handshake_fails_the_request(client: Threads | Loop, server: ScriptedServer) -> None:
    """[H21] An unread reply would answer the first request, and shift all later ones."""
    server.after_handshake = b":7\r\n"
    with pytest.raises(Failure, match="more data than was requested") as caught:
        client.execute()
    assert not caught.value.sent


def test_idle_connection_that_the_server_closed_is_replaced(client: Threads | Loop, server: ScriptedServer) -> None:
    """[H24] An idle connection is checked before a request is written to it, so no request fails."""
    client.execute()
    server.links[0].shutdown(socket.SHUT_RDWR)
    clock_sleep(0.1)
    assert client.execute() == b"PONG"
    assert server.request_connections == [0, 1]
    eventually(lambda: len(server.links) == 2)
