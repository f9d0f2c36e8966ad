"""Faults of a Cluster: a slot that moves under load, a killed master, a planned failover."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest

from django_redis_locks import LockBackendError, clock, inspection
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE, Async, Sync, renewed
from tests.probes.client import registered_queues, rights_named_on_a_cluster, slot_of
from tests.waiting import eventually
from tools.redis_cluster import RedisCluster

PATIENT = 20.0
"""The BACKEND_WAIT of tests with a failover, in seconds. It takes about three."""


@pytest.fixture
def cluster(redis_executable: None) -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


def slot(key: str) -> int:
    return slot_of(f"lock:{{{crc32(key.encode()) % 256}}}:k:{key}")


def key_on(cluster: RedisCluster, number: int) -> str:
    """A key whose slot the master with this number has."""
    master = cluster.masters[number]
    return next(key for key in map("job:{}".format, range(1000)) if cluster.owner(slot(key)) is master)


@pytest.mark.usefixtures("frequent_renewal")
def test_slot_that_moves_under_load_costs_no_caller_an_error(
    cluster: RedisCluster, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[L22] The counter under the lock loses no update, fences grow, a held lock in the slot is kept, and waiters are woken
    by the new node."""
    key = key_on(cluster, 0)
    client = open_locks(cluster.location(), EXPIRE=LEASE)
    same_slot = next(other for other in map("held:{}".format, range(100_000)) if slot(other) == slot(key))
    held = face.acquire(client.lock(same_slot))
    fences: list[int] = []
    counter = [0]
    ended = threading.Event()

    def count() -> int:
        rounds = 0
        while not ended.is_set():
            with client.lock(key, wait=30) as grant:
                value = counter[0]
                fences.append(grant.fence)
                counter[0] = value + 1
            rounds += 1
        return rounds

    with ThreadPoolExecutor() as pool:
        workers = [pool.submit(count) for _ in range(4)]
        try:
            for target in (1, 2, 0) * 3:
                cluster.move_slot(slot(key), cluster.masters[target])
                before = counter[0]
                eventually(lambda before=before: counter[0] > before + 20 or any(each.done() for each in workers))
        finally:
            ended.set()
        rounds = sum(worker.result(60) for worker in workers)
    assert counter[0] == rounds == len(fences)
    assert fences == sorted(set(fences))
    renewed(held)
    assert not held.lost
    face.release(held)


@pytest.mark.usefixtures("no_polling")
def test_waiter_is_woken_at_the_node_to_which_its_slot_has_moved(
    cluster: RedisCluster, open_both: Callable[..., list[Locks]]
) -> None:
    key = key_on(cluster, 0)
    here, there = open_both(cluster.location(), EXPIRE=60)
    grant = here.lock(key).acquire()
    with ThreadPoolExecutor() as pool:
        lock = there.lock(key, wait=60)
        waiting = pool.submit(lock.acquire)
        eventually(lambda: registered_queues(there, lock))
        cluster.move_slot(slot(key), cluster.masters[1])
        grant.release()
        waiting.result(30).release()


def test_killed_master_costs_the_time_of_its_slots_only(
    cluster: RedisCluster, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[L21] Callers of other slots go on meanwhile; those of its slots wait for the replica, and fences grow."""
    lost, other = key_on(cluster, 0), key_on(cluster, 1)
    client = open_locks(cluster.location(), EXPIRE=LEASE, BACKEND_WAIT=PATIENT)
    grant = face.acquire(client.lock(lost))
    fence = grant.fence
    face.release(grant)
    cluster.masters[0].kill()
    with ThreadPoolExecutor() as pool:
        begin = clock.now()
        waiting = pool.submit(client.lock(lost, wait=PATIENT).acquire)
        passes = []
        while not waiting.done():
            sent = clock.now()
            face.release(face.acquire(client.lock(other)))
            passes.append(clock.now() - sent)
        grant = waiting.result()
    assert grant.fence > fence
    assert len(passes) > 20
    assert max(passes) < 1.0 < clock.now() - begin
    grant.release()


def test_listing_names_a_killed_master_until_its_replica_has_taken_over(
    cluster: RedisCluster, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[L21] The locks of the other masters are listed meanwhile."""
    lost, other = key_on(cluster, 0), key_on(cluster, 1)
    client = open_locks(cluster.location(), EXPIRE=60)
    grants = [face.acquire(client.lock(key)) for key in (lost, other)]
    cluster.masters[0].command("WAIT", 1, 2000)
    victim, alias = cluster.masters[0], client.settings.alias
    for node in cluster.nodes:
        node.command("CONFIG", "SET", "cluster-node-timeout", 60_000)
    victim.kill()
    for page in (inspection.held(alias), asyncio.run(inspection.aheld(alias))):
        assert [row.key for row in page.rows] == [other]
        assert [f":{victim.port}" in reason for reason in page.unreachable] == [True]
    replica = next(
        node
        for node in cluster.nodes
        if node.running and f"master_port:{victim.port}" in node.command("INFO", "replication")
    )
    replica.command("CLUSTER", "FAILOVER", "TAKEOVER")
    eventually(lambda: not inspection.held(alias).unreachable)
    assert {row.key for row in inspection.held(alias).rows} == {lost, other}
    for grant in grants:
        face.release(grant)


def test_caller_of_a_slot_without_a_node_gets_an_error_after_its_wait(
    open_locks: Callable[..., Locks], face: Sync | Async, redis_executable: None
) -> None:
    """Again and again: it tells nothing about callers of other slots."""
    with RedisCluster(replicas=0) as cluster:
        lost, other = key_on(cluster, 0), key_on(cluster, 1)
        client = open_locks(cluster.location(), BACKEND_WAIT=0.3)
        face.release(face.acquire(client.lock(lost)))
        cluster.masters[0].kill()
        for _ in range(3):
            with pytest.raises(LockBackendError):
                face.acquire(client.lock(lost))
            face.release(face.acquire(client.lock(other)))


@pytest.mark.usefixtures("frequent_renewal")
def test_planned_failover_leaves_no_caller_on_the_former_master(
    cluster: RedisCluster, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[L22] The former master lives on as a replica."""
    key = key_on(cluster, 0)
    client = open_locks(cluster.location(), EXPIRE=LEASE, BACKEND_WAIT=PATIENT)
    held = face.acquire(client.lock(key))
    former = cluster.masters[0]
    replica = cluster.replica_of(former)
    replica.command("CLUSTER", "FAILOVER")
    eventually(lambda: cluster.owner(slot(key)) is replica)
    renewed(held)
    assert not held.lost
    face.release(held)
    face.release(face.acquire(client.lock(key)))


@pytest.mark.usefixtures("no_polling")
def test_rights_that_the_error_lists_suffice_while_a_slot_moves(
    cluster: RedisCluster, open_both: Callable[..., list[Locks]]
) -> None:
    """[L28] A request follows a key to the target, and waiters are woken. A missing right is named."""
    words = ["on", ">pw", "~lock:*", "resetchannels", "&lock:*", "-@all", "+hello", "+client"]
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "app", *words, *(f"+{right}" for right in rights_named_on_a_cluster()))
    here, there = open_both(cluster.location().replace("://", "://app:pw@"), EXPIRE=60)
    key, target = key_on(cluster, 0), cluster.masters[1]
    grant = here.lock(key).acquire()
    source = cluster.begin_move(slot(key), target)
    assert cluster.move_keys(slot(key), source, target) == 3
    grant.extend(120)
    cluster.end_move(slot(key), target)
    with ThreadPoolExecutor() as pool:
        lock = there.lock(key, wait=60)
        waiting = pool.submit(lock.acquire)
        eventually(lambda: registered_queues(there, lock))
        grant.release()
        waiting.result(30).release()
    target.command("ACL", "SETUSER", "app", "-spublish", "-get")
    with pytest.raises(LockBackendError, match=r"\+spublish"):
        here.lock(key).acquire()
