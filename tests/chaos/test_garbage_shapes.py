"""Answers that are whole, and none to this question: another script's, a proxy's "OK", a null. Taken for what they seem to
be they would grant, extend or release what nobody did."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from django_redis_locks import Lock, LockBackendError
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE, Async, Sync
from tests.chaos.impostor import Impostor
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
def lock(impostor: Impostor, open_locks: Open, face: Face) -> Lock:
    client = open_locks(impostor.url, OPTIONS={"socket_timeout": 20})
    warm = face.acquire(client.lock("warm up"))
    assert warm is not None
    face.extend(warm, 30)
    face.release(warm)
    return client.lock("a", expire=30)


def complaint(function: Callable[[], object]) -> str:
    with pytest.raises(LockBackendError) as caught:
        function()
    assert (caught.value.alias, caught.value.key, caught.value.unanswered) == ("default", "a", True)
    return str(caught.value)


@pytest.mark.parametrize("what", TO_ACQUIRE)
def test_acquire_with_a_garbled_reply_raises_LockBackendError(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, what: str
) -> None:
    """[H15] [L16] No grant, no "busy", no complaint about the key; what the server did is swept."""
    impostor.say(TO_ACQUIRE[what], of="lock/acquire")
    text = complaint(lambda: face.acquire(lock, timeout=0))
    assert "alias 'default'" in text
    assert "lock/acquire" in text
    eventually(lambda: not direct.exists(KEY))
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    face.release(grant)


@pytest.mark.parametrize("what", [what for what in ANYWHERE if what != "an array of it"])
def test_extend_with_a_garbled_reply_keeps_the_lease(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, what: str
) -> None:
    """[F10] Neither extended nor lost: nobody knows, and the lease counts as before."""
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    impostor.say(ANYWHERE[what], of="lock/renew")
    assert "lock/renew" in complaint(lambda: face.extend(grant, 300))
    assert not grant.lost
    assert grant.remaining() <= 30
    face.extend(grant, 60)
    face.release(grant)


@pytest.mark.parametrize("what", ANYWHERE)
def test_release_with_a_garbled_reply_goes_on_in_the_background(
    lock: Lock, face: Face, impostor: Impostor, direct: redis.Redis, what: str
) -> None:
    """[H15] Neither released nor lost, as far as anybody knows; it goes on in the background."""
    grant = face.acquire(lock, timeout=0)
    assert grant is not None
    impostor.say(ANYWHERE[what], of="lock/free", carried_out=False)
    assert "lock/free" in complaint(lambda: face.release(grant))
    eventually(lambda: not direct.exists(KEY))


@pytest.mark.parametrize("what", [what for what in ANYWHERE if what != "nothing"])
def test_locked_with_a_garbled_reply_raises_LockBackendError(
    lock: Lock, face: Face, impostor: Impostor, what: str
) -> None:
    """Nobody knows who holds it: that isn't free. (An empty list is what says so.)"""
    impostor.say(ANYWHERE[what], of="lock/inspect")
    assert "lock/inspect" in complaint(lock.locked)


@pytest.mark.chaos
@pytest.mark.usefixtures("often")
def test_renewal_outlives_it(
    impostor: Impostor, open_locks: Open, direct: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """[L9] The thread that renews all locks tries again, and takes none of it for "renewed" or "taken"."""
    lock = open_locks(impostor.url).lock("a", expire=LEASE, renew=True)
    grant = lock.acquire()
    for say in (b"*1\r\n:1\r\n", b"+OK\r\n", b"$-1\r\n"):
        impostor.say(say, of="lock/renew", carried_out=False)
    eventually(lambda: impostor.calls.count("lock/renew") >= 5)
    assert not grant.lost
    assert direct.pttl(KEY) > 500
    grant.release()
