"""OPTIONS["replicas"]: a lock that replicas don't have isn't given to its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import redis

from django_redis_locks import LockNotAcquired, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync
from tests.probes.client import registered_queues
from tests.waiting import eventually
from tools.redis_sentinel import SentinelGroup
from tools.redis_server import RedisServer

KINDS: dict[str, dict[str, int]] = {"lock": {}, "fair_lock": {}, "semaphore": {"limit": 1}, "multi_lock": {}}


class Pair(NamedTuple):
    master: RedisServer
    replica: RedisServer

    def copies(self) -> list[bytes]:
        """The locks that the replica has."""
        with redis.Redis(port=self.replica.port) as client:
            found: list[bytes] = client.keys("*:k:*")
        return found


@pytest.fixture
def pair(make_server: Callable[..., RedisServer]) -> Iterator[Pair]:
    master = make_server(repl_diskless_sync_delay=0)
    pair = Pair(master, make_server(replicaof=f"127.0.0.1 {master.port}"))
    eventually(lambda: "state=online" in master.command("INFO", "replication"))
    yield pair
    pair.replica.resume()


def strict(replicas: int = 1, timeout: float = 5.0) -> dict[str, float]:
    return {"replicas": replicas, "socket_timeout": timeout}


@pytest.mark.parametrize("kind", KINDS)
def test_acquired_lock_is_on_the_replica(
    pair: Pair, open_locks: Callable[..., Locks], face: Sync | Async, kind: str
) -> None:
    """At the moment of the grant, without a wait."""
    client = open_locks(pair.master.url(), OPTIONS=strict())
    for number in range(20):
        keys = [f"{number}", f"{number}b"] if kind == "multi_lock" else [f"{number}"]
        grant = face.acquire(getattr(client, kind)(*keys, **KINDS[kind]))
        assert len(pair.copies()) == len(keys)
        face.release(grant)


def test_lock_granted_by_another_process_is_on_the_replica(
    pair: Pair, open_both: Callable[..., list[Locks]], face: Sync | Async
) -> None:
    """The release of the other process wrote it, on another connection."""
    here, there = open_both(pair.master.url(), OPTIONS=strict())
    with ThreadPoolExecutor() as pool:
        for number in range(5):
            grant = face.acquire(here.lock(f"{number}"))
            lock = there.lock(f"{number}", wait=60)
            waiting = pool.submit(lock.acquire)
            eventually(lambda lock=lock: registered_queues(there, lock))
            face.release(grant)
            granted = waiting.result(30)
            assert len(pair.copies()) == 1
            granted.release()


def test_lock_that_no_replica_has_is_busy_and_swept(
    pair: Pair, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """Also while one of two replicas is missing. The caller goes on when there are enough."""
    client = open_locks(pair.master.url(), OPTIONS=strict(timeout=0.3), WAIT=0)
    pair.replica.pause()
    began = clock.now()
    with pytest.raises(LockNotAcquired, match="copied to fewer than 1 replicas"):
        face.acquire(client.lock("a"))
    assert clock.now() - began < 5
    with redis.Redis(port=pair.master.port) as master:
        eventually(lambda: master.keys("*:k:*") == [])
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("a", wait=60).acquire)
        pair.replica.resume()
        waiting.result(30).release()
    face.release(face.acquire(client.lock("a", wait=60)))
    assert face.acquire(open_locks(pair.master.url(), OPTIONS=strict(2, 0.3)).lock("b"), timeout=0) is None


def test_lock_through_sentinels_is_on_both_replicas(
    sentinel_group: SentinelGroup, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    sentinel_group.master.flush()
    client = open_locks(sentinel_group.location(), OPTIONS=strict(2))
    grant = face.acquire(client.lock("a"))
    for replica in sentinel_group.replicas:
        assert len(replica.command("KEYS", "*:k:*")) == 1
    face.release(grant)
