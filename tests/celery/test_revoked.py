"""Jobs that are called back before they run, while they run, or never: revoked and expired ones."""

from __future__ import annotations

import os
import signal

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.conftest import Cell, new_job
from tests.celery.tasks import EXPIRES

pytestmark = pytest.mark.celery

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@KINDS
def test_a_revoked_job_in_the_queue_is_no_job(cell: Cell, who: str, kind: str) -> None:
    """[C9] Nothing of the task is called. What is submitted afterwards is a new job."""
    cell.occupy(who)
    task = cell.task(f"{kind}.early.quick")
    first = task.delay(who)
    assert task.delay(who).id == first.id
    cell.revoke(first.id)
    cell.journal.open_gate(f"{who}-busy")
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = new_job(cell, task, who, first)  # the stored state of a queued job is looked at once in a second
    assert second.get(timeout=10)
    assert {begin.id for begin in cell.journal.entries(who, "begin")} == {second.id}


@KINDS
def test_a_job_that_was_revoked_before_any_worker_had_it_doesnt_hinder(
    cell: Cell, who: str, kind: str, needs_celery
) -> None:
    """[C9] The worker that would say so may never see it. Its stored state does."""
    needs_celery(5, 6)
    task = cell.task(f"{kind}.early.quick")
    first = task.apply_async((who,), queue=f"nobody-{who}")
    cell.revoke(first.id)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=10)


@KINDS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_running_job_that_is_terminated_is_free(cell: Cell, who: str, kind: str, number: signal.Signals) -> None:
    """[C8] As soon as its child is gone: not when it is asked to go, and not only when the lease has ended."""
    task = cell.task(f"{kind}.early.hold")
    first = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    cell.journal.write("killed", who, pids=[body.pid])
    cell.revoke(first.id, terminate=True, signal=number.name)
    second = new_job(cell, task, who, first)
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1


@KINDS
def test_a_body_that_ignores_its_termination_stays_alone(cell: Cell, who: str, kind: str) -> None:
    """[C8] It is REVOKED for everybody, and runs on: that state is no proof of a death."""
    task = cell.task(f"{kind}.early.stubborn")
    first = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    cell.journal.wait(who, "alive")
    cell.revoke(first.id, terminate=True)
    cell.journal.wait(who, "swallowed")
    task.delay(who)
    cell.journal.stays_out(who, "begin", count=2)
    cell.journal.open_gate(who)
    cell.journal.wait(who, "end")
    new_job(cell, task, who, first)
    assert cell.journal.crowd(who) == 1
    os.kill(body.pid, signal.SIGKILL)  # that child would hear the next SIGTERM otherwise than a fresh one


@pytest.mark.chaos
@KINDS
def test_a_job_that_expires_in_its_queue_is_no_job(cell: Cell, who: str, kind: str) -> None:
    """[C11] Nobody looks into that queue, so nobody tells."""
    task = cell.task(f"{kind}.early.quick")
    first = task.apply_async((who,), queue=f"nobody-{who}", expires=EXPIRES)
    assert task.delay(who).id == first.id
    second = new_job(cell, task, who, first)
    assert second.get(timeout=10)
    assert len(cell.journal.entries(who, "begin")) == 1


@KINDS
def test_a_job_that_expires_before_a_worker_has_time_is_no_job(cell: Cell, who: str, kind: str) -> None:
    """[C11] The worker that finds it too late tells, and calls nothing of the task."""
    cell.occupy(who)
    task = cell.task(f"{kind}.early.quick")
    first = task.apply_async((who,), expires=0.5)
    cell.journal.write("submitted", who)
    (submitted,) = cell.journal.entries(who, "submitted")
    cell.journal.until(lambda: cell.journal.age(submitted) > 0.6, who, "the end of its time")
    cell.journal.open_gate(f"{who}-busy")
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=10)
