"""The connection that all tasks of a loop share: a cancelled or slow request doesn't affect the others."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from freezegun import freeze_time

from django_redis_locks import clock
from django_redis_locks.backends.redis import timers
from django_redis_locks.backends.redis.async_connections import LoopConnections
from django_redis_locks.backends.redis.multiplexed import MultiplexedConnection
from django_redis_locks.backends.redis.redispy import Failure, connection_makers
from django_redis_locks.backends.redis.resp import pack
from tests.forks import in_child
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.waiting import BUSY, eventually

PING = pack("PING")
SILENCE = 1.0
Ask = Callable[[], Awaitable[Any]]
Make = Callable[..., LoopConnections]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def make(server: ScriptedServer) -> Make:
    def make(max_age: float = 3600, **options: Any) -> LoopConnections:
        given = {"socket_timeout": 30, "socket_connect_timeout": 30, "protocol": 2, **options}
        return LoopConnections(connection_makers(server.url, given)[1], max_age)

    return make


def current_connection(connections: LoopConnections) -> MultiplexedConnection:
    connection = connections._by_loop[asyncio.get_running_loop()]().current
    assert connection is not None
    return connection


def execute(connections: LoopConnections) -> asyncio.Task[Any]:
    async def execute() -> Any:
        return await connections.execute(PING)

    return asyncio.create_task(execute())


async def loop_iterations(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    end = clock.now() + 20
    while not condition():
        assert clock.now() < end
        await asyncio.sleep(0.002)


def reply_when(event: threading.Event, answer: bytes) -> Callable[[ScriptedServer, socket.socket], None]:
    def reply_with(server: ScriptedServer, link: socket.socket) -> None:
        assert event.wait(20)
        link.sendall(answer)

    return reply_with


def test_cancelled_request_keeps_its_slot(make: Make, server: ScriptedServer) -> None:
    """[H20] Its reply still arrives, and is discarded."""
    release_reply = threading.Event()
    server.reply_with(b":0\r\n", reply_when(release_reply, b":1\r\n"), b":2\r\n", b":3\r\n")

    async def main() -> None:
        connections = make()
        assert await connections.execute(PING) == 0
        cancelled, waits = execute(connections), execute(connections)
        await loop_iterations()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        late = execute(connections)
        await loop_iterations()
        release_reply.set()
        assert (await waits, await late) == (2, 3)
        assert not current_connection(connections).busy

    asyncio.run(main())
    assert len(server.links) == 1


def test_cancelled_first_caller_keeps_the_connection_attempt(make: Make, server: ScriptedServer) -> None:
    """[H20] All callers share one attempt, which goes on when the caller that started it is cancelled."""

    async def main() -> None:
        for at in range(12):
            connections = make()
            first, second, third = execute(connections), execute(connections), execute(connections)
            await loop_iterations(at)
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
            assert await third == b"PONG"

    asyncio.run(main())
    assert len(server.links) == 12


def test_refused_connection_fails_each_request_apart(make: Make, server: ScriptedServer) -> None:
    """Each request raises an exception of its own, with `sent` False."""
    connections = make()
    server.stop_accepting()

    async def main() -> None:
        failures = await asyncio.gather(*[execute(connections) for _ in range(3)], return_exceptions=True)
        assert len({id(failure) for failure in failures}) == 3
        for failure in failures:
            assert isinstance(failure, Failure)
            assert (failure.sent, failure.on_reused_connection) == (False, False)

    asyncio.run(main())


# Silence


def test_silent_connection_fails_all_requests(make: Make, server: ScriptedServer) -> None:
    """[H20] [H14] Every pending request fails, and the next one uses another connection, also while time is frozen."""
    server.reply_with(b":1\r\n", None, None, None)

    async def main() -> None:
        connections = make(socket_timeout=SILENCE)
        await connections.execute(PING)
        started = clock.now()
        tasks = [execute(connections) for _ in range(3)]
        for task in tasks:
            with pytest.raises(Failure, match=r"silent for 1 s") as caught:
                await task
            assert (caught.value.sent, caught.value.on_reused_connection) == (True, False)
        assert SILENCE - 0.05 < clock.now() - started < SILENCE + BUSY
        assert await connections.execute(PING) == b"PONG"
        assert server.request_connections[-1] == 1

    with freeze_time("2012-01-14"):
        asyncio.run(main())


@pytest.mark.chaos
def test_silence_counts_from_the_last_answer(make: Make, server: ScriptedServer) -> None:
    """[H20] Twelve replies at intervals below the timeout keep the connection."""
    pause = threading.Event()

    def slowly(server: ScriptedServer, link: socket.socket) -> None:
        pause.wait(0.4)
        link.sendall(b":1\r\n")

    server.reply_with(*[slowly] * 12)

    async def main() -> None:
        connections = make(socket_timeout=4)
        assert await asyncio.gather(*[execute(connections) for _ in range(12)]) == [1] * 12

    asyncio.run(main())
    assert len(server.links) == 1


def test_silent_handshake_fails_the_request(make: Make) -> None:
    """[H14] [L9] Frozen time stops redis-py's own timeouts, and single bytes would restart them."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    given = {"socket_timeout": SILENCE, "socket_connect_timeout": SILENCE, "protocol": 2}
    connections = LoopConnections(connection_makers(url, given)[1], 3600)

    async def main() -> None:
        started = clock.now()
        with pytest.raises(Failure, match="no connection in time") as caught:
            await connections.execute(PING)
        assert not caught.value.sent
        assert clock.now() - started < SILENCE + BUSY

    with listener, freeze_time("2012-01-14"):
        asyncio.run(main())


@pytest.mark.chaos
def test_blocked_loop_reads_its_late_reply(make: Make, server: ScriptedServer) -> None:
    """[H12] The reply has arrived long before the unblocked loop reads it."""

    async def main() -> None:
        connections = make(socket_timeout=SILENCE)
        await connections.execute(PING)
        for _ in range(3):
            asked = execute(connections)
            await loop_iterations(2)
            threading.Event().wait(2 * SILENCE)
            assert await asked == b"PONG"

    asyncio.run(main())
    assert len(server.links) == 1


def test_requests_in_a_row_set_one_timer(make: Make, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H20] There is no timer per request, and none without requests."""
    calls: list[float] = []
    call_at = timers.call_at
    monkeypatch.setattr(timers, "call_at", lambda at, callback: calls.append(at) or call_at(at, callback))

    async def main() -> None:
        connections = make(socket_timeout=60)
        for _ in range(200):
            await connections.execute(PING)

    asyncio.run(main())
    assert len(calls) == 2  # one of them for the handshake


def test_requests_after_replies_that_arrive_together_share_a_write(
    make: Make, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H20] Including the first of them, which would otherwise be sent by itself at once."""
    server.reply_with(b":0\r\n", *[None] * 9, b":1\r\n" * 10)
    writes: list[int] = []

    async def main() -> None:
        connections = make()
        assert await connections.execute(PING) == 0
        connection = current_connection(connections)
        write = connection._transport.write
        monkeypatch.setattr(connection, "_transport", Mock(write=lambda data: writes.append(len(data)) or write(data)))

        async def execute_two() -> list[Any]:
            return [await connections.execute(PING), await connections.execute(PING)]

        assert await asyncio.gather(*[execute_two() for _ in range(10)]) == [[1, b"PONG"]] * 10

    asyncio.run(main())
    assert writes == [len(PING), 9 * len(PING), 10 * len(PING)]


# Lifetime


def test_old_connection_is_replaced_after_its_last_reply(make: Make, server: ScriptedServer) -> None:
    """[H24] Outstanding requests are answered on the old connection, which is then closed."""
    release_reply = threading.Event()
    server.reply_with(b":0\r\n", reply_when(release_reply, b":1\r\n"))

    async def main() -> None:
        connections = make()
        await connections.execute(PING)
        old = current_connection(connections)
        slow = execute(connections)
        await until(lambda: len(server.request_connections) == 2)  # else the next request may get its reply
        old.replace_at = clock.now()
        assert await connections.execute(PING) == b"PONG"
        assert current_connection(connections) is not old
        release_reply.set()
        assert await slow == 1
        await until(lambda: old.cause is not None)
        assert not old.busy

    asyncio.run(main())
    assert server.request_connections == [0, 0, 1]


@pytest.mark.parametrize("cut", [False, True], ids=["read at last", "cut"])
def test_server_that_does_not_read_bounds_the_write_buffer(make: Make, server: ScriptedServer, cut: bool) -> None:
    """[H20] Further requests wait instead of filling the memory. None of them is sent in part, so another connection
    serves them if this one is lost."""
    server.reads.clear()
    server.reply_with(b":1\r\n")
    request = PING + pack("ECHO", "x" * 100_000)

    async def main() -> None:
        connections = make(socket_timeout=60)
        await connections.execute(PING)
        connection = current_connection(connections)
        sent = []
        while connection.open:
            sent.append(asyncio.ensure_future(connections.execute(request)))
            await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(connections.execute(PING if cut else request)) for _ in range(200)]
        await loop_iterations(20)
        assert connection._transport.get_write_buffer_size() < 2_000_000
        waiting[0].cancel()
        server.reads.set()
        if cut:
            connection.close(ConnectionError("cut"))
        assert set(await asyncio.gather(*waiting[1:])) == {b"PONG"}
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            assert (isinstance(outcome, Failure) and outcome.sent) if cut else outcome == b"PONG"

    asyncio.run(main())
    assert len(server.links) == 1 + cut


@pytest.mark.parametrize("where", ["request", "reply"])
def test_interruption_fails_every_pending_request(
    make: Make, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """[H21] If a signal handler raises while a request is queued, or while replies are assigned, the connection is
    closed and every pending request fails."""

    class InterruptError(BaseException):
        pass

    release_reply = threading.Event()
    server.reply_with(b"+PONG\r\n", reply_when(release_reply, b"+PONG\r\n"))

    def interrupt(*about: object) -> Any:
        monkeypatch.undo()
        raise InterruptError

    async def main() -> None:
        connections = make(socket_timeout=60)
        await connections.execute(PING)
        connection = current_connection(connections)
        others = [execute(connections) for _ in range(3)]
        await loop_iterations(2)
        if where == "request":
            monkeypatch.setattr(connection._loop, "call_soon", interrupt)
            monkeypatch.setattr(connection, "_unsent", [])
            with pytest.raises(InterruptError):
                connection.execute(PING)
        else:
            monkeypatch.setattr(
                connection._reader,
                "__class__",
                type("Struck", (type(connection._reader),), {"__slots__": (), "feed": interrupt}),
            )
        release_reply.set()
        async with asyncio.timeout(20):
            for failure in await asyncio.gather(*others, return_exceptions=True):
                assert isinstance(failure, Failure)
            assert await connections.execute(PING) == b"PONG"

    asyncio.run(main())


def test_loop_that_ends_before_a_reply_is_collected(make: Make, server: ScriptedServer) -> None:
    """[H20] Without a warning; a pending timer doesn't keep the loop in memory."""
    loops: list[weakref.ref[Any]] = []
    server.reply_with(None)

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        connections = make(socket_timeout=60)
        execute(connections)
        await until(lambda: server.request_connections)

    asyncio.run(main())
    gc.collect()
    assert loops[0]() is None


def test_request_after_the_end_of_the_loop_has_its_own_connection(make: Make, server: ScriptedServer) -> None:
    """[D39] [H20] The generators of a loop are closed in any order. A connection that is opened afterwards is closed
    after its reply, also if its caller was cancelled."""
    connections_opened: list[MultiplexedConnection] = []

    async def main() -> None:
        connections = make()
        await connections.execute(PING)
        loop_connection = connections._by_loop[asyncio.get_running_loop()]()
        under_way, cancelled = execute(connections), execute(connections)
        await loop_iterations(2)
        cancelled.cancel()
        await loop_connection.shutdown_hook.aclose()
        assert await under_way == b"PONG"
        replies = await asyncio.gather(*[execute(connections) for _ in range(3)])
        assert replies == [b"PONG"] * 3
        await until(lambda: not loop_connection._open_connections)
        cancelled = execute(connections)
        await loop_iterations(2)
        connections_opened.extend(loop_connection._open_connections)
        cancelled.cancel()
        await until(lambda: connections_opened[0].cause is not None)
        assert not loop_connection._open_connections

    asyncio.run(main())
    gc.collect()
    eventually(lambda: len(server.links) == 3)


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_child_of_an_unseen_fork_has_its_own_connection(make: Make, server: ScriptedServer, loops: str) -> None:
    """[H18] Also after a fork without Python's hooks. The parent's connection stays usable."""
    runner = asyncio.Runner(loop_factory=pytest.importorskip(loops).new_event_loop)
    connections = make()

    async def talk() -> Any:
        return await connections.execute(PING)

    def unaware() -> None:
        loop_connection = connections._by_loop[runner.get_loop()]()
        assert loop_connection._current_if_usable() is None
        asyncio.events._set_running_loop(None)
        assert asyncio.Runner(loop_factory=type(runner.get_loop())).run(talk()) == b"PONG"

    assert runner.run(talk()) == b"PONG"
    in_child(unaware)
    assert runner.run(talk()) == b"PONG"
    runner.close()
    assert server.request_connections == [0, 1, 0]
