"""Idle connections of threads: they neither get lost nor stay for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis import sync_connections as threads
from django_redis_locks.backends.redis.async_connections import LoopConnections
from django_redis_locks.backends.redis.idle import Suspicion
from django_redis_locks.backends.redis.redispy import Failure, connection_makers
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.sync_connections import ConnectionPool, PooledConnection
from tests.unit.backends.redis.scripted_server import ScriptedServer

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


def a_line(name: str, closed: list[str]) -> PooledConnection:
    with socket.socket() as sock:
        return PooledConnection(Connection(name, closed), sock, 3600)


def a_stack(closed: list[str]) -> ConnectionPool:
    """One idle connection, and another thread that closes all while a method is under way."""
    wire = ConnectionPool(lambda: pytest.fail("connected"), 3600)
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
    wire = ConnectionPool(lambda: pytest.fail("connected"), 3600)
    for name in "abc":
        wire.push(a_line(name, closed), clock.now())
    for line in wire._take_all():
        closed.append(line.connection.name)
        wire.push(a_line(line.connection.name.upper(), closed), clock.now())
    assert closed == ["a", "b", "c"]


def rush(wire: ConnectionPool, many: int) -> None:
    """So many connections in use at once, and given back."""
    lines = [wire._connect() for _ in range(many)]
    for line in lines:
        wire.push(line, clock.now())


def test_idle_connections_of_a_rush_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E6] Some at once, the others when they have lain idle for long, also if the process does nothing any more; one stays.
    They aren't replaced all at once either."""
    monkeypatch.setattr(threads, "MOST_IDLE", 20)
    rung: list[Callable[[], object]] = []
    monkeypatch.setattr(threads.alarms, "ring", lambda at, what: rung.append(what))
    with ScriptedServer() as server:
        wire = ConnectionPool(connection_makers(server.url, {"socket_timeout": 5.0, "protocol": 2})[0], 3600)
        rush(wire, 30)
        assert len(wire._idle) == 20
        assert max(line.end for line in wire._idle) - min(line.end for line in wire._idle) > 60
        (trim,) = rung
        trim()
        assert len(wire._idle) == 20
        monkeypatch.setattr(threads, "OLD", -1.0)
        rung[-1]()
        assert len(wire._idle) == 1
        assert len(rung) == 2, "nothing is left to be closed"
        assert wire.ask(PING) == b"PONG"
        wire.close()


def test_request_without_an_answer_condemns_what_lay_idle() -> None:
    """[E6] After a power cut each idle connection, of threads and of loops, would cost its next request a timeout."""
    with ScriptedServer() as server, asyncio.Runner() as runner:
        given = {"socket_timeout": 1.0, "socket_connect_timeout": 20.0, "protocol": 2}
        make, amake, _ = connection_makers(server.url, given)
        suspicion = Suspicion()
        wire, awire = ConnectionPool(make, 3600, suspicion), LoopConnections(amake, 3600, suspicion)

        async def ask() -> object:
            return await awire.ask(PING)

        def here() -> object:
            return wire.ask(PING)

        def there() -> object:
            return runner.run(ask())

        rush(wire, 3)
        for cut, next_one in ((there, here), (here, there)):
            there()
            server.say(None)
            with pytest.raises(Failure):
                cut()
            before = len(server.links)
            assert next_one() == b"PONG"
            assert len(server.links) == before + 1, "what lay idle isn't asked"
        wire.close()
