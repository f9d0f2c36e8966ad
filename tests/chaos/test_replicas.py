"""OPTIONS["replicas"]: a lock that replicas don't have isn't given to its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
import redis

from django_redis_locks import LockBackendError, LockNotAcquired, clock, diagnosis
from django_redis_locks.client import Locks
from tests.chaos.helpers import Async, Sync
from tests.probes.client import registered_queues
from tests.waiting import eventually
from tools.redis_sentinel import SentinelGroup
from tools.redis_server import RedisServer

KINDS: dict[str, Callable[[Locks, str], Any]] = {
    "lock": lambda client, key: client.lock(key),
    "rlock": lambda client, key: client.rlock(key),
    "fair_lock": lambda client, key: client.fair_lock(key),
    "read": lambda client, key: client.rwlock(key).read,
    "write": lambda client, key: client.rwlock(key).write,
    "semaphore": lambda client, key: client.semaphore(key, limit=1),
    "multi_lock": lambda client, key: client.multi_lock(key, f"{key}b"),
}


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
    if pair.replica.running:
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
        grant = face.acquire(KINDS[kind](client, f"{number}"))
        assert len(pair.copies()) == (2 if kind == "multi_lock" else 1)
        face.release(grant)


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_is_granted_without_the_replica(
    pair: Pair, open_locks: Callable[..., Locks], face: Sync | Async, kind: str
) -> None:
    """What the store has granted is given back."""
    pair.replica.pause()
    client = open_locks(pair.master.url(), OPTIONS=strict(timeout=0.2))
    assert face.acquire(KINDS[kind](client, "a"), timeout=0) is None
    with redis.Redis(port=pair.master.port) as master:
        eventually(lambda: master.keys("*:k:*") == [])


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
    pair.master.command("SCRIPT", "FLUSH")
    began = clock.now()
    with pytest.raises(LockNotAcquired, match="copied to fewer than 1 replicas"):
        face.acquire(client.lock("a"))
    assert 0.3 <= clock.now() - began < 5
    waits = pair.master.command("INFO", "commandstats").partition("cmdstat_wait:calls=")[2]
    assert waits.startswith("1,")
    with redis.Redis(port=pair.master.port) as master:
        eventually(lambda: master.keys("*:k:*") == [])
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("a", wait=60).acquire)
        pair.replica.resume()
        waiting.result(30).release()
    face.release(face.acquire(client.lock("a", wait=60)))
    assert face.acquire(open_locks(pair.master.url(), OPTIONS=strict(2, 0.3)).lock("b"), timeout=0) is None


def test_user_without_the_right_to_wait_gets_an_error_and_no_lock(
    pair: Pair, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """`check --deploy` reports the right, too."""
    pair.master.command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait")
    url = pair.master.url().replace("//", "//app:pw@")
    client = open_locks(url, OPTIONS=strict())
    with pytest.raises(LockBackendError, match=r"NOPERM.*'wait' command.*OPTIONS\['replicas'\] the command WAIT"):
        face.acquire(client.lock("a"))
    eventually(lambda: pair.copies() == [])
    assert diagnosis.facts().denied == ("+wait",)
    face.release(face.acquire(open_locks(url).lock("a")))
    assert diagnosis.facts().denied == ()


def test_acquire_waits_for_the_replicas_that_the_master_requires(
    pair: Pair, make_server: Callable[..., RedisServer], open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[E1] With `min-replicas-to-write`, a promoted master refuses writes until a replica follows it."""
    pair.master.command("CONFIG", "SET", "min-replicas-to-write", "1")
    client = open_locks(pair.master.url(), BACKEND_WAIT=0.1)
    pair.replica.kill()
    eventually(lambda: "connected_slaves:0" in pair.master.command("INFO", "replication"))
    with pytest.raises(LockBackendError, match="NOREPLICAS"):
        face.acquire(client.lock("a"), timeout=0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.lock("a", wait=60).acquire)
        make_server(replicaof=f"127.0.0.1 {pair.master.port}")
        waiting.result(30).release()


def test_lock_through_sentinels_is_on_both_replicas(
    sentinel_group: SentinelGroup, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    sentinel_group.master.flush()
    client = open_locks(sentinel_group.location(), OPTIONS=strict(2))
    grant = face.acquire(client.lock("a"))
    for replica in sentinel_group.replicas:
        assert len(replica.command("KEYS", "*:k:*")) == 1
    face.release(grant)
