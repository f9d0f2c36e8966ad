"""Replies that are slow, or come before a request, and connections that are gone. Others: tests/chaos/test_replies.py."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis.loops import AsyncWire
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.threads import Wire
from django_redis_locks.backends.redis.wire import Failure, connection_makers
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.waiting import eventually

PING = pack("PING")


class Threads:
    def __init__(self, url: str, **options: Any) -> None:
        self.wire = Wire(connection_makers(url, OPTIONS | options)[0], 3600)

    def ask(self) -> Any:
        return self.wire.ask(PING)

    def close(self) -> None:
        self.wire.close()


class Loop:
    def __init__(self, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.wire = AsyncWire(connection_makers(url, OPTIONS | options)[1], 3600)

    def ask(self) -> Any:
        async def ask() -> Any:
            return await self.wire.ask(PING)

        return self._runner.run(ask())

    def close(self) -> None:
        self._runner.close()


OPTIONS = {"socket_timeout": 30.0, "socket_connect_timeout": 30, "protocol": 2}
HURRIED = {"socket_timeout": 1.0}
"""For tests of silence."""


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
def hurried(client_type: type[Threads | Loop], server: ScriptedServer) -> Iterator[Threads | Loop]:
    with closing(client_type(server.url, **HURRIED)) as client:
        yield client


def test_reply_byte_by_byte_ends_after_the_socket_timeout(hurried: Threads | Loop, server: ScriptedServer) -> None:
    """[L9] Single bytes don't start the timeout again."""

    def dribble(server: ScriptedServer, link: socket.socket) -> None:
        link.sendall(b"$1000\r\n")
        for _ in range(600):
            clock_sleep(0.05)
            link.sendall(b"x")

    server.say(dribble)
    begin = clock.now()
    with pytest.raises(Failure):
        hurried.ask()
    assert clock.now() - begin < 20


def clock_sleep(seconds: float) -> None:
    """Sleep in real time."""
    threading.Event().wait(seconds)


def test_signals_during_a_request_prolong_no_timeout(server: ScriptedServer) -> None:
    """[L9] [H21] Each signal interrupts a wait of the operating system."""
    rung = 0

    def ring(number: int, frame: object) -> None:
        nonlocal rung
        rung += 1
        if rung == 300:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, ring)
    client = Threads(server.url, **HURRIED)
    server.say(None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(Failure, match="silent"):
            client.ask()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        client.close()
    assert rung < 300, "that is fifteen seconds"


@pytest.mark.chaos
def test_server_that_reads_nothing_fails_a_long_request(server: ScriptedServer) -> None:
    """[L9] Sending has the socket timeout too."""
    server.reads.clear()
    client = Threads(server.url, **HURRIED)
    client.ask()
    begin = clock.now()
    with pytest.raises(Failure, match="read nothing") as caught:
        client.wire.ask(pack("ECHO", "x" * 50_000_000))
    assert (caught.value.sent, caught.value.stale) == (True, False)
    assert clock.now() - begin < 20


def test_surplus_reply_to_a_handshake_fails_the_request(client: Threads | Loop, server: ScriptedServer) -> None:
    """[H21] Left unread it would be the reply to the first request, and shift all others."""
    server.greeting = b":7\r\n"
    with pytest.raises(Failure, match="more than it was asked for") as caught:
        client.ask()
    assert not caught.value.sent


def test_idle_connection_that_the_server_closed_is_replaced(client: Threads | Loop, server: ScriptedServer) -> None:
    """[H24] An idle connection is checked before a request is written to it, so no request is unanswered."""
    client.ask()
    server.links[0].shutdown(socket.SHUT_RDWR)
    clock_sleep(0.1)
    assert client.ask() == b"PONG"
    assert server.asked == [0, 1]
    eventually(lambda: len(server.links) == 2)
