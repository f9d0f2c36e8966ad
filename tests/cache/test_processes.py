"""Loads in several processes: one of them is killed, is stopped, or invalidates."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Any

import pytest
import redis

from tests.cache import worker_jobs as jobs
from tests.cache.worker_jobs import (
    change_cache,
    concurrent_loads,
    configure,
    load,
    loader_calls,
    open_gate,
    put,
    wait_for_gate,
)
from tests.chaos.workers import CAP, PATIENCE, Worker
from tests.contract.matrix import eventually

PROCESSES, THREADS = 4, 25
KEY, STORED = "report", ":1:report"


@pytest.fixture
def start_workers(redis_url: str) -> Iterator[Callable[..., list[Worker]]]:
    """`start_workers(4)`: four processes that share a cache."""
    with ExitStack() as stack:

        def start(number: int, **tuning: float) -> list[Worker]:
            tuning = {"max_poll_interval": CAP, "socket_timeout": PATIENCE, **tuning}
            workers = [Worker(redis_url, f"loader-{n}", tuning) for n in range(number)]
            for worker in workers:
                stack.callback(worker.close)
                worker.call(configure, redis_url)
            return workers

        yield start


def cache_holds(redis_client: redis.Redis, value: str, key: str = KEY) -> bool:
    """Whether the cache has this value, pickled."""
    return value.encode() in (redis_client.get(f":1:{key}") or b"")


def test_100_callers_of_four_processes_load_once(
    start_workers: Callable[..., list[Worker]], redis_client: redis.Redis
) -> None:
    """[V24] [S24] 25 threads each, a missing key: one load, and at most 300 commands."""
    workers = start_workers(PROCESSES)
    before = redis_client.info("commandstats")
    futures = [worker.start(concurrent_loads, THREADS, KEY, "value", gate="go on") for worker in workers]
    eventually(lambda: sum(worker.call(jobs.following) for worker in workers) == PROCESSES * (THREADS - 1))
    for worker in workers:
        worker.call(open_gate, "go on")
    assert [value for future in futures for value in future.result(PATIENCE)] == ["value"] * PROCESSES * THREADS
    after = redis_client.info("commandstats")
    assert sum(worker.call(loader_calls).get("value", 0) for worker in workers) == 1
    sent = sum(stats["calls"] for stats in after.values()) - sum(stats["calls"] for stats in before.values())
    assert sent <= 300


def test_waiter_loads_when_the_loading_process_is_killed(start_workers: Callable[..., list[Worker]]) -> None:
    """[S11] [S3] At the end of the lease, long before the waiter polls."""
    lease = 1.0
    dying, living = start_workers(2, load_lease=lease)
    dying.start(load, KEY, "never", gate="never")
    assert dying.call(wait_for_gate, "never began")
    waiting = living.start(load, KEY, "value", wait=None)
    eventually(lambda: living.call(jobs.waiting) or waiting.done())  # done already if the lease was renewed too late
    dying.kill()
    begin = monotonic()
    assert waiting.result(PATIENCE) == ("value", "loaded")
    assert monotonic() - begin < lease + 8


@pytest.mark.parametrize("loaded_by_other", [True, False])
def test_process_stopped_for_longer_than_its_lease_stores_nothing(
    start_workers: Callable[..., list[Worker]], redis_client: redis.Redis, loaded_by_other: bool
) -> None:
    """[S9] Its lease has ended."""
    stopped, other = start_workers(2)
    loading = stopped.start(load, KEY, "old", gate="go on")
    assert stopped.call(wait_for_gate, "old began")
    stopped.signal(signal.SIGSTOP)
    lease = "{" + STORED + "}:k:load"
    try:
        redis_client.pexpire(lease, 1)
        eventually(lambda: not redis_client.exists(lease))
        if loaded_by_other:
            assert other.call(load, KEY, "new")[0] == "new"
    finally:
        stopped.signal(signal.SIGCONT)
    stopped.call(open_gate, "go on")
    assert loading.result(PATIENCE)[0] == "old"  # its own caller gets the value
    assert not cache_holds(redis_client, "old")
    assert cache_holds(redis_client, "new") == loaded_by_other


@pytest.mark.parametrize("mode", ["foreground", "thread"])
def test_write_by_another_process_during_a_load_prevents_its_store(
    start_workers: Callable[..., list[Worker]], redis_client: redis.Redis, mode: str
) -> None:
    """[S1] [S2] [S4] [S31] [V7] [V15] The old value isn't in the cache afterwards."""
    loader, other = start_workers(2)
    for how in ("invalidate", "set", "delete", "clear", "incr_version"):
        key, old = f"{KEY}-{how}", f"old-{how}"
        options: dict[str, Any] = {"ttl": 100, "stale": 60, "refresh": "thread"} if mode == "thread" else {}
        if mode == "thread":
            loader.call(put, key, "stale", 50)
        first = loader.start(load, key, old, gate=f"go {how}", **options)
        assert loader.call(wait_for_gate, f"{old} began")
        other.call(change_cache, how, key, "written")
        new, _ = other.call(load, key, "new", version=2 if how == "incr_version" else None)
        assert new == ("written" if how in ("set", "incr_version") else "new"), how
        loader.call(open_gate, f"go {how}")
        assert first.result(PATIENCE)[0] == ("stale" if mode == "thread" else old), how
        eventually(lambda: not loader.call(jobs.loads_running))
        assert not cache_holds(redis_client, old, key), how
        assert other.call(load, key, "later")[0] != old, how
