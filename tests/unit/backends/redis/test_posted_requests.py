"""Requests that are posted: sent without waiting for their replies, which are received later."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import LockBackendError, RecordRef, locks
from django_redis_locks.backends.redis import sync_connections
from django_redis_locks.backends.redis.redispy import Failure, connection_makers
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.backends.redis.sync_connections import ConnectionPool
from tests.probes.engine import engine
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.waiting import eventually

PING = pack("PING")
PATIENCE = 20.0

USES: dict[str, Callable[[ConnectionPool], Any]] = {
    "at once": lambda pool: pool.execute(PING),
    "later": lambda pool: (setattr(pool._idle[-1], "idle_check_at", 0.0), pool.execute(PING))[1],
    "after another": lambda pool: pool.execute(PING + PING, 2),
    "several": lambda pool: pool.execute_many([PING], PATIENCE)[0],
    "posted": lambda pool: (pool.post(PING, print), pool.execute(PING))[1],
}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """The callbacks of all timers, which aren't called."""
    timers: list[Callable[[], object]] = []
    monkeypatch.setattr(sync_connections.timers, "call_at", lambda at, callback: timers.append(callback))
    return timers


@pytest.fixture
def pool(server: ScriptedServer, timers: object) -> Iterator[ConnectionPool]:
    pool = ConnectionPool(connection_makers(server.url, {"socket_timeout": PATIENCE, "protocol": 2})[0], 3600)
    assert pool.execute(PING) == b"PONG"
    yield pool
    pool.close()


def await_reply(pool: ConnectionPool) -> None:
    assert select.select([pool._idle[-1].sock], [], [], PATIENCE)[0]


@pytest.mark.parametrize("use", USES)
def test_reply_to_a_posted_request_is_received_before_the_next_one(
    server: ScriptedServer, pool: ConnectionPool, use: str
) -> None:
    received: list[Any] = []
    receive = pool._idle[-1].recv
    pool._idle[-1].recv = lambda size: receive(4)  # one reply at a time
    server.reply_with(b":6\r\n", *[b":7\r\n"] * (use in ("posted", "after another")), b":8\r\n")
    pool.post(PING, received.append)
    await_reply(pool)
    assert USES[use](pool) == 8
    assert received == [6]
    pool._idle[-1].recv = receive
    assert pool.execute(PING) == b"PONG"
    assert len(server.links) == 1


@pytest.mark.parametrize("use", ["at once", "later", "several"])
def test_connection_that_ends_before_the_reply_is_reported(
    server: ScriptedServer, pool: ConnectionPool, use: str
) -> None:
    received: list[Any] = []
    server.reply_with(b"")
    pool.post(PING, received.append)
    if use == "at once":  # sent before the reply is received
        with pytest.raises(Failure) as failure:
            pool.execute(PING)
        assert failure.value.on_reused_connection
    else:
        assert USES[use](pool) == b"PONG"
    assert received == [None]


def test_reply_is_received_by_a_timer_if_no_request_follows(
    server: ScriptedServer, pool: ConnectionPool, timers: list[Callable[[], object]]
) -> None:
    received: list[Any] = []
    server.reply_with(b":7\r\n")
    pool.post(PING, received.append)
    await_reply(pool)
    timers.pop()()
    assert received == [7]
    assert timers == []
    server.reply_with(None)
    pool.post(PING, received.append)
    timers.pop()()
    assert received == [7], "the reply may still arrive"
    eventually(lambda: len(server.request_connections) == 3)  # else the next request would get no reply
    pool._idle[-1].idle_check_at -= PATIENCE + 1.0
    timers.pop()()
    assert received == [7, None]
    assert pool.execute(PING) == b"PONG"
    assert len(server.links) == 2
    assert timers == []


def test_child_of_a_fork_receives_no_replies_of_its_parent(server: ScriptedServer, pool: ConnectionPool) -> None:
    received: list[Any] = []
    pool.post(PING, received.append)
    pool.after_fork_in_child()
    assert pool.execute(PING) == b"PONG"
    assert received == []


# Records that are written without waiting for the reply


@pytest.fixture
def ref(settings: Any, redis_url: str) -> RecordRef:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    return locks.record("posted")


def test_posted_write_that_the_server_refuses_is_repeated(ref: RecordRef, redis_url: str) -> None:
    """A restarted server knows no scripts. The next request receives that reply, and the background repeats the write."""
    record = ref.put(None, {"state": "reserved"}, expire=10).record
    assert record is not None
    with redis.Redis.from_url(redis_url) as direct:
        direct.script_flush()
    ref.post(record, {"state": "queued"}, 3600, "queued")
    ref.get()
    engine().wait_until_idle(PATIENCE)
    written = ref.get()
    assert written is not None
    assert written.fields == {"state": "queued"}
    ref.post(record, {"state": "late"}, 3600, "queued")  # the record has changed since
    assert (read := ref.get()) is not None
    assert read.version == written.version


def test_backend_is_closed_after_the_replies_that_have_arrived(ref: RecordRef, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    record = ref.put(None, {}).record
    assert record is not None
    monkeypatch.setattr(RecordRef, "_check_posted", lambda *arguments: reported.append(arguments[-1]))
    ref.post(record, {"state": "queued"}, 3600, "queued")
    await_reply(engine().backend._pool)
    engine().backend.close()
    assert [type(reply) for reply in reported] == [int]


def test_write_waits_for_its_reply_if_no_thread_can_be_started(ref: RecordRef, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LockBackendError("no thread")

    record = ref.put(None, {}).record
    assert record is not None
    monkeypatch.setattr(sync_connections.timers, "call_at", fail)
    monkeypatch.setattr(engine().backend._pool, "_receive_scheduled", False)
    ref.post(record, {"state": "queued"}, 3600, "queued")
    assert all(connection.on_reply is None for connection in engine().backend._pool._idle)
    written = ref.get()
    assert written is not None
    assert written.fields == {"state": "queued"}
