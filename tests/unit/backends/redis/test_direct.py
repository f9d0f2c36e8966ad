"""Requests that are sent at once or not at all, whose replies the caller reads as they arrive."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks import LockBackendError
from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.direct import AGAIN, BegunRequest, DirectRequests
from django_redis_locks.backends.redis.resp import pack
from tests.unit.backends.redis.scripted_server import ScriptedServer
from tests.waiting import eventually

PING = pack("PING")
PATIENCE = 20.0


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def make(server: ScriptedServer) -> Iterator[Callable[..., DirectRequests]]:
    """`make(socket_timeout=1)`: with one idle connection."""
    backends: list[RedisBackend] = []

    def make(**options: Any) -> DirectRequests:
        backend = RedisBackend(server.url, {"socket_timeout": PATIENCE, **options})
        backends.append(backend)
        backend.probe()
        return DirectRequests(backend)

    yield make
    for backend in backends:
        backend.close()


@pytest.fixture
def direct(make: Callable[..., DirectRequests]) -> DirectRequests:
    return make()


def begun(direct: DirectRequests, commands: int = 1) -> BegunRequest:
    request = direct.begin(PING * commands, commands)
    assert request is not None
    return request


def received(request: BegunRequest) -> list[Any]:
    """Receive as the caller of a round does."""
    while True:
        assert select.select([request.fileno], [], [], PATIENCE)[0]
        if (replies := request.receive()) is not None:
            return replies


def next_reply(direct: DirectRequests, server: ScriptedServer) -> Any:
    """Return the reply to another request, which shows whether a former one is unread."""
    server.reply_with(b"+next\r\n")
    return direct.backend._pool.execute(PING)


def test_reply_is_read_when_it_arrives(direct: DirectRequests, server: ScriptedServer) -> None:
    assert received(begun(direct)) == [b"PONG"]
    assert received(begun(direct, 2)) == [b"PONG", b"PONG"]
    assert next_reply(direct, server) == b"next"
    assert set(server.request_connections) == {0}


def test_reply_in_two_parts_blocks_nothing(direct: DirectRequests, server: ScriptedServer) -> None:
    """The rest is read by another thread. Only then is the connection used again."""
    rest = threading.Event()

    def in_two_parts(server: ScriptedServer, link: socket.socket) -> None:
        link.sendall(b"$4\r\nwh")
        assert rest.wait(PATIENCE)
        link.sendall(b"at\r\n")

    server.reply_with(in_two_parts)
    request = begun(direct)
    assert select.select([request.fileno], [], [], PATIENCE)[0]
    assert request.receive() is None
    assert direct.begin(PING, 1) is None, "it uses a connection with an unread reply"
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(request.receive(wait=True)))
    thread.start()
    rest.set()
    thread.join(PATIENCE)
    assert found == [[b"what"]]
    assert request.receive() == [b"what"], "it may be asked twice"
    assert next_reply(direct, server) == b"next"


def test_busy_connections_are_left_alone(direct: DirectRequests) -> None:
    first = begun(direct)
    assert direct.begin(PING, 1) is None
    assert received(first) == [b"PONG"]
    assert received(begun(direct)) == [b"PONG"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"", AGAIN),
        (b"-NOSCRIPT no\r\n", AGAIN),
        (b"-LOADING wait\r\n", AGAIN),
        (b"-NOPERM no\r\n", None),
        (b"?", None),
    ],
)
def test_failures_are_values(direct: DirectRequests, server: ScriptedServer, reply: bytes, expected: object) -> None:
    """What another connection, or the source of the script, may mend is to be sent again."""
    server.reply_with(reply)
    (found,) = received(begun(direct))
    assert found is expected or (expected is None and isinstance(found, LockBackendError))
    assert next_reply(direct, server) == b"next"


def test_silent_server_fails_the_request(make: Callable[..., DirectRequests], server: ScriptedServer) -> None:
    direct = make(socket_timeout=0.2)
    server.reply_with(None)
    (failure,) = begun(direct).receive(wait=True) or ()
    assert isinstance(failure, LockBackendError)
    assert failure.outcome_unknown
    assert next_reply(direct, server) == b"next"
    assert server.request_connections[-1] == 1, "another connection"


def test_surplus_reply_ends_the_connection(direct: DirectRequests, server: ScriptedServer) -> None:
    server.reply_with(b"+one\r\n+two\r\n")
    (failure,) = received(begun(direct))
    assert "one" not in str(failure)
    assert isinstance(failure, LockBackendError)
    assert next_reply(direct, server) == b"next"


def test_connection_that_was_closed_while_idle_gets_no_request(direct: DirectRequests, server: ScriptedServer) -> None:
    (connection,) = direct.backend._pool._idle
    connection.idle_check_at = 0.0
    server.links[0].shutdown(socket.SHUT_RDWR)
    eventually(lambda: select.select([connection.sock], [], [], 0)[0])
    assert direct.begin(PING, 1) is None
    assert next_reply(direct, server) == b"next"
    assert len(server.request_connections) == 2


def test_interrupted_caller_uses_the_connection_no_more(
    direct: DirectRequests, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[L16] A signal handler raises while data is received."""
    request = begun(direct)

    def interrupt(*_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BegunRequest, "_complete", interrupt)
        assert select.select([request.fileno], [], [], PATIENCE)[0]
        with pytest.raises(KeyboardInterrupt):
            request.receive()
    (failure,) = request.receive(wait=True) or ()
    assert isinstance(failure, LockBackendError)
    assert failure.outcome_unknown
    assert next_reply(direct, server) == b"next"
    assert server.request_connections[-1] == 1, "another connection"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_child_leaves_the_reply_to_its_parent(direct: DirectRequests, server: ScriptedServer) -> None:
    """[H15] A request is under way during a fork, and its reply has arrived."""
    request = begun(direct)
    assert select.select([request.fileno], [], [], PATIENCE)[0]
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        (failure,) = request.receive(wait=True) or ()
        os._exit(0 if isinstance(failure, LockBackendError) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert received(request) == [b"PONG"]
    assert next_reply(direct, server) == b"next"
