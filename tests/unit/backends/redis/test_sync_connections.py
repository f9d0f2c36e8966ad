"""Idle connections of threads: none is lost, and none stays for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from django_redis_locks import clock
from django_redis_locks.backends.redis import sync_connections
from django_redis_locks.backends.redis.async_connections import LoopConnections
from django_redis_locks.backends.redis.idle import LastTimeout
from django_redis_locks.backends.redis.redispy import Failure, connection_makers
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.sync_connections import ConnectionPool, PooledConnection
from tests.unit.backends.redis.scripted_server import ScriptedServer

PING = pack("PING")


class InterruptedList(list[Any]):
    """A list that calls a function once, before its next `append` or `pop`."""

    def __init__(self, connections: list[Any], callback: Callable[[], object]) -> None:
        super().__init__(connections)
        self._happens: Callable[[], object] | None = callback

    def _happen(self) -> None:
        callback, self._happens = self._happens, None
        if callback is not None:
            callback()

    def append(self, connection: Any) -> None:
        self._happen()
        super().append(connection)

    def pop(self, *which: Any) -> Any:
        self._happen()
        return super().pop(*which)


class Connection:
    """The part of redis-py's connection that the pool uses."""

    socket_timeout = None

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name = name
        self._closed = closed

    def disconnect(self) -> None:
        self._closed.append(self.name)


@pytest.fixture
def closed() -> list[str]:
    return []


def pooled(name: str, closed: list[str]) -> PooledConnection:
    with socket.socket() as sock:
        return PooledConnection(Connection(name, closed), sock, 3600)


def pool_closed_during_call(closed: list[str]) -> ConnectionPool:
    """A pool with one idle connection, which is closed, as if by another thread, during the next method."""
    pool = ConnectionPool(lambda: pytest.fail("connected"), 3600)
    pool._idle = InterruptedList([pooled("first", closed)], pool.close)
    return pool


def test_connection_returned_while_all_are_closed_is_kept(closed: list[str]) -> None:
    """[H24] Otherwise it would be lost with an open socket. Without the GIL this is likely."""
    pool = pool_closed_during_call(closed)
    pool.push(pooled("second", closed), clock.now())
    assert closed == ["first"]
    assert [connection.redispy_connection.name for connection in pool._idle] == ["second"]


def test_connection_taken_while_all_are_closed_is_never_both(closed: list[str]) -> None:
    """[H21] A connection is either taken or closed."""
    pool = pool_closed_during_call(closed)
    with pytest.raises(pytest.fail.Exception, match="connected"):
        pool.execute(PING)
    assert closed == ["first"]


def test_close_ends_while_connections_are_returned(closed: list[str]) -> None:
    """Also while other threads return one connection after the other."""
    pool = ConnectionPool(lambda: pytest.fail("connected"), 3600)
    for name in "abc":
        pool.push(pooled(name, closed), clock.now())
    for connection in pool._take_all():
        closed.append(connection.redispy_connection.name)
        pool.push(pooled(connection.redispy_connection.name.upper(), closed), clock.now())
    assert closed == ["a", "b", "c"]


def open_many(pool: ConnectionPool, many: int) -> None:
    """Open this many connections at once, and return them."""
    connections = [pool._connect() for _ in range(many)]
    for connection in connections:
        pool.push(connection, clock.now())


def test_idle_connections_after_a_burst_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E6] Some at once, the others after `MAX_IDLE_TIME`, also if the process sends nothing more; one stays. They
    aren't replaced all at once either."""
    monkeypatch.setattr(sync_connections, "MAX_IDLE", 20)
    timers: list[Callable[[], object]] = []
    monkeypatch.setattr(sync_connections.timers, "call_at", lambda at, callback: timers.append(callback))
    with ScriptedServer() as server:
        pool = ConnectionPool(connection_makers(server.url, {"socket_timeout": 5.0, "protocol": 2})[0], 3600)
        open_many(pool, 30)
        assert len(pool._idle) == 20
        ends = [connection.replace_at for connection in pool._idle]
        assert max(ends) - min(ends) > 60
        (trim,) = timers
        trim()
        assert len(pool._idle) == 20
        monkeypatch.setattr(sync_connections, "MAX_IDLE_TIME", -1.0)
        timers[-1]()
        assert len(pool._idle) == 1
        assert len(timers) == 2, "no connection is left to be closed"
        assert pool.execute(PING) == b"PONG"
        pool.close()


def test_request_timeout_replaces_all_idle_connections() -> None:
    """[E6] After a power cut each idle connection of threads and loops would cost its next request a timeout."""
    with ScriptedServer() as server, asyncio.Runner() as runner:
        given = {"socket_timeout": 1.0, "socket_connect_timeout": 20.0, "protocol": 2}
        make, make_async, _ = connection_makers(server.url, given)
        last_timeout = LastTimeout()
        pool = ConnectionPool(make, 3600, last_timeout)
        loop_connections = LoopConnections(make_async, 3600, last_timeout)

        async def execute() -> object:
            return await loop_connections.execute(PING)

        def request_from_thread() -> object:
            return pool.execute(PING)

        def request_from_loop() -> object:
            return runner.run(execute())

        open_many(pool, 3)
        for timed_out, next_one in ((request_from_loop, request_from_thread), (request_from_thread, request_from_loop)):
            request_from_loop()
            server.reply_with(None)
            with pytest.raises(Failure):
                timed_out()
            before = len(server.links)
            assert next_one() == b"PONG"
            assert len(server.links) == before + 1, "idle connections aren't used"
        pool.close()
