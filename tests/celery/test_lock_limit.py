"""`lock_limit`: at most that many runs of a key at a time, in all workers, and permits that a death gives back."""

from __future__ import annotations

from typing import Any

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery.exceptions import TaskRevokedError

from django_redis_locks import locks
from tests.celery.conftest import Cluster

pytestmark = pytest.mark.celery

SOON = 10.0
"""Seconds: far less than the lease of 30 s."""


def permits(name: str, tag: str) -> Any:
    return locks.semaphore(f"job:{name}:{tag}:runs", limit=2)


def test_runs_of_two_workers_never_exceed_the_limit(cluster: Cluster, tag: str) -> None:
    """[L37] [K12] The other messages wait in their workers, and begin when a run ends. A retry gives its permit back."""
    results = [cluster.task("limited.late.wait_for_gate").delay(tag) for _ in range(5)]
    results += [cluster.task("limited.early.flaky").delay(tag, 1)]
    assert len({result.id for result in results}) == 6
    cluster.journal.wait(tag, "begin", count=2)
    cluster.journal.open_gate(tag)
    for result in results:
        result.get(timeout=30)
    for name in ("limited.late.wait_for_gate", "limited.early.flaky"):
        runs = [entry.run for entry in cluster.journal.entries(tag, "begin") if entry.task == name]
        signs = [entry for entry in cluster.journal.entries(tag, "begin", "end") if entry.run in runs]
        running, most = 0, 0
        for entry in signs:
            running += 1 if entry.what == "begin" else -1
            most = max(most, running)
        assert most == (2 if "wait" in name else 1)
        assert permits(name, tag).available() == 2


def test_job_is_a_duplicate_while_it_is_queued_only(cluster: Cluster, tag: str) -> None:
    """Two run. A third one finds no permit: it is skipped, and a copy of a running one isn't."""
    task, first, body = cluster.begin_job("limited.skip", tag)
    _, second, _ = cluster.begin_job("limited.skip", tag)
    assert not second.deduplicated
    third = task.delay(tag)
    with pytest.raises(TaskRevokedError):
        third.get(timeout=SOON)
    cluster.journal.open_gate(tag)
    assert first.get(timeout=SOON) == body.run != second.get(timeout=SOON)
    assert len(cluster.journal.entries(tag, "begin")) == 2
    cluster.occupy_workers(tag, "late")
    fourth, fifth = task.delay(tag), task.delay(tag)
    assert (fifth.id, fifth.deduplicated, fourth.deduplicated) == (fourth.id, True, False)
    cluster.journal.open_gate(f"{tag}-busy")
    fourth.get(timeout=SOON)


@pytest.mark.parametrize("ack", ["early", "requeue"])
def test_killed_child_gives_its_permit_back_at_once(cluster: Cluster, tag: str, ack: str) -> None:
    """[C5] [L37] Whether or not its message is redelivered."""
    name = f"limited.{ack}.wait_for_gate"
    _, _, body = cluster.begin_job(name, tag)
    cluster.begin_job(name, tag)
    cluster.kill_child(body)
    if ack == "early":
        cluster.begin_job(name, tag)
    cluster.journal.wait(tag, "begin", count=3, seconds=SOON)
    assert len(permits(name, tag).holders()) == 2
    cluster.journal.open_gate(tag)
    cluster.journal.until(lambda: permits(name, tag).available() == 2, tag, "free permits")


@pytest.mark.chaos
def test_permit_is_given_back_after_the_hard_time_limit(cluster: Cluster, tag: str) -> None:
    """[C7] The body swallows SystemExit and runs until SIGKILL."""
    name = "limited.early.ignore_exit"
    _, result, _ = cluster.begin_job(name, tag, time_limit=2)
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=20)
    assert permits(name, tag).available() == 1
    cluster.journal.until(lambda: permits(name, tag).available() == 2, tag, "a free permit", SOON)
    cluster.journal.open_gate(tag)
