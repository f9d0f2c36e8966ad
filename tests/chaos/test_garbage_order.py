"""Answers that are somebody else's: too many of them, too late, or never asked for. Whoever asks next is told nothing but
the answer to his own request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import Grant, LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync, fence_of
from tests.chaos.impostor import End, Impostor, around
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
def client(request: pytest.FixtureRequest, impostor: Impostor, open_locks: Open, redis_server: RedisServer) -> Locks:
    """The parameter is the socket timeout. The key "taken" is somebody else's: a grant of it is one too many."""
    client = open_locks(impostor.url, EXPIRE=60, OPTIONS={"socket_timeout": getattr(request, "param", 20)})
    with client.lock("warm up") as grant:
        grant.extend(60)
    redis_server.command("SET", "lock:{0}:k:taken", "1 lock theirs 1", "PX", 60_000)
    return client


def try_to(action: Callable[[], object]) -> object:
    """The server talks nonsense just now: a failure is fine."""
    try:
        return action()
    except LockBackendError:
        return None


def refused(face: Face, client: Locks) -> None:
    for _ in range(3):
        assert face.acquire(client.lock("taken"), timeout=0) is None


def idle(face: Face, seconds: float) -> None:
    face._runner.run(asyncio.sleep(seconds)) if isinstance(face, Async) else clock.sleep(seconds)


@pytest.mark.parametrize(
    "more",
    [GRANTED, DONE, GRANTED * 3, b"*1\r\n:1", GRANTED[:-4]],
    ids=["grant", "done", "grants", "half", "nearly a grant"],
)
@pytest.mark.parametrize("step", ["acquire", "extend", "release"])
def test_more_answers_than_questions(
    face: Face, client: Locks, impostor: Impostor, direct: redis.Redis, step: str, more: bytes
) -> None:
    """[H21] What is left over answers nobody: a connection that says more than it was asked is closed."""
    lock = client.lock("a")
    grant = None if step == "acquire" else face.acquire(lock, timeout=0)
    impostor.say(around(after=more))
    if grant is None:
        grant = try_to(lambda: face.acquire(lock, timeout=0))
    elif step == "extend":
        try_to(lambda: face.extend(grant, 60))
    else:
        try_to(lambda: face.release(grant))
        grant = None
    refused(face, client)
    if isinstance(grant, Grant):
        assert fence_of(direct, "lock:{0}:k:a") == grant.fence
        face.extend(grant, 60)
        face.release(grant)
    eventually(lambda: not direct.exists("lock:{0}:k:a"))


def test_an_answer_to_nothing_on_an_idle_connection(face: Face, client: Locks, impostor: Impostor) -> None:
    """[H21] [H24] It comes some time after the last question, and lies there when the next one is asked."""
    go, gone = threading.Event(), threading.Event()

    def say(end: End, reply: bytes) -> None:
        end.send(reply)
        go.wait(60)
        end.send(GRANTED)
        gone.set()

    impostor.say(say, of="lock/acquire")
    grant = face.acquire(client.lock("a"), timeout=0)
    assert grant is not None
    go.set()
    assert gone.wait(20)
    idle(face, 0.06)  # a connection that was busy a moment ago isn't looked at
    refused(face, client)
    face.release(grant)


@pytest.mark.parametrize("client", [1], indirect=True)
def test_an_answer_that_comes_too_late(face: Face, client: Locks, impostor: Impostor, direct: redis.Redis) -> None:
    """[H2] [H20] [H21] Its caller has given up. Whoever asks next, before it comes and after, isn't told it."""
    go, gone = threading.Event(), threading.Event()

    def say(end: End, reply: bytes) -> None:
        go.wait(60)
        try:
            end.send(reply)
        finally:
            gone.set()

    impostor.say(say, of="lock/acquire")
    with pytest.raises(LockBackendError, match="no answer"):
        face.acquire(client.lock("a"), timeout=0)
    refused(face, client)
    go.set()
    assert gone.wait(20)
    refused(face, client)
    eventually(lambda: not direct.exists("lock:{0}:k:a"))


@pytest.mark.parametrize("what", PUSHES)
@pytest.mark.parametrize("where", ["before", "behind", "around"])
def test_messages_between_answers(
    face: Face, impostor: Impostor, open_locks: Open, direct: redis.Redis, what: str, where: str
) -> None:
    """[H20] What RESP3 pushes is no answer: nobody takes it for his own, or loses his own by it."""
    push = PUSHES[what]
    client = open_locks(impostor.url, OPTIONS={"protocol": 3, "socket_timeout": 20})
    before, after = (push * (where != "behind"), push * (where != "before"))
    impostor.say(around(before, after), times=-1)
    for _ in range(3):
        grant = face.acquire(client.lock("a"), timeout=0)
        assert grant is not None
        assert fence_of(direct, "lock:{0}:k:a") == grant.fence
        assert not client.lock("b").locked()
        face.extend(grant, 60)
        face.release(grant)
        assert not direct.exists("lock:{0}:k:a")


@pytest.mark.parametrize("old", [3, 2, 0])
@pytest.mark.parametrize("new", [3, 2, 0])
@pytest.mark.parametrize("asked", [2, 3, None])
def test_another_protocol_after_a_reconnect(
    face: Face, impostor: Impostor, open_locks: Open, direct: redis.Redis, old: int, new: int, asked: int | None
) -> None:
    """A failover to a server of another age: 3 and 2 are what HELLO agrees to, 0 doesn't know HELLO. Who asked for RESP3
    and doesn't get it is told so; nobody misreads an answer."""
    client = open_locks(impostor.url, OPTIONS={"socket_timeout": 20} | ({} if asked is None else {"protocol": asked}))
    for able in (old, new, old):
        impostor.protocols = tuple(range(2, able + 1))
        impostor.cut()
        if asked == 3 and able < 3:
            with pytest.raises(LockBackendError, match=r"alias 'default'.*(HELLO|NOPROTO|protocol)"):
                face.acquire(client.lock("a"), timeout=0)
            continue
        grant = face.acquire(client.lock("a"), timeout=0)
        assert grant is not None
        assert fence_of(direct, "lock:{0}:k:a") == grant.fence
        face.extend(grant, 60)
        face.release(grant)
