"""At maxmemory with noeviction: what is held can be given back, handed over and renewed; what is free isn't to be had."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_redis_locks import LockBackendError, clock, locks
from django_redis_locks.client import Locks
from tests.chaos.crowd import KEY, LINE, asked, lined_up, pair
from tests.chaos.helpers import LEASE, renewed
from tests.probes.tuning import Tune
from tests.waiting import BUSY, eventually, in_thread
from tools.redis_server import RedisServer

Make = Callable[..., RedisServer]
Open = Callable[..., Locks]
CAP = 0.5


@pytest.fixture
def server(make_server: Make, tune: Tune) -> RedisServer:
    tune(max_poll_interval=CAP)
    return make_server(maxmemory_policy="noeviction")


def fill(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "maxmemory", "1kb")


def empty(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "maxmemory", "0")


@pytest.mark.usefixtures("often")
def test_what_is_held_lives_on(server: RedisServer, open_locks: Open) -> None:
    """[H11] [E5] [L43] It is prolonged, renewed, freed by its holder and by force; busy is answered as ever."""
    client = open_locks(server.url())
    grant = client.lock("a", expire=30).acquire()
    kept = client.lock("b", expire=LEASE, renew=True).acquire()
    client.lock("c").acquire()
    fill(server)
    grant.extend(60)
    assert in_thread(lambda: client.lock("a").acquire(timeout=0)) is None
    grant.release()
    assert client.lock("c").force_release()
    renewed(kept)
    kept.ensure_held(confirm=True)
    kept.release()
    assert server.command("KEYS", "lock:{0}:k:*") == []


@pytest.mark.parametrize("face", [0, 1], ids=["thread", "task"])
def test_what_is_free_is_refused(server: RedisServer, open_locks: Open, face: int) -> None:
    """[H11] [L43] At once, whatever the wait, with the reason and the way out; nothing is half done."""
    lock = open_locks(server.url()).lock("a")
    fill(server)
    begin = clock.now()
    with pytest.raises(LockBackendError, match=r"OOM.*at maxmemory; raise it"):
        pair(lock)[face].result(20)
    assert clock.now() - begin < BUSY
    assert server.command("KEYS", "lock:*") == []


def test_waiter_that_cannot_be_registered_polls_at_the_cap(server: RedisServer, open_locks: Open) -> None:
    """[H11] [L24] A waiter that comes when the server is full is refused nothing. It asks at the cap, on both faces."""
    lock = open_locks(server.url()).lock("a", expire=30)
    grant = lock.acquire()
    fill(server)
    begin, before = clock.now(), asked(server)
    waiters = pair(lock)
    eventually(lambda: asked(server) >= before + 12)
    assert asked(server) < before + 8 + 2 * (clock.now() - begin) / CAP, "neither is in a hurry"
    assert server.command("EXISTS", LINE) == 0
    empty(server)
    grant.release()
    begin = clock.now()
    assert all(waiter.result(20) for waiter in waiters)
    assert clock.now() - begin < CAP + locks.tuning.jitter + BUSY
    assert server.command("EXISTS", KEY, LINE) == 0


def test_full_while_they_wait(server: RedisServer, open_locks: Open) -> None:
    """[H11] [H3] Who waits in the holder's own home is handed the lock: its first write is one that a full server allows.
    Who waits elsewhere is told that it is free, and told by the server that he can't have it."""
    lock = open_locks(server.url()).lock("a", expire=30)
    grant = lock.acquire()
    thread, task = pair(lock)
    lined_up(server)
    fill(server)
    grant.release()
    assert thread.result(20).fence > grant.fence
    with pytest.raises(LockBackendError, match="OOM"):
        task.result(20)
    assert server.command("EXISTS", KEY) == 0
    empty(server)
    assert all(waiter.result(20) for waiter in pair(lock))
