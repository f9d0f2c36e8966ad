"""The connections: exchanges that end in time, and idle ones that neither get lost nor stay for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.threads import Line, Wire
from django_redis_locks.backends.redis.wire import Failure, connection_makers
from tests.waiting import BUSY

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
def test_slow_replies_fail_after_the_timeout(wire: Wire, slow: Slow, pause: str, requests: int, idle: bool) -> None:
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
def test_connection_after_a_short_timeout_has_its_usual_one(wire: Wire, slow: Slow, idle: bool) -> None:
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


def test_slowly_read_request_fails_after_the_timeout(wire: Wire, slow: Slow) -> None:
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


def test_connection_returned_while_all_are_closed_is_kept(closed: list[str]) -> None:
    """[H24] Otherwise it is lost, and its socket stays open. Without the GIL that needs no luck."""
    wire = a_stack(closed)
    wire.push(a_line("second", closed), clock.now())
    assert closed == ["first"]
    assert [line.connection.name for line in wire._idle] == ["second"]


def test_connection_taken_while_all_are_closed_is_never_both(closed: list[str]) -> None:
    """[H21] Never both."""
    wire = a_stack(closed)
    with pytest.raises(pytest.fail.Exception, match="connected"):
        wire.ask(PING)
    assert closed == ["first"]


def test_close_ends_while_connections_are_returned(closed: list[str]) -> None:
    """Also while others give back one connection after the other."""
    wire = Wire(lambda: pytest.fail("connected"), 3600)
    for name in "abc":
        wire.push(a_line(name, closed), clock.now())
    for line in wire._take_all():
        closed.append(line.connection.name)
        wire.push(a_line(line.connection.name.upper(), closed), clock.now())
    assert closed == ["a", "b", "c"]
