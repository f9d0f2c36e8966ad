"""A semaphore among processes, threads and tasks: never more permits than the limit, also if processes are killed."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import LockBackendError, Semaphore
from django_redis_locks.client import Locks
from tests.chaos.jobs import ashare, share, take
from tests.chaos.workers import PATIENCE, Worker
from tests.waiting import eventually

Start = Callable[..., Worker]

LIMIT = 3


def test_processes_threads_and_tasks_never_hold_more_permits_than_the_limit(
    workers: Start, direct: redis.Redis
) -> None:
    """[L37] Each of them gets its share, and nothing is left behind."""
    processes = [workers(name) for name in ("one", "two", "three")]
    futures = [
        process.start(job, "shared", LIMIT, 2.0) for process in processes for job in (share, share, ashare, ashare)
    ]
    shares = [future.result(PATIENCE) for future in futures]
    assert all(shares)
    changes = sorted(
        change for each in shares for one in each for change in ((one.begin, one.permits), (one.end, -one.permits))
    )
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    assert most == LIMIT
    assert direct.exists("lock:{0}:k:shared", "lock:{0}:e:shared", "lock:{0}:w:shared", "lock:{0}:h:shared") == 0


def test_permits_of_a_killed_process_are_free_after_its_lease(workers: Start) -> None:
    """[L36] [L37] The renewals of another holder keep only its own permit."""
    dead, alive, third = (workers(name) for name in ("dead", "alive", "third"))
    assert dead.call(take, "killed", 2, 1.0)
    assert alive.call(take, "killed", 2, 1.0)
    assert not third.call(take, "killed", 2, 1.0)
    dead.signal(signal.SIGKILL)
    eventually(lambda: third.call(take, "killed", 2, 1.0))
    assert not third.call(take, "killed", 2, 1.0)


def test_more_readers_wait_than_one_step_grants_permits_to(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis
) -> None:
    """[L38] The next requests go on with it. A script can't write 4000 holds at once."""
    lock = open_locks(redis_url).rwlock("crowd", expire=60)
    writer = lock.write.acquire()
    with direct.pubsub() as inbox:
        inbox.subscribe("inbox")
        assert inbox.get_message(timeout=PATIENCE)
        for number in range(4500):
            direct.zadd("lock:{0}:w:crowd", {f"inbox 1 token{number} 60000/rwlock/1000000000/1 ": number + 1})
        writer.release()
        granted = [len(lock.read.holders())]
        while granted[-1] < 4500:
            assert lock.write.acquire(timeout=0) is None
            granted.append(len(lock.read.holders()))
    assert granted == [1000, 2000, 3000, 4000, 4500]


def test_permits_of_ended_holds_are_given_back_by_a_request_without_a_fence(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis
) -> None:
    """The error for a fence counter that something else has written comes after ended holds were dropped."""
    client = open_locks(redis_url)
    semaphore = client.semaphore("fences", 2, expire=60)
    semaphore.acquire()
    client.semaphore("fences", 2, expire=0.1, auto_release=False).acquire()
    eventually(lambda: semaphore.available() == 1)
    direct.set("lock:{0}:fence", 2**53)
    with pytest.raises(LockBackendError, match="2\\^53"):
        semaphore.acquire(timeout=0)
    direct.delete("lock:{0}:fence")
    assert semaphore.available() == 1
    assert semaphore.acquire(timeout=0)


def crowded(client: Locks, direct: redis.Redis, holds: int) -> Semaphore:
    """A semaphore with thousands of holds of one permit."""
    semaphore = client.semaphore("many", 100_000, expire=60)
    semaphore.acquire()
    lock, ends = "lock:{0}:k:many", "lock:{0}:e:many"
    ((token, end),) = direct.zrange(ends, 0, -1, withscores=True)
    hold = direct.hget(lock, token)
    for first in range(1, holds, 1000):
        tokens = [f"token{number}" for number in range(first, min(first + 1000, holds))]
        direct.zadd(ends, dict.fromkeys(tokens, end))
        direct.hset(lock, mapping=dict.fromkeys(tokens, hold))
    direct.hset(lock, "permits", f"1 semaphore 100000 0 {holds} {end:.0f} {end:.0f}")
    return semaphore


def test_more_holds_are_counted_than_a_reply_lists(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis
) -> None:
    """A reply with all of them would be refused as malformed, and the server taken to be down."""
    semaphore = crowded(open_locks(redis_url), direct, 70_000)
    assert semaphore.available() == 30_000
    assert len(semaphore.holders()) == 10_000


def test_more_holds_are_released_by_force_than_a_reply_lists(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis
) -> None:
    semaphore = crowded(open_locks(redis_url), direct, 10_500)
    fences = (f"1 {1_700_000_000_000_000 + number}" for number in range(10_500))
    direct.hset("lock:{0}:k:many", mapping=dict(zip(direct.zrange("lock:{0}:e:many", 0, -1), fences, strict=True)))
    assert semaphore.force_release()
    assert semaphore.holders() == []
