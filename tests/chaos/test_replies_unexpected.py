"""Well-formed replies that don't fit the command: another script's, a proxy's "OK", a null. Taken for what they seem to be
they would grant, extend or release."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from django_redis_locks import Lock, LockBackendError
from django_redis_locks.client import Locks
from tests.chaos.fake_server import FakeServer
from tests.chaos.helpers import LEASE, Async, Sync
from tests.waiting import eventually

Open = Callable[..., Locks]
Face = Sync | Async
KEY = "lock:{0}:k:a"

ANYWHERE = {
    "ok": b"+OK\r\n",
    "queued": b"+QUEUED\r\n",
    "a null": b"$-1\r\n",
    "a null array": b"*-1\r\n",
    "nothing": b"*0\r\n",
    "a text": b"$3\r\nabc\r\n",
    "an array of it": b"*1\r\n:1\r\n",
    "a deep one": b"*1\r\n*1\r\n:1\r\n",
}
TO_ACQUIRE = ANYWHERE | {
    "a number": b":1\r\n",
    "granted without a fence": b"*5\r\n:1\r\n$-1\r\n:1\r\n:0\r\n:0\r\n",
    "granted with letters": b"*5\r\n:1\r\n$3\r\nabc\r\n:1\r\n:0\r\n:0\r\n",
    "granted and more": b"*6\r\n:1\r\n:1795229259629244\r\n:1\r\n:0\r\n:0\r\n:0\r\n",
    "granted, said otherwise": b"*5\r\n$1\r\n1\r\n:1795229259629244\r\n:1\r\n:0\r\n:0\r\n",
    "busy without end": b"*7\r\n:0\r\n$-1\r\n:1\r\n:1\r\n$0\r\n\r\n:0\r\n:0\r\n",
    "a third outcome": b"*2\r\n:2\r\n:1\r\n",
}


@pytest.fixture
def lock(fake_server: FakeServer, open_locks: Open, face: Face) -> Lock:
    client = open_locks(fake_server.url, OPTIONS={"socket_timeout": 20})
    warm = face.acquire(client.lock("warm up"))
    assert warm is not None
    face.extend(warm, 30)
    face.release(warm)
    return client.lock("a", expire=30)


def error_of(function: Callable[[], object]) -> str:
    with pytest.raises(LockBackendError) as caught:
        function()
    assert (caught.value.alias, caught.value.key, caught.value.unanswered) == ("default", "a", True)
    return str(caught.value)


def test_acquire_with_an_unexpected_reply_raises_LockBackendError(
    lock: Lock, face: Face, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H15] [L16] No grant, no "busy", no complaint about the key; what the server did is undone."""
    for what, reply in TO_ACQUIRE.items():
        fake_server.reply_with(reply, of="lock/acquire")
        text = error_of(lambda: face.acquire(lock, timeout=0))
        assert "alias 'default'" in text, what
        assert "lock/acquire" in text, what
        eventually(lambda: not direct.exists(KEY))
        grant = face.acquire(lock, timeout=0)
        assert grant is not None, what
        face.release(grant)


def test_extend_with_an_unexpected_reply_keeps_the_lease(lock: Lock, face: Face, fake_server: FakeServer) -> None:
    """[F10] Neither extended nor lost: the lease counts as before."""
    for what, reply in ANYWHERE.items():
        if what == "an array of it":
            continue
        grant = face.acquire(lock, timeout=0)
        assert grant is not None
        fake_server.reply_with(reply, of="lock/renew")
        assert "lock/renew" in error_of(lambda grant=grant: face.extend(grant, 300)), what
        assert not grant.lost, what
        assert grant.remaining() <= 30, what
        face.extend(grant, 60)
        face.release(grant)


def test_release_with_an_unexpected_reply_goes_on_in_the_background(
    lock: Lock, face: Face, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H15] Neither released nor lost: the maintenance thread tries again."""
    for what, reply in ANYWHERE.items():
        grant = face.acquire(lock, timeout=0)
        assert grant is not None
        fake_server.reply_with(reply, of="lock/free", carried_out=False)
        assert "lock/free" in error_of(lambda grant=grant: face.release(grant)), what
        eventually(lambda: not direct.exists(KEY))


def test_locked_with_an_unexpected_reply_raises_LockBackendError(lock: Lock, fake_server: FakeServer) -> None:
    """It isn't taken for free. (An empty list is the reply for a free lock.)"""
    for what, reply in ANYWHERE.items():
        if what != "nothing":
            fake_server.reply_with(reply, of="lock/inspect")
            assert "lock/inspect" in error_of(lock.locked), what


@pytest.mark.chaos
@pytest.mark.usefixtures("often")
def test_renewal_with_unexpected_replies_goes_on(
    fake_server: FakeServer, open_locks: Open, direct: redis.Redis
) -> None:
    """[L9] The maintenance thread tries again, and takes none of them for "renewed" or "lost"."""
    lock = open_locks(fake_server.url).lock("a", expire=LEASE, renew=True)
    grant = lock.acquire()
    for reply in (b"*1\r\n:1\r\n", b"+OK\r\n", b"$-1\r\n"):
        fake_server.reply_with(reply, of="lock/renew", carried_out=False)
    eventually(lambda: fake_server.calls.count("lock/renew") >= 5)
    assert not grant.lost
    assert direct.pttl(KEY) > 500
    grant.release()
