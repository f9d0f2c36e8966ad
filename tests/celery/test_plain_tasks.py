"""Control tests: plain Celery tasks, which take no lock, do overlap and run again. The other tests prevent just
that."""

from __future__ import annotations

from tests.celery.conftest import Cluster
from tests.celery.worker_process import worker_pids


def test_plain_jobs_are_shared_by_two_workers(cluster: Cluster, tag: str) -> None:
    results = [cluster.task("plain.late.wait_for_gate").delay(tag) for _ in range(4)]
    begins = cluster.journal.wait(tag, "begin", count=4)
    assert {begin.worker for begin in begins} == {worker.host for worker in cluster.workers}
    assert {begin.pid for begin in begins} == {pid for worker in cluster.workers for pid in worker_pids(worker)}
    assert cluster.journal.max_concurrency(tag) == 4
    cluster.journal.open_gate(tag)
    assert {result.get(timeout=10) for result in results} == {begin.run for begin in begins}


def test_plain_job_delivered_again_runs_again(cluster: Cluster, tag: str) -> None:
    """[C28] [C30] While it runs, and after its end."""
    _, result, _ = cluster.begin_job("plain.late.wait_for_gate", tag)
    copy = cluster.unacknowledged_message(result.id)
    cluster.redeliver(result.id)
    cluster.journal.wait(tag, "begin", count=2, id=result.id)
    assert cluster.journal.max_concurrency(tag) == 2
    cluster.journal.open_gate(tag)
    cluster.journal.wait(tag, "end", count=2)
    cluster.deliver_again(copy)
    cluster.journal.wait(tag, "begin", count=3, id=result.id)


def test_plain_job_of_a_killed_child_runs_again(cluster: Cluster, tag: str) -> None:
    """[C5]"""
    _, result, first = cluster.begin_job("plain.requeue.wait_for_gate", tag)
    cluster.kill_child(first)
    cluster.journal.wait(tag, "begin", count=2, id=result.id)
    assert cluster.journal.max_concurrency(tag) == 1
    cluster.journal.open_gate(tag)
    assert result.get(timeout=10)
