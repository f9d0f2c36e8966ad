"""Loads in real processes: one of them dies, stands still, or is overtaken."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Any

import pytest
import redis

from tests.cache import worker_jobs as jobs
from tests.cache.worker_jobs import configure, crowd, disturb, lift, lifted, load, loaded, put
from tests.chaos.workers import CAP, PATIENCE, Worker
from tests.contract.matrix import eventually

PROCESSES, THREADS = 4, 25
KEY, STORED = "report", ":1:report"


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[..., list[Worker]]]:
    """`start(4)`: four processes that share a cache."""
    with ExitStack() as stack:

        def start(number: int, **tuning: float) -> list[Worker]:
            tuning = {"max_poll_interval": CAP, "socket_timeout": PATIENCE, **tuning}
            workers = [Worker(redis_url, f"loader-{n}", tuning) for n in range(number)]
            for worker in workers:
                stack.callback(worker.close)
                worker.call(configure, redis_url)
            return workers

        yield start


def holds(direct: redis.Redis, value: str, key: str = KEY) -> bool:
    """Whether the cache holds this value, which is pickled."""
    return value.encode() in (direct.get(f":1:{key}") or b"")


def test_hundred_callers_of_four_processes_load_once(start: Callable[..., list[Worker]], direct: redis.Redis) -> None:
    """[V24] [S24] 4 processes of 25 threads, a cold key: one load, 300 commands at most."""
    workers = start(PROCESSES)
    before = direct.info("commandstats")
    futures = [worker.start(crowd, THREADS, KEY, "value", gate="go on") for worker in workers]
    eventually(lambda: sum(worker.call(jobs.following) for worker in workers) == PROCESSES * (THREADS - 1))
    for worker in workers:
        worker.call(lift, "go on")
    assert [value for future in futures for value in future.result(PATIENCE)] == ["value"] * PROCESSES * THREADS
    after = direct.info("commandstats")
    assert sum(worker.call(loaded).get("value", 0) for worker in workers) == 1
    sent = sum(stats["calls"] for stats in after.values()) - sum(stats["calls"] for stats in before.values())
    assert sent <= 300


def test_waiter_loads_when_the_loading_process_is_killed(start: Callable[..., list[Worker]]) -> None:
    """[S11] [S3] As soon as its lease is over, long before the waiter would ask by itself."""
    lease = 1.0
    dying, living = start(2, load_lease=lease)
    dying.start(load, KEY, "never", gate="never")
    assert dying.call(lifted, "never began")
    waiting = living.start(load, KEY, "value", wait=None)
    eventually(lambda: living.call(jobs.waiting) or waiting.done())  # a lease that was renewed too late is over before
    dying.kill()
    begin = monotonic()
    assert waiting.result(PATIENCE) == ("value", "loaded")
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
            assert other.call(load, KEY, "new")[0] == "new"
    finally:
        stopped.signal(signal.SIGCONT)
    stopped.call(lift, "go on")
    assert loading.result(PATIENCE)[0] == "old"  # to its own caller
    assert not holds(direct, "old")
    assert holds(direct, "new") == loaded_meanwhile


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
        new, _ = other.call(load, key, "new", version=2 if how == "incr_version" else None)
        assert new == ("written" if how in ("set", "incr_version") else "new"), how
        loader.call(lift, f"go {how}")
        assert first.result(PATIENCE)[0] == ("stale" if mode == "thread" else old), how
        eventually(lambda: not loader.call(jobs.flying))
        assert not holds(direct, old, key), how
        assert other.call(load, key, "later")[0] != old, how
