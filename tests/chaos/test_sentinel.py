"""Failovers by sentinels: a killed master, a planned failover, sentinels that are away, a lock that was never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redis_locks import LockBackendError, LockLost, clock
from django_redis_locks.client import Locks
from tests.chaos.helpers import LEASE, Async, Sync, renewed
from tests.probes.client import registered_queues
from tests.waiting import eventually
from tools.redis_sentinel import SentinelGroup

PATIENT = 20.0
"""The BACKEND_WAIT of tests with a failover, in seconds. It takes about one."""


@pytest.fixture
def group(redis_executable: None) -> Iterator[SentinelGroup]:
    with SentinelGroup() as group:
        yield group


def replicated(group: SentinelGroup) -> None:
    """Wait until the replicas have all previous writes."""
    offset = _offset(group.master.command("INFO", "replication"), "master_repl_offset")
    for replica in group.replicas:
        eventually(
            lambda replica=replica: _offset(replica.command("INFO", "replication"), "slave_repl_offset") >= offset
        )


def _offset(info: str, field: str) -> int:
    return int(info.partition(f"{field}:")[2].split()[0])


@pytest.mark.usefixtures("frequent_renewal")
def test_callers_go_on_after_the_master_was_killed(
    group: SentinelGroup, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[E1] A caller waits for the new master, fences grow, and a lock that was copied stays held."""
    client = open_locks(group.location(), EXPIRE=LEASE, BACKEND_WAIT=PATIENT)
    held = face.acquire(client.lock("held"))
    renewed(held)
    replicated(group)
    former = group.master
    former.kill()
    grant = face.acquire(client.lock("other"))
    assert group.master is not former
    assert grant.fence > held.fence
    face.release(grant)
    renewed(held)
    assert not held.lost
    face.release(held)


@pytest.mark.usefixtures("no_polling")
def test_planned_failover_leaves_no_caller_on_the_former_master(
    group: SentinelGroup, open_both: Callable[..., list[Locks]], face: Sync | Async
) -> None:
    """[E1] The former master lives on as a replica. Waiters are woken by the new one."""
    here, there = open_both(group.location(), EXPIRE=60, BACKEND_WAIT=PATIENT)
    grant = face.acquire(here.lock("import"))
    with ThreadPoolExecutor() as pool:
        lock = there.lock("import", wait=60)
        waiting = pool.submit(lock.acquire)
        eventually(lambda: registered_queues(there, lock))
        replicated(group)
        former = group.master
        group.fail_over()
        group.wait_for_master_other_than(former)
        face.release(face.acquire(here.lock("other")))
        face.release(grant)
        waiting.result(30).release()


def test_callers_go_on_while_two_sentinels_are_away(
    group: SentinelGroup, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[E1] The last one knows the master. It can't replace it: then the error names the sentinels."""
    client = open_locks(group.location(), BACKEND_WAIT=0.5)
    for sentinel in group.sentinels[:2]:
        sentinel.kill()
    face.release(face.acquire(client.lock("a")))
    group.master.kill()
    began = clock.now()
    with pytest.raises(LockBackendError, match=f"{group.sentinels[0].port}.*{group.sentinels[2].port}"):
        face.acquire(client.lock("a"))
    assert clock.now() - began < 5


def test_open_connections_go_on_while_all_sentinels_are_away(
    group: SentinelGroup, open_locks: Callable[..., Locks], face: Sync | Async
) -> None:
    """[E1] A new connection needs a sentinel."""
    client = open_locks(group.location(), BACKEND_WAIT=0.5)
    grant = face.acquire(client.lock("a"))
    master = group.master
    for sentinel in group.sentinels:
        sentinel.kill()
    face.release(grant)
    face.release(face.acquire(client.lock("a")))
    master.command("CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(LockBackendError, match="no sentinel answers"):
        face.acquire(client.lock("a"))


def test_lock_that_was_not_copied_has_two_holders_and_growing_fences(
    group: SentinelGroup, open_both: Callable[..., list[Locks]], face: Sync | Async
) -> None:
    """[E1] Failover doesn't promise exclusion. The next call of the first holder raises, and its writes have the smaller fence."""
    here, there = open_both(group.location(), EXPIRE=60, BACKEND_WAIT=PATIENT)
    former, replicas = group.master, group.replicas
    for replica in replicas:
        replica.pause()
    former.command("CLIENT", "KILL", "TYPE", "replica")  # else the stopped replica reads the write when it resumes
    first = face.acquire(here.lock("import"))
    former.kill()
    for replica in replicas:
        replica.resume()
    second = face.acquire(there.lock("import"))
    stored = 0
    for fence, accepted in ((second.fence, True), (first.fence, False)):
        assert (fence > stored) is accepted
        stored = max(stored, fence)
    with pytest.raises(LockLost):
        face.extend(first, 60)
    assert not second.lost
    face.release(second)
