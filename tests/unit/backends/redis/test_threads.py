"""Idle connections of threads: they neither get lost nor stay for ever."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.threads import Line, Wire

PING = pack("PING")


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
