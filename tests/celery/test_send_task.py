"""Submissions that bypass our `apply_async`: `send_task`, `map` and `chunks`; and a job that submits itself."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.conftest import Cluster


def send_task(cluster: Cluster, name: str, tag: str) -> Any:
    """Submit by name, as a program without our task classes does."""
    foreign_app = type(cluster.app)("foreign_app", set_as_current=False)
    foreign_app.conf.update(broker_url=cluster.app.conf.broker_url, result_backend=cluster.app.conf.result_backend)
    try:
        id = foreign_app.send_task(name, (tag,)).id
    finally:
        foreign_app.close()
    return cluster.app.AsyncResult(id)


def test_send_task_of_a_running_idempotent_job_takes_its_result_and_of_a_singleton_is_revoked(
    cluster: Cluster, tag: str
) -> None:
    """[C49] The worker detects the duplicate. [C18] The caller of a singleton sees an end, too."""
    for kind in ("idempotent", "singleton"):
        case_tag = f"{tag}-{kind}"
        _, first, body = cluster.begin_job(f"{kind}.early.wait_for_gate", case_tag)
        second = send_task(cluster, f"{kind}.early.wait_for_gate", case_tag)
        cluster.journal.wait(case_tag, "postrun", id=second.id)  # the worker has handled the duplicate
        cluster.journal.open_gate(case_tag)
        assert first.get(timeout=20) == body.run
        if kind == "idempotent":
            assert second.get(timeout=20) == body.run
        else:
            with pytest.raises(TaskRevokedError):
                second.get(timeout=20)
        assert len(cluster.journal.entries(case_tag, "begin")) == 1


def test_delay_of_a_job_submitted_by_send_task_is_a_duplicate(cluster: Cluster, tag: str) -> None:
    """[C49] The job runs under the same key as one that was submitted by `delay`."""
    first = send_task(cluster, "singleton.early.wait_for_gate", tag)
    cluster.journal.wait(tag, "begin")
    assert cluster.task("singleton.early.wait_for_gate").delay(tag).id == first.id
    cluster.journal.open_gate(tag)
    assert first.get(timeout=20)


def test_map_and_chunks_run_each_item_without_a_lock(cluster: Cluster, tag: str) -> None:
    """[C49] Celery calls the task from a task of its own, once for each item, equal ones included."""
    task = cluster.task("idempotent.early.quick")
    runs = task.map([tag, tag, tag]).apply_async().get(timeout=20)
    assert len(set(runs)) == 3
    chunks = task.chunks([(tag, 1), (tag, 1), (tag, 2)], 2)
    runs = [run for chunk in chunks.apply_async().get(timeout=20) for run in chunk]
    assert len(set(runs)) == 3


def test_job_that_submits_itself_runs_again_after_its_end(cluster: Cluster, tag: str) -> None:
    """[C47] Its own lock doesn't make the new job a duplicate, and the two runs don't overlap."""
    task, *_ = cluster.begin_job("idempotent.early.resubmit", tag)
    cluster.journal.wait(tag, "end", count=3)
    assert cluster.journal.max_concurrency(tag) == 1
    assert len(cluster.journal.entries(tag, "begin")) == 3
    assert task.delay(tag).get(timeout=20)
