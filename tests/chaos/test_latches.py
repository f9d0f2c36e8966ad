"""A latch and its processes, some of which are killed."""

from __future__ import annotations

from collections.abc import Callable

import redis

from django_redis_locks import clock
from django_redis_locks.client import Locks
from tests.chaos import jobs
from tests.chaos.workers import AT_ONCE, CAP, PATIENCE, Worker, wait_until_registered


def test_last_count_wakes_the_threads_and_tasks_of_all_living_processes(
    open_locks: Callable[..., Locks], redis_url: str, direct: redis.Redis, workers: Callable[..., Worker]
) -> None:
    """[L40] A killed waiter stays registered and delays no other one; the work of a killed participant is done again under
    its id."""
    latch = open_locks(redis_url).latch("a")
    assert latch.try_set(2)
    first, second, killed = (workers(name, max_poll_interval=CAP) for name in ("first", "second", "killed"))
    waiting = [worker.start(job, "a") for worker in (first, second) for job in (jobs.wait_for_latch, jobs.await_latch)]
    killed.start(jobs.wait_for_latch, "a")
    wait_until_registered(direct, 5)
    assert killed.call(jobs.count_down, "a", "x") == 1
    killed.kill()
    assert first.call(jobs.count_down, "a", "x") == 1
    begin = clock.now()
    assert second.call(jobs.count_down, "a", "y") == 0
    for future in waiting:
        opened, at = future.result(PATIENCE)
        assert opened
        assert at < begin + AT_ONCE
