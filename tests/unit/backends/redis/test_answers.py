"""Replies that are malformed, too long, too short or missing, on a thread's connection and on an event loop's."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis.loops import AsyncWire
from django_redis_locks.backends.redis.resp import ProtocolError, Refusal, pack
from django_redis_locks.backends.redis.threads import Wire
from django_redis_locks.backends.redis.wire import Failure, connection_makers
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.waiting import BUSY, eventually

PING = pack("PING")
PUSH = b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n"


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


GARBAGE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"$99999999999\r\n",
    b"*99999999999\r\n",
    b":1\r\n:2\r\n",
    b":1\r\n:",
    b":1\r\n$3\r\nab",
    b"*1\r\n*x\r\n",
    b"\x00" * 100,
]


def test_malformed_reply_costs_the_connection(client_type: type[Threads | Loop]) -> None:
    """[L9] [H21] The request is unanswered, at once, and isn't sent again; the next one has a new connection."""
    for garbage in GARBAGE:
        for warm in (False, True):
            with ScriptedServer() as server, closing(client_type(server.url)) as client:
                if warm:
                    assert client.ask() == b"PONG"
                server.say(garbage)
                begin = clock.now()
                with pytest.raises(Failure) as caught:
                    client.ask()
                assert clock.now() - begin < BUSY, garbage
                assert isinstance(caught.value.cause, ProtocolError), garbage
                assert (caught.value.sent, caught.value.stale) == (True, False), garbage
                assert client.ask() == b"PONG"
                assert server.asked[-1] == 1, garbage


@pytest.mark.chaos
def test_unfinished_reply_ends_after_the_socket_timeout(client_type: type[Threads | Loop]) -> None:
    """[L9] Silence is over after `socket_timeout`, which leaves the request unanswered; a reply that began has as long
    once more."""

    def check(case: tuple[bytes | None, bool]) -> None:
        begun, warm = case
        with ScriptedServer() as server, closing(client_type(server.url, **HURRIED)) as client:
            if warm:
                client.ask()
            server.say(begun)
            begin = clock.now()
            with pytest.raises(Failure) as caught:
                client.ask()
            assert 0.95 < clock.now() - begin < 2 + BUSY, case
            assert isinstance(caught.value.cause, TimeoutError), case
            assert (caught.value.sent, caught.value.stale) == (True, False), case
            assert client.ask() == b"PONG", case

    cases = list(product([None, b"$10\r\nabc", b"*2\r\n:1\r\n", b":", b"$99999\r\n"], [False, True]))
    with ThreadPoolExecutor(len(cases)) as threads:
        list(threads.map(check, cases))


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


def test_server_that_closes_leaves_a_request_unanswered(client_type: type[Threads | Loop]) -> None:
    """[H24] A connection that had served before may be an old one that was closed: a new one is worth a try."""
    for answer, warm in product([b"", b"*2\r\n:1\r\n"], [False, True]):

        def hang_up(server: ScriptedServer, link: socket.socket, answer: bytes = answer) -> None:
            link.sendall(answer)
            link.shutdown(socket.SHUT_RDWR)

        with ScriptedServer() as server, closing(client_type(server.url)) as client:
            if warm:
                client.ask()
            server.say(hang_up)
            with pytest.raises(Failure) as caught:
                client.ask()
            assert (caught.value.sent, caught.value.stale) == (True, warm), answer
            assert client.ask() == b"PONG"


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


def test_error_reply_keeps_the_connection(client: Threads | Loop, server: ScriptedServer) -> None:
    """The connection goes on."""
    server.say(b"-OOM command not allowed\r\n")
    reply = client.ask()
    assert type(reply) is Refusal
    assert reply.code == "OOM"
    assert client.ask() == b"PONG"
    assert server.asked == [0, 0]


def test_push_is_no_reply_to_a_request(client_type: type[Threads | Loop]) -> None:
    """[H20] RESP3 lets a server push at any time, also before the first request."""
    for where in ("before", "behind", "greeting"):
        with ScriptedServer() as server, closing(client_type(server.url)) as client:
            if where == "greeting":
                server.greeting = PUSH
            for number in range(5):
                answer = b":%d\r\n" % number
                server.say({"before": PUSH + answer, "behind": answer + PUSH}.get(where, answer))
                assert client.ask() == number, where
            assert len(server.links) == 1, where


def test_reply_in_pieces_is_read(client: Threads | Loop, server: ScriptedServer) -> None:
    """However the network cuts it."""
    answer = b"*3\r\n:1\r\n$5\r\na\r\nbc\r\n:300\r\n"

    def bytewise(server: ScriptedServer, link: socket.socket) -> None:
        for byte in answer:
            link.sendall(bytes([byte]))
            clock_sleep(0.001)

    server.say(bytewise)
    assert client.ask() == [1, b"a\r\nbc", 300]
    assert client.ask() == b"PONG"
    assert server.asked == [0, 0]


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
