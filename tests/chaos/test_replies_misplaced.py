"""Replies to other commands: too many, too late, or unrequested. Each call gets the reply to its own command."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.fake_server import Client, FakeServer, around
from tests.chaos.helpers import Async, Sync, fence_of
from tests.waiting import eventually
from tools.redis_server import RedisServer

Open = Callable[..., Locks]
Face = Sync | Async

GRANTED = b"*5\r\n:1\r\n:1795229259629244\r\n:1\r\n:0\r\n:0\r\n"
DONE = b":1\r\n"
PUSHES = {
    "an invalidation": b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n",
    "maintenance": b">4\r\n$9\r\nMIGRATING\r\n:1\r\n:2\r\n*1\r\n$1\r\n0\r\n",
    "a message": b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$3\r\n1 a\r\n",
}


@pytest.fixture
def client(
    request: pytest.FixtureRequest, fake_server: FakeServer, open_locks: Open, redis_server: RedisServer
) -> Locks:
    """The parameter is the socket timeout. The lock "taken" has another owner, so a grant of it is wrong."""
    client = open_locks(fake_server.url, EXPIRE=60, OPTIONS={"socket_timeout": getattr(request, "param", 20)})
    with client.lock("warm up") as grant:
        grant.extend(60)
    redis_server.command("SET", "lock:{0}:k:taken", "1 lock theirs 1", "PX", 60_000)
    return client


def check_taken(face: Face, client: Locks) -> None:
    for _ in range(3):
        assert face.acquire(client.lock("taken"), timeout=0) is None


def sleep(face: Face, seconds: float) -> None:
    face._runner.run(asyncio.sleep(seconds)) if isinstance(face, Async) else clock.sleep(seconds)


@pytest.mark.parametrize("step", ["acquire", "extend", "release"])
def test_surplus_reply_closes_the_connection(
    face: Face, client: Locks, fake_server: FakeServer, direct: redis.Redis, step: str
) -> None:
    """[H21] What is left over is the reply to no later command."""
    lock = client.lock("a")
    for surplus in (GRANTED, DONE, GRANTED * 3, b"*1\r\n:1", GRANTED[:-4]):
        grant = None if step == "acquire" else face.acquire(lock, timeout=0)
        fake_server.reply_with(around(after=surplus))
        with contextlib.suppress(LockBackendError):
            if grant is None:
                grant = face.acquire(lock, timeout=0)
            elif step == "extend":
                face.extend(grant, 60)
            else:
                released, grant = grant, None
                face.release(released)
        check_taken(face, client)
        if grant is not None:
            assert fence_of(direct, "lock:{0}:k:a") == grant.fence, surplus
            face.extend(grant, 60)
            face.release(grant)
        eventually(lambda: not direct.exists("lock:{0}:k:a"))


def test_unrequested_reply_on_an_idle_connection_is_dropped(face: Face, client: Locks, fake_server: FakeServer) -> None:
    """[H21] [H24] It comes some time after the last reply, before the next command."""
    go, gone = threading.Event(), threading.Event()

    def send(client: Client, reply: bytes) -> None:
        client.send(reply)
        go.wait(60)
        client.send(GRANTED)
        gone.set()

    fake_server.reply_with(send, of="lock/acquire")
    grant = face.acquire(client.lock("a"), timeout=0)
    assert grant is not None
    go.set()
    assert gone.wait(20)
    sleep(face, 0.06)  # a connection that was busy a moment ago isn't looked at
    check_taken(face, client)
    face.release(grant)


@pytest.mark.parametrize("client", [1], indirect=True)
def test_late_reply_is_dropped_with_its_connection(
    face: Face, client: Locks, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H2] [H20] [H21] The call has timed out; calls before and after the reply comes don't read it."""
    go, gone = threading.Event(), threading.Event()

    def send(client: Client, reply: bytes) -> None:
        go.wait(60)
        try:
            client.send(reply)
        finally:
            gone.set()

    fake_server.reply_with(send, of="lock/acquire")
    with pytest.raises(LockBackendError, match="no answer"):
        face.acquire(client.lock("a"), timeout=0)
    check_taken(face, client)
    go.set()
    assert gone.wait(20)
    check_taken(face, client)
    eventually(lambda: not direct.exists("lock:{0}:k:a"))


def test_push_between_replies_is_no_reply(
    face: Face, fake_server: FakeServer, open_locks: Open, direct: redis.Redis
) -> None:
    """[H20] RESP3 pushes before and behind any reply."""
    client = open_locks(fake_server.url, OPTIONS={"protocol": 3, "socket_timeout": 20})
    for what, push in PUSHES.items():
        for before, after in ((push, b""), (b"", push), (push, push)):
            fake_server.reply_with(around(before, after), times=-1)
            for _ in range(3):
                grant = face.acquire(client.lock("a"), timeout=0)
                assert grant is not None, what
                assert fence_of(direct, "lock:{0}:k:a") == grant.fence, what
                assert not client.lock("b").locked(), what
                face.extend(grant, 60)
                face.release(grant)
                assert not direct.exists("lock:{0}:k:a"), what
            fake_server.recover()


@pytest.mark.parametrize("asked", [2, 3, None])
def test_reconnect_to_a_server_of_another_protocol_negotiates_again(
    face: Face, fake_server: FakeServer, open_locks: Open, direct: redis.Redis, asked: int | None
) -> None:
    """HELLO accepts 3 or 2, or is unknown (0), as after a failover to an older server. A client that requires RESP3 raises
    where there is none."""
    client = open_locks(
        fake_server.url, OPTIONS={"socket_timeout": 20} | ({} if asked is None else {"protocol": asked})
    )
    for able in (3, 3, 2, 2, 0, 0, 3, 0, 2, 3):  # each follows each
        fake_server.protocols = tuple(range(2, able + 1))
        fake_server.disconnect()
        if asked == 3 and able < 3:
            with pytest.raises(LockBackendError, match=r"alias 'default'.*(HELLO|NOPROTO|protocol)"):
                face.acquire(client.lock("a"), timeout=0)
            continue
        grant = face.acquire(client.lock("a"), timeout=0)
        assert grant is not None, able
        assert fence_of(direct, "lock:{0}:k:a") == grant.fence, able
        face.extend(grant, 60)
        face.release(grant)
