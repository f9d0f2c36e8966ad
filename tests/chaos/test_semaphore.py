"""A semaphore among processes, threads and tasks: never more permits than the limit, also if processes are killed."""

from __future__ import annotations

import signal
from collections.abc import Callable

import redis

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
