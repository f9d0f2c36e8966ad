"""Each scenario runs, for a moment, and sees what it is meant to see. Nothing here asks how long anything took."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis

from benchmarks.adapters.base import Adapter
from benchmarks.jobs import Job, JobFailed
from benchmarks.scenarios import hot

LONGER = (0.3, 3.0, 20.0)
"""Seconds, one after the other, until threads have had their turn: those that begin late have had none."""

SCENARIOS = [
    pytest.param("ours", "hot", {"workers": 2, "processes": False, "section": 0.0}, {"seconds": 0.1}, id="threads"),
    pytest.param("ours", "hot", {"workers": 2, "processes": True, "section": 0.001}, {"seconds": 0.1}, id="processes"),
    pytest.param("baton", "hot", {"workers": 2, "processes": True, "section": 0.0}, {"seconds": 0.1}, id="baton"),
    pytest.param(
        "baton-redis-py", "hot", {"workers": 3, "processes": True, "section": 0.0}, {"waiting": 1, "seconds": 0.1}
    ),
    *(
        pytest.param(name, "hot", {"workers": 2, "processes": True, "section": 0.001}, {"seconds": 0.1}, id=name)
        for name in ("ours-fair", "ours-semaphore", "ours-write")
    ),
    pytest.param("ours", "wake", {}, {"seconds": 0.01}, id="wake"),
    pytest.param("ours", "waiters", {"workers": 5}, {"settle": 0.1, "idle": 0.1}, id="crowd of threads"),
    pytest.param("ours-tasks", "waiters", {"workers": 5}, {"settle": 0.1, "idle": 0.1}, id="crowd of tasks"),
]


@pytest.mark.parametrize(("adapter", "scenario", "options", "arguments"), SCENARIOS)
def test_scenario_with_a_working_lock_has_no_overlaps(
    adapter: str, scenario: str, options: dict[str, Any], arguments: dict[str, float], redis_url: str
) -> None:
    with Job(adapter, scenario, redis_url, None, options) as job:
        job.ready()
        figures = job.measure(**arguments)
    assert figures["overlaps"] == 0
    assert not figures.get("errors")
    assert figures.get("acquired") == (5 if scenario == "waiters" else None)


def test_other_scenarios_see_keys_tasks_renewals_reads_and_memory(redis_url: str) -> None:
    def figures(adapter: str, scenario: str, options: dict[str, Any], **arguments: float) -> dict[str, Any]:
        redis.Redis.from_url(redis_url).flushdb()  # keys that the others left
        with Job(adapter, scenario, redis_url, None, options) as job:
            job.ready()
            return job.measure(**arguments)

    assert figures("ours", "uncontended", {}, seconds=0.01, seen=100)["us"] > 0
    for adapter in ("raw-tasks", "ours-tasks"):
        assert figures(adapter, "tasks", {"tasks": 3}, seconds=0.05)["pairs"] > 0, adapter
    for adapter in ("raw-renewed", "ours", "one-by-one"):
        renewed = figures(adapter, "renewals", {"lease": 30.0}, seconds=0.05, locks=3)
        assert renewed["lost"] == 0, adapter
        assert renewed["threads"] in {1, 2}, adapter  # the second is the subscriber's, which begins a second later
    for adapter in ("three-reads", "ours-read"):
        read = figures(adapter, "readers", {"processes": 2, "threads": 2}, seconds=0.1)
        assert (read["reads"] > 0, read["errors"]) == (True, 0), adapter
    memory = figures("ours", "memory", {"locks": 1000})  # many more bytes than a connection that closes gives back
    assert memory["bytes"] > 0
    assert (round(memory["keys"]), memory["left_keys"]) == (1, 0)  # and one index for all of them


def test_worker_ends_with_its_block_or_is_raised_with_its_reason(redis_url: str) -> None:
    with Job("raw", "uncontended", "redis://127.0.0.1:1", None, {}) as job, pytest.raises(JobFailed, match="refused"):
        job.ready()
    with Job("raw", "uncontended", redis_url, None, {}) as job:
        job.ready()
        pid = job._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class NoLock(Adapter):
    """Lets everybody in."""

    def acquire(self, key: str) -> None:
        pass

    def release(self, held: None) -> None:
        pass


def test_lock_without_exclusion_is_counted_as_overlaps(redis_url: str) -> None:
    scenario = hot.Scenario(NoLock, redis_url, workers=4, processes=False, section=0.001)
    assert any(scenario.measure(seconds=seconds)["overlaps"] for seconds in LONGER)
