"""Loads in real processes: one of them dies, stands still, fails, or is overtaken."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Any

import pytest
import redis

from tests.cache import worker_jobs as jobs
from tests.cache.worker_jobs import Got, acrowd, configure, crowd, disturb, lift, lifted, load, load_many, loaded, put
from tests.chaos.workers import CAP, PATIENCE, Worker
from tests.contract.matrix import eventually

PROCESSES, THREADS = 4, 25
KEY, STORED = "report", ":1:report"


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[..., list[Worker]]]:
    """`start(4)`: four processes that share a cache."""
    with ExitStack() as stack:

        def start(number: int) -> list[Worker]:
            workers = [
                Worker(redis_url, f"loader-{n}", {"max_poll_interval": CAP, "socket_timeout": PATIENCE})
                for n in range(number)
            ]
            for worker in workers:
                stack.callback(worker.close)
                worker.call(configure, redis_url)
            return workers

        yield start


def loads_of(workers: list[Worker]) -> Counter[str]:
    found: Counter[str] = Counter()
    for worker in workers:
        found.update(worker.call(loaded))
    return found


def gathered(workers: list[Worker], job: Callable[..., Any], size: int, value: str, following: int, **how: Any) -> Any:
    """What callers of all processes return, one of which loads until this many follow loads of their processes."""
    futures = [worker.start(job, size, KEY, value, gate="go on", **how) for worker in workers]
    eventually(lambda: sum(worker.call(jobs.following) for worker in workers) == following)
    for worker in workers:
        worker.call(lift, "go on")
    return [each for future in futures for each in future.result(PATIENCE)]


def holds(direct: redis.Redis, value: str, key: str = KEY) -> bool:
    """Whether the cache holds this value, which is pickled."""
    return value.encode() in (direct.get(f":1:{key}") or b"")


def test_hundred_callers_of_four_processes_load_once(start: Callable[..., list[Worker]], direct: redis.Redis) -> None:
    """[V24] [S24] 4 processes of 25 threads, a cold key: one load, 300 commands at most."""
    workers = start(PROCESSES)
    before = direct.info("commandstats")
    results = gathered(workers, crowd, THREADS, "value", PROCESSES * (THREADS - 1))
    after = direct.info("commandstats")
    assert {result.value for result in results} == {"value"}
    assert len(results) == PROCESSES * THREADS
    assert loads_of(workers) == {"value": 1}
    sent = sum(stats["calls"] for stats in after.values()) - sum(stats["calls"] for stats in before.values())
    assert sent <= 300


def test_two_hundred_tasks_of_two_processes_load_once(start: Callable[..., list[Worker]]) -> None:
    """[S22] [S24] One load for all tasks of all processes."""
    workers = start(2)
    results = gathered(workers, acrowd, 100, "value", 200)
    assert [result.value for result in results] == ["value"] * 200
    assert loads_of(workers) == {"value": 1}


def test_waiter_loads_when_the_loading_process_is_killed(start: Callable[..., list[Worker]]) -> None:
    """[S11] As soon as its lease is over, long before the waiter would ask by itself."""
    lease = 1.0
    dying, living = start(2)
    dying.start(load, KEY, "never", gate="never", expire=lease)
    assert dying.call(lifted, "never began")
    waiting = living.start(load, KEY, "value", expire=lease, wait=20.0)
    eventually(lambda: living.call(jobs.waiting) or waiting.done())  # a lease that was renewed too late is over before
    dying.kill()
    begin = monotonic()
    assert waiting.result(PATIENCE) == Got("value", "loaded")
    assert monotonic() - begin < lease + 8


@pytest.mark.parametrize("loaded_meanwhile", [True, False])
def test_process_that_stood_still_stores_nothing(
    start: Callable[..., list[Worker]], direct: redis.Redis, loaded_meanwhile: bool
) -> None:
    """[S9] Its lease is over."""
    stopped, other = start(2)
    loading = stopped.start(load, KEY, "old", gate="go on")
    assert stopped.call(lifted, "old began")
    stopped.signal(signal.SIGSTOP)
    lease = "{" + STORED + "}:k:load"
    try:
        direct.pexpire(lease, 1)
        eventually(lambda: not direct.exists(lease))
        if loaded_meanwhile:
            assert other.call(load, KEY, "new").value == "new"
    finally:
        stopped.signal(signal.SIGCONT)
    stopped.call(lift, "go on")
    assert loading.result(PATIENCE).value == "old"  # to its own caller
    assert not holds(direct, "old")
    assert holds(direct, "new") == loaded_meanwhile


def test_failure_is_raised_in_all_processes(start: Callable[..., list[Worker]]) -> None:
    """[S13] 100 callers wait for a load that fails: two loads at most, and no caller waits for more of them."""
    workers = start(PROCESSES)
    following = PROCESSES * (THREADS - 1)
    results = gathered(workers, crowd, THREADS, "no rates", following, fails=True, error_ttl=PATIENCE)
    assert {result.source for result in results} <= {"OSError", "LoadFailed"}
    assert loads_of(workers)["no rates"] <= 2


def test_short_wait_lets_one_more_process_load(start: Callable[..., list[Worker]], direct: redis.Redis) -> None:
    """[S12] [V14] Of all callers whose wait is over one loads while the first does, and its value isn't stored."""
    workers = start(PROCESSES)
    first = workers[0].start(load, KEY, "first", gate="go on")
    assert workers[0].call(lifted, "first began")
    futures = [worker.start(crowd, THREADS, KEY, "second", wait=0.3, on_conflict="load") for worker in workers]
    sources = Counter(result.source for future in futures for result in future.result(PATIENCE))
    assert sources == {"unlocked": 1, "LoadTimeout": PROCESSES * THREADS - 1}
    assert loads_of(workers) == {"first": 1, "second": 1}
    assert direct.get(STORED) is None
    workers[0].call(lift, "go on")
    assert first.result(PATIENCE).value == "first"
    assert holds(direct, "first")


@pytest.mark.parametrize("mode", ["foreground", "thread"])
def test_change_by_another_process_during_a_load_wins(
    start: Callable[..., list[Worker]], direct: redis.Redis, mode: str
) -> None:
    """[S1] [S2] [S4] [S31] [V7] [V15] The old value is never in the cache afterwards."""
    loader, other = start(2)
    for how in ("invalidate", "set", "delete", "clear", "incr_version"):
        key, old = f"{KEY}-{how}", f"old-{how}"
        options: dict[str, Any] = {"ttl": 100, "stale": 60, "refresh": "thread"} if mode == "thread" else {}
        if mode == "thread":
            loader.call(put, key, "stale", 50)
        first = loader.start(load, key, old, gate=f"go {how}", **options)
        assert loader.call(lifted, f"{old} began")
        other.call(disturb, how, key, "written")
        new = other.call(load, key, "new", version=2 if how == "incr_version" else None).value
        assert new == ("written" if how in ("set", "incr_version") else "new"), how
        loader.call(lift, f"go {how}")
        assert first.result(PATIENCE).value == ("stale" if mode == "thread" else old), how
        eventually(lambda: not loader.call(jobs.flying))
        assert not holds(direct, old, key), how
        assert other.call(load, key, "later").value != old, how


def test_many_keys_are_loaded_once_by_four_processes(start: Callable[..., list[Worker]]) -> None:
    """[S17] [V4] In different orders, by four processes: none waits for itself, nothing is loaded twice."""
    workers = start(PROCESSES)
    keys = [f"k{n}" for n in range(6)]
    orders = [keys, keys[::-1], keys[3:] + keys[:3], keys[1::2] + keys[::2]]
    futures = [worker.start(load_many, order, "go on") for worker, order in zip(workers, orders, strict=True)]
    eventually(lambda: loads_of(workers).total() >= len(keys))
    for worker in workers:
        worker.call(lift, "go on")
    found = [future.result(PATIENCE) for future in futures]
    assert found == [{key: f"value of {key}" for key in order} for order in orders]
    assert loads_of(workers) == dict.fromkeys(keys, 1)


def test_stale_value_is_served_in_all_processes_while_one_loads(
    start: Callable[..., list[Worker]], direct: redis.Redis
) -> None:
    """[S14] 100 callers of a stale key: one loads, and the others are served at once."""
    workers = start(PROCESSES)
    workers[0].call(put, KEY, "stale", 50)
    futures = [worker.start(crowd, THREADS, KEY, "fresh", gate="go on", ttl=100, stale=60) for worker in workers]

    def sources() -> Counter[str]:
        return Counter(source for worker in workers for source in worker.call(jobs.sources))

    eventually(lambda: sources().total() >= PROCESSES * THREADS - 1)
    assert sources() == {"stale": PROCESSES * THREADS - 1}
    assert loads_of(workers) == {"fresh": 1}
    for worker in workers:
        worker.call(lift, "go on")
    for future in futures:
        future.result(PATIENCE)
    assert sources() == {"stale": PROCESSES * THREADS - 1, "loaded": 1}
    assert loads_of(workers) == {"fresh": 1}
    assert holds(direct, "fresh")
