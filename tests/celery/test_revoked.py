"""Jobs that are called back before they run, while they run, or never: revoked and expired ones."""

from __future__ import annotations

import os
import signal

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.conftest import Cell, new_job
from tests.celery.tasks import EXPIRES

pytestmark = pytest.mark.celery


def test_submission_after_a_queued_job_was_revoked_is_a_new_job(cell: Cell, who: str) -> None:
    """[C9] [K5] Nothing of the task is called. A caller that has seen its revocation can submit it again."""
    cell.occupy(who)
    task = cell.task("once.early.quick")
    first = task.delay(who)
    assert task.delay(who).id == first.id
    cell.revoke(first.id)
    cell.journal.open_gate(f"{who}-busy")
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=10)
    assert {begin.id for begin in cell.journal.entries(who, "begin")} == {second.id}


def test_submission_after_a_job_was_revoked_that_no_worker_had_is_a_new_job(cell: Cell, who: str, needs_celery) -> None:
    """[C9] No worker may ever see the message. Its stored state tells."""
    needs_celery(5, 6)
    task = cell.task("single.early.quick")
    first = task.apply_async((who,), queue=f"nobody-{who}")
    cell.revoke(first.id)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=10)


@pytest.mark.parametrize(("name", "number"), [("once.early.hold", "SIGTERM"), ("single.early.hold", "SIGKILL")])
def test_running_job_that_is_terminated_is_free_when_its_child_is_gone(
    cell: Cell, who: str, name: str, number: str
) -> None:
    """[C8] Not when it is asked to go, and not only when the lease has ended."""
    task, first, body = cell.begin(name, who)
    cell.journal.write("killed", who, pids=[body.pid])
    cell.revoke(first.id, terminate=True, signal=number)
    second = new_job(cell, task, who, first)
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1


def test_body_that_ignores_its_termination_stays_alone(cell: Cell, who: str) -> None:
    """[C8] It is REVOKED for everybody, and runs on: that state is no proof of a death."""
    task, first, body = cell.begin("once.early.stubborn", who)
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


@pytest.mark.parametrize("first", [{"expires": EXPIRES}, {"countdown": 2}])
def test_submission_that_asks_for_more_time_is_run_in_that(cell: Cell, who: str, first: dict[str, float]) -> None:
    """[K7] Under the same id, once; the first message does nothing: it revokes neither the job nor its id."""
    cell.occupy(who, "early" if "expires" in first else "late")
    task = cell.task("once.early.quick")
    result = task.apply_async((who,), **first)
    assert task.delay(who).id == result.id
    cell.journal.write("submitted", who)
    (submitted,) = cell.journal.entries(who, "submitted")
    if "expires" in first:
        cell.journal.until(lambda: cell.journal.age(submitted) > EXPIRES + 0.1, who, "the end of its time")
    cell.journal.open_gate(f"{who}-busy")
    assert result.get(timeout=20)
    if "countdown" in first:
        assert cell.journal.age(submitted) < 20
        cell.journal.wait(who, "postrun", id=result.id, count=2)
    assert len(cell.journal.entries(who, "begin")) == 1
    assert result.state == "SUCCESS"


def test_submission_after_a_job_expired_is_a_new_job(cell: Cell, who: str) -> None:
    """[C11] In a queue that no worker looks into, so no state tells; or it is found too late by a worker, which revokes it and
    calls nothing of the task."""
    task = cell.task("once.early.quick")
    lost = task.apply_async((f"{who}-lost",), queue=f"nobody-{who}", expires=EXPIRES)
    assert new_job(cell, task, f"{who}-lost", lost).get(timeout=10)
    cell.occupy(who)
    first = task.apply_async((who,), expires=EXPIRES)
    cell.journal.write("submitted", who)
    (submitted,) = cell.journal.entries(who, "submitted")
    cell.journal.until(lambda: cell.journal.age(submitted) > EXPIRES + 0.1, who, "the end of its time")
    cell.journal.open_gate(f"{who}-busy")
    with pytest.raises(TaskRevokedError):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=10)
