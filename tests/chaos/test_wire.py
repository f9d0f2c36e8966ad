"""The connections: exchanges that end in time, and idle ones that neither get lost nor stay for ever."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import clock
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.threads import Line, Wire
from django_redis_locks.backends.redis.wire import Failure, connection_makers
from django_redis_locks.client import Locks
from tests.chaos.helpers import BUSY, eventually
from tools.redis_server import RedisServer

Open = Callable[..., Locks]

PING = pack("PING")


class Slow:
    """A server that says +PONG to everything: at once, or after a pause before each read, reply or byte."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._end = threading.Event()
        self.before_read = self.before_reply = self.before_byte = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def close(self) -> None:
        self._end.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            while data := link.recv(65536):
                self._end.wait(self.before_read)
                for _ in range(data.count(b"*")):
                    self._end.wait(self.before_reply)
                    reply = b"+PONG" + b"!" * 200 + b"\r\n"
                    if not self.before_byte:
                        link.sendall(reply)
                        continue
                    for byte in reply:
                        self._end.wait(self.before_byte)
                        link.sendall(bytes([byte]))


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.close()


@pytest.fixture
def wire(slow: Slow) -> Iterator[Wire]:
    """With a usual patience of three seconds."""
    options: dict[str, Any] = {"socket_timeout": 3, "socket_connect_timeout": 3, "protocol": 2}
    wire = Wire(connection_makers(slow.url, options)[0], 3600)
    yield wire
    wire.close()


@pytest.mark.parametrize(("pause", "requests"), [("before_byte", 1), ("before_reply", 200)])
@pytest.mark.parametrize("idle", [True, False], ids=["idle connection", "handshake"])
def test_a_server_that_dribbles_is_given_up_in_time(
    wire: Wire, slow: Slow, pause: str, requests: int, idle: bool
) -> None:
    """[L9] It is never silent for long, and would hold up the renewal of every lock: all replies come in time, or none."""
    if idle:
        wire.ask(PING)
    setattr(slow, pause, 0.1)
    begin = clock.now()
    with pytest.raises(Failure) as caught:
        wire.ask_many([PING] * requests, 0.3)
    assert 0.2 < clock.now() - begin < 0.3 + BUSY
    assert not caught.value.stale
    setattr(slow, pause, 0.0)
    assert len(wire.ask_many([PING] * 2, 10)) == 2, "on a new connection"


@pytest.mark.chaos
@pytest.mark.parametrize("idle", [True, False], ids=["idle connection", "handshake"])
def test_a_connection_has_its_usual_patience_back(wire: Wire, slow: Slow, idle: bool) -> None:
    """A hurried exchange says nothing of the next one on the same connection."""
    if idle:
        wire.ask(PING)
    wire.ask_many([PING], 2.0)
    line = wire._idle[0]
    assert line.sock.gettimeout() is None
    wire.ask(PING)
    wire.ask_many([PING], 2.0)
    assert wire._idle == [line]
    assert isinstance(line.sock, socket.socket)
    assert line.connection._sock is line.sock
    assert line.sock.gettimeout() is None, "the timeout is the operating system's"
    slow.before_reply = 30
    begin = clock.now()
    with pytest.raises(Failure, match="silent for 3 s"):
        wire.ask(PING)
    assert 2.9 < clock.now() - begin < 3 + BUSY


def test_a_server_that_hardly_reads_is_given_up_in_time(wire: Wire, slow: Slow) -> None:
    """[L9] The request has its end too, whatever the socket takes of it now and then."""
    wire.ask(PING)
    slow.before_read = 0.1
    begin = clock.now()
    with pytest.raises(Failure):
        wire.ask_many([pack("ECHO", "x" * 20_000_000)], 0.3)
    assert clock.now() - begin < 0.3 + BUSY


# The stack


class Meanwhile(list[Any]):
    """A list to which something happens after somebody has got hold of it, once, before he uses it."""

    def __init__(self, lines: list[Any], happens: Callable[[], object]) -> None:
        super().__init__(lines)
        self._happens: Callable[[], object] | None = happens

    def _happen(self) -> None:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()

    def append(self, line: Any) -> None:
        self._happen()
        super().append(line)

    def pop(self, *which: Any) -> Any:
        self._happen()
        return super().pop(*which)


class Connection:
    """As far as the stack knows one."""

    socket_timeout = None

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name = name
        self._closed = closed

    def disconnect(self) -> None:
        self._closed.append(self.name)


@pytest.fixture
def closed() -> list[str]:
    return []


def a_line(name: str, closed: list[str]) -> Line:
    with socket.socket() as sock:
        return Line(Connection(name, closed), sock, 3600)


def a_stack(closed: list[str]) -> Wire:
    """One idle connection, and another thread that closes all while a method is under way."""
    wire = Wire(lambda: pytest.fail("connected"), 3600)
    wire._idle = Meanwhile([a_line("first", closed)], wire.close)
    return wire


def test_a_connection_given_back_while_all_are_closed_is_kept(closed: list[str]) -> None:
    """[H24] Otherwise it is lost, and its socket stays open. Without the GIL that needs no luck."""
    wire = a_stack(closed)
    wire.push(a_line("second", closed), clock.now())
    assert closed == ["first"]
    assert [line.connection.name for line in wire._idle] == ["second"]


def test_a_connection_is_closed_or_taken(closed: list[str]) -> None:
    """[H21] Never both."""
    wire = a_stack(closed)
    with pytest.raises(pytest.fail.Exception, match="connected"):
        wire.ask(PING)
    assert closed == ["first"]


def test_closing_all_comes_to_an_end(closed: list[str]) -> None:
    """Also while others give back one connection after the other."""
    wire = Wire(lambda: pytest.fail("connected"), 3600)
    for name in "abc":
        wire.push(a_line(name, closed), clock.now())
    for line in wire._take_all():
        closed.append(line.connection.name)
        wire.push(a_line(line.connection.name.upper(), closed), clock.now())
    assert closed == ["a", "b", "c"]


# Loops that end


@pytest.fixture
def own_url(make_server: Callable[..., RedisServer]) -> str:
    """Of a server that nobody else connects to."""
    return make_server().url()


@pytest.fixture
def clients(own_url: str) -> Iterator[Callable[[], int]]:
    with redis.Redis.from_url(own_url) as direct:
        yield lambda: direct.info("clients")["connected_clients"]


def test_a_lock_that_the_end_of_a_loop_releases_leaks_no_connection(
    open_locks: Open, own_url: str, clients: Callable[[], int]
) -> None:
    """[D39] [H20] The generators of a loop are closed all at once: ours, which closes the connections, is done before the
    answer to a release of another one is there."""
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
    assert not [home for home in client.engine.backend._awire._homes.values() if home.stream]


def test_loops_that_ended_are_forgotten(open_locks: Open, redis_url: str) -> None:
    """[H20] What we keep for a loop must not keep the loop: a process may run thousands."""
    client = open_locks(redis_url)
    loops: list[weakref.ref[Any]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with client.lock("a"):
            pass

    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
    assert not client.engine.backend._awire._homes


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Python's, of transports that outlive their loop
def test_loops_that_were_just_closed_are_forgotten_with_the_next(
    open_locks: Open, own_url: str, clients: Callable[[], int]
) -> None:
    """[H20] A loop without the end that `asyncio.run` gives it: its connections go when another loop comes."""
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
