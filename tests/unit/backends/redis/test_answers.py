"""What may come back: garbage, too much, too little, nothing. Told to a thread's connection and to a loop's."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
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
def client(request: pytest.FixtureRequest, server: ScriptedServer) -> Iterator[Threads | Loop]:
    client = request.param(server.url)
    yield client
    client.close()


@pytest.fixture(params=[Threads, Loop], ids=["thread", "loop"])
def hurried(request: pytest.FixtureRequest, server: ScriptedServer) -> Iterator[Threads | Loop]:
    client = request.param(server.url, **HURRIED)
    yield client
    client.close()


@pytest.mark.parametrize("warm", [False, True], ids=["new", "used"])
@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$99999999999\r\n",
        b"*99999999999\r\n",
        b":1\r\n:2\r\n",
        b":1\r\n:",
        b":1\r\n$3\r\nab",
        b"*1\r\n*x\r\n",
        b"\x00" * 100,
    ],
)
def test_garbage_costs_the_connection(
    client: Threads | Loop, server: ScriptedServer, garbage: bytes, warm: bool
) -> None:
    """[L9] [H21] Unanswered, at once, and not worth a try on another connection; the next exchange has a new one."""
    if warm:
        assert client.ask() == b"PONG"
    server.say(garbage)
    begin = clock.now()
    with pytest.raises(Failure) as caught:
        client.ask()
    assert clock.now() - begin < BUSY
    assert isinstance(caught.value.cause, ProtocolError)
    assert (caught.value.sent, caught.value.stale) == (True, False)
    assert client.ask() == b"PONG"
    assert server.asked[-1] == 1


@pytest.mark.chaos
@pytest.mark.parametrize("warm", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("begun", [None, b"$10\r\nabc", b"*2\r\n:1\r\n", b":", b"$99999\r\n"])
def test_an_answer_that_never_ends_is_given_up(
    hurried: Threads | Loop, server: ScriptedServer, begun: bytes | None, warm: bool
) -> None:
    """[L9] Silence is over after `socket_timeout`, which leaves the request unanswered; an answer that began has as long
    once more."""
    if warm:
        hurried.ask()
    server.say(begun)
    begin = clock.now()
    with pytest.raises(Failure) as caught:
        hurried.ask()
    assert 0.95 < clock.now() - begin < 2 + BUSY
    assert isinstance(caught.value.cause, TimeoutError)
    assert (caught.value.sent, caught.value.stale) == (True, False)
    assert hurried.ask() == b"PONG"


def test_an_answer_that_dribbles_is_given_up(hurried: Threads | Loop, server: ScriptedServer) -> None:
    """[L9] A byte now and then isn't an answer."""

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
    """Sleep, whatever the test does to time."""
    threading.Event().wait(seconds)


@pytest.mark.parametrize("answer", [b"", b"*2\r\n:1\r\n"], ids=["nothing", "half an answer"])
@pytest.mark.parametrize("warm", [False, True], ids=["new", "used"])
def test_a_server_that_hangs_up_leaves_a_request_unanswered(
    client: Threads | Loop, server: ScriptedServer, answer: bytes, warm: bool
) -> None:
    """[H24] On a connection that had served before it may be an old one that was closed: a new one is worth a try."""
    if warm:
        client.ask()

    def hang_up(server: ScriptedServer, link: socket.socket) -> None:
        link.sendall(answer)
        link.shutdown(socket.SHUT_RDWR)

    server.say(hang_up)
    with pytest.raises(Failure) as caught:
        client.ask()
    assert (caught.value.sent, caught.value.stale) == (True, warm)
    assert client.ask() == b"PONG"


def test_signals_do_not_put_off_the_end(server: ScriptedServer) -> None:
    """[L9] [H21] One that comes again and again begins each wait of the operating system's anew."""
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
def test_a_server_that_reads_nothing_is_given_up(server: ScriptedServer) -> None:
    """[L9] Neither does it hold up who has much to say."""
    server.reads.clear()
    client = Threads(server.url, **HURRIED)
    client.ask()
    begin = clock.now()
    with pytest.raises(Failure, match="read nothing") as caught:
        client.wire.ask(pack("ECHO", "x" * 50_000_000))
    assert (caught.value.sent, caught.value.stale) == (True, False)
    assert clock.now() - begin < 20


def test_a_refusal_is_an_answer(client: Threads | Loop, server: ScriptedServer) -> None:
    """The connection goes on."""
    server.say(b"-OOM command not allowed\r\n")
    reply = client.ask()
    assert type(reply) is Refusal
    assert reply.code == "OOM"
    assert client.ask() == b"PONG"
    assert server.asked == [0, 0]


@pytest.mark.parametrize("where", ["before", "behind", "greeting"])
def test_what_is_pushed_is_nobodys_answer(client: Threads | Loop, server: ScriptedServer, where: str) -> None:
    """[H20] RESP3 lets a server speak unasked, also before we have asked for anything."""
    if where == "greeting":
        server.greeting = PUSH
    for number in range(5):
        answer = b":%d\r\n" % number
        server.say({"before": PUSH + answer, "behind": answer + PUSH}.get(where, answer))
        assert client.ask() == number
    assert len(server.links) == 1


def test_an_answer_in_pieces(client: Threads | Loop, server: ScriptedServer) -> None:
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


def test_a_greeting_that_is_an_answer_is_refused(client: Threads | Loop, server: ScriptedServer) -> None:
    """[H21] Whatever a handshake leaves behind would answer the first request, and so shift all others."""
    server.greeting = b":7\r\n"
    with pytest.raises(Failure, match="more than it was asked for") as caught:
        client.ask()
    assert not caught.value.sent


def test_what_the_server_closed_meanwhile_is_not_used(client: Threads | Loop, server: ScriptedServer) -> None:
    """[H24] A connection that lay idle is looked at before it is written to: nobody is in doubt then."""
    client.ask()
    server.links[0].shutdown(socket.SHUT_RDWR)
    clock_sleep(0.1)
    assert client.ask() == b"PONG"
    assert server.asked == [0, 1]
    eventually(lambda: len(server.links) == 2)
