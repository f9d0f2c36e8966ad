"""Jobs that are revoked before or while they run, and jobs that expire."""

from __future__ import annotations

import os
import signal

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.conftest import Cluster, submit_until_new_job
from tests.celery.tasks import MESSAGE_EXPIRES

pytestmark = pytest.mark.celery


def test_submission_after_a_queued_job_was_revoked_is_a_new_job(cluster: Cluster, tag: str) -> None:
    """[C9] [K5] Celery calls no hook of the task. A caller that has seen the revocation can submit the job again."""
    cluster.occupy_workers(tag)
    task = cluster.task("idempotent.early.quick")
    first = task.delay(tag)
    assert task.delay(tag).id == first.id
    cluster.revoke(first.id)
    cluster.journal.open_gate(f"{tag}-busy")
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(tag)
    assert second.id != first.id
    assert second.get(timeout=10)
    assert {begin.id for begin in cluster.journal.entries(tag, "begin")} == {second.id}


def test_submission_after_a_job_in_an_unconsumed_queue_was_revoked_is_a_new_job(
    cluster: Cluster, tag: str, needs_celery
) -> None:
    """[C9] No worker receives the message; the stored state of the job shows the revocation."""
    needs_celery(5, 6)
    task = cluster.task("singleton.early.quick")
    first = task.apply_async((tag,), queue=f"unconsumed-{tag}")
    cluster.revoke(first.id)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(tag)
    assert second.id != first.id
    assert second.get(timeout=10)


@pytest.mark.parametrize(
    ("name", "number"), [("idempotent.early.wait_for_gate", "SIGTERM"), ("singleton.early.wait_for_gate", "SIGKILL")]
)
def test_key_of_a_terminated_job_is_free_when_its_child_has_ended(
    cluster: Cluster, tag: str, name: str, number: str
) -> None:
    """[C8] Neither earlier, when the signal is sent, nor later, at the end of the lease."""
    task, first, body = cluster.begin_job(name, tag)
    cluster.journal.write("killed", tag, pids=[body.pid])
    cluster.revoke(first.id, terminate=True, signal=number)
    second = submit_until_new_job(cluster, task, tag, first)
    cluster.journal.wait(tag, "begin", id=second.id, seconds=10)
    assert cluster.journal.max_concurrency(tag) == 1


def test_no_other_run_begins_while_a_body_ignores_its_termination(cluster: Cluster, tag: str) -> None:
    """[C8] Its state is REVOKED, but it still runs: the state doesn't prove that it has ended."""
    task, first, body = cluster.begin_job("idempotent.early.ignore_exit", tag)
    cluster.journal.wait(tag, "alive")
    cluster.revoke(first.id, terminate=True)
    cluster.journal.wait(tag, "swallowed")
    task.delay(tag)
    cluster.journal.assert_stays_below(tag, "begin", count=2)
    cluster.journal.open_gate(tag)
    cluster.journal.wait(tag, "end")
    submit_until_new_job(cluster, task, tag, first)
    assert cluster.journal.max_concurrency(tag) == 1
    os.kill(body.pid, signal.SIGKILL)  # the next test needs a fresh child: this one has handled a SIGTERM


@pytest.mark.parametrize("first", [{"expires": MESSAGE_EXPIRES}, {"countdown": 2}])
def test_duplicate_with_a_later_expiry_or_an_earlier_start_changes_the_job(
    cluster: Cluster, tag: str, first: dict[str, float]
) -> None:
    """[K7] The job runs once, under the same id. The first message does nothing: it doesn't revoke the job."""
    cluster.occupy_workers(tag, "early" if "expires" in first else "late")
    task = cluster.task("idempotent.early.quick")
    result = task.apply_async((tag,), **first)
    assert task.delay(tag).id == result.id
    cluster.journal.write("submitted", tag)
    (submitted,) = cluster.journal.entries(tag, "submitted")
    if "expires" in first:
        cluster.journal.until(lambda: cluster.journal.age(submitted) > MESSAGE_EXPIRES + 0.1, tag, "its expiry")
    cluster.journal.open_gate(f"{tag}-busy")
    assert result.get(timeout=20)
    if "countdown" in first:
        assert cluster.journal.age(submitted) < 20
        cluster.journal.wait(tag, "postrun", id=result.id, count=2)
    assert len(cluster.journal.entries(tag, "begin")) == 1
    assert result.state == "SUCCESS"


def test_submission_after_a_job_expired_is_a_new_job(cluster: Cluster, tag: str) -> None:
    """[C11] In a queue without a consumer, where no state shows the expiry; or received too late by a worker, which
    revokes the job without calling a hook of the task."""
    task = cluster.task("idempotent.early.quick")
    lost = task.apply_async((f"{tag}-lost",), queue=f"unconsumed-{tag}", expires=MESSAGE_EXPIRES)
    assert submit_until_new_job(cluster, task, f"{tag}-lost", lost).get(timeout=10)
    cluster.occupy_workers(tag)
    first = task.apply_async((tag,), expires=MESSAGE_EXPIRES)
    cluster.journal.write("submitted", tag)
    (submitted,) = cluster.journal.entries(tag, "submitted")
    cluster.journal.until(lambda: cluster.journal.age(submitted) > MESSAGE_EXPIRES + 0.1, tag, "its expiry")
    cluster.journal.open_gate(f"{tag}-busy")
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(tag)
    assert second.id != first.id
    assert second.get(timeout=10)
