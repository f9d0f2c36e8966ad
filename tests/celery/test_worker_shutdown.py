"""Workers shut down by SIGTERM and SIGQUIT: their jobs are redelivered, or can be submitted again."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.celery.conftest import Cluster, submit_until_new_job

pytestmark = pytest.mark.chaos


@pytest.mark.celery
def test_job_acknowledged_late_runs_elsewhere_after_sigquit(
    make_cluster: Callable[..., Cluster], add_shared_workers, needs_celery, tag: str
) -> None:
    """[C33] The child is ended, its message is redelivered, and its key is free."""
    needs_celery(5, 5)  # older versions acknowledge the message and mark the task as failed
    cluster = make_cluster()
    (worker,) = cluster.start_workers(concurrency=1)
    _, result, body = cluster.begin_job("idempotent.late.wait_for_gate", tag)
    others = add_shared_workers()
    worker.signal(signal.SIGQUIT)
    _, second = cluster.journal.wait(tag, "begin", count=2, seconds=10)
    assert second.worker in others
    assert second.id == result.id
    assert second.fence > body.fence
    cluster.journal.open_gate(tag)
    assert result.get(timeout=10) == second.run
    assert cluster.journal.max_concurrency(tag) == 1
    worker.ended()


@pytest.mark.celery
def test_job_acknowledged_early_is_lost_and_its_key_freed_after_sigquit(
    make_cluster: Callable[..., Cluster], add_shared_workers, tag: str
) -> None:
    """[C33] Its state is RETRY although no retry was sent: that isn't taken for a pending job."""
    cluster = make_cluster()
    (worker,) = cluster.start_workers(concurrency=1)
    task, first, body = cluster.begin_job("idempotent.early.wait_for_gate", tag)
    add_shared_workers()
    cluster.journal.write("killed", tag, pids=[body.pid])
    worker.signal(signal.SIGQUIT)
    worker.ended()
    second = submit_until_new_job(cluster, task, tag, first)
    cluster.journal.wait(tag, "begin", id=second.id, seconds=10)
    assert cluster.journal.max_concurrency(tag) == 1


def test_jobs_prefetched_by_a_worker_run_elsewhere_after_sigterm(
    make_cluster: Callable[..., Cluster], add_shared_workers, tag: str
) -> None:
    """[C32] The running job ends normally; prefetched messages are redelivered, marked as such."""
    cluster = make_cluster({"conf": {"worker_prefetch_multiplier": 4}})
    (worker,) = cluster.start_workers(concurrency=1)
    task = cluster.task("idempotent.late.wait_for_gate")
    results = [task.delay(tag, number) for number in range(4)]
    cluster.journal.wait(tag, "begin")
    cluster.journal.until(lambda: cluster.queue_length(f"q-{tag}") == 0, tag, "an empty queue")
    worker.signal(signal.SIGTERM)
    add_shared_workers()
    cluster.journal.open_gate(tag)
    runs = [result.get(timeout=20) for result in results]
    assert len(set(runs)) == 4
    assert len(cluster.journal.entries(tag, "begin")) == 4
    worker.ended()
