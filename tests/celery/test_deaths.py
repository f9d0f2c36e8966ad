"""A child of the pool is killed: its job is free in milliseconds, whatever became of its message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from billiard.exceptions import WorkerLostError
from celery import chord

from tests.celery.conftest import Cell, new_job

SOON = 10.0
"""Seconds: far more than it takes, and far less than the lease of 30 s, which would free it too."""


@pytest.mark.celery
@pytest.mark.parametrize("name", ["single.early.hold", "once.late.hold"])
def test_job_of_a_killed_child_can_be_submitted_again(cell: Cell, who: str, name: str) -> None:
    """[C5] Nothing of the task is called then. The lock is freed before the failure can be seen."""
    task, first, body = cell.begin(name, who)
    assert task.delay(who).id == first.id
    cell.kill(body)
    with pytest.raises(WorkerLostError):
        first.get(timeout=SOON)
    second = task.delay(who)
    assert second.id != first.id
    (new,) = cell.journal.wait(who, "begin", id=second.id, seconds=SOON)
    assert new.fence > body.fence
    cell.journal.open_gate(who)
    assert second.get(timeout=SOON) == new.run
    assert len(cell.journal.entries(who, "begin")) == 2


@pytest.mark.celery
def test_job_of_a_killed_child_runs_again_with_reject_on_worker_lost(cell: Cell, who: str) -> None:
    """[C5] [C31] The message is back at once, and meets the lock of its dead run."""
    task, result, body = cell.begin("single.requeue.hold", who)
    cell.kill(body)
    _, new = cell.journal.wait(who, "begin", count=2, seconds=SOON)
    assert new.id == result.id
    assert new.fence > body.fence
    assert task.delay(who).id == result.id
    cell.journal.open_gate(who)
    assert result.get(timeout=SOON) == new.run


@pytest.mark.chaos
@pytest.mark.exact("measures the time from a death to the next run")
def test_next_run_begins_milliseconds_after_a_death(
    cell: Cell, who: str, record_property: Callable[[str, object], None]
) -> None:
    """[C5] Twenty deaths of one job: neither the lease decides, nor the five seconds after which Celery looks by itself."""
    cell.task("once.requeue.hold").delay(who)
    for count in range(1, 21):
        cell.kill(cell.journal.wait(who, "begin", count=count, seconds=SOON)[-1])
    begins = cell.journal.wait(who, "begin", count=21, seconds=SOON)[1:]
    deaths = cell.journal.entries(who, "killed")
    gaps = sorted(begin.ms - death.ms for begin, death in zip(begins, deaths, strict=True))
    record_property("milliseconds", gaps)
    print(f"from death to the next run: median {gaps[10]} ms, p95 {gaps[18]} ms, most {gaps[-1]} ms")  # noqa: T201
    assert gaps[10] < 2000  # a busy machine; 500 for the slowest but one on a quiet one
    assert cell.journal.crowd(who) == 1


@pytest.mark.celery
@pytest.mark.parametrize("ack", ["early", "late", "requeue"])
def test_child_killed_after_its_result_is_stored_does_not_run_again(cell: Cell, who: str, ack: str) -> None:
    """[C6] Killed in on_success: the job has run, and it is free."""
    task = cell.task(f"once.{ack}.dying")
    first = task.delay(who)
    run = first.get(timeout=SOON)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=SOON) != run
    assert len(cell.journal.entries(who, "begin", id=first.id)) == 1


@pytest.mark.celery
@pytest.mark.parametrize("ack", ["early", "requeue"])
def test_job_of_a_child_killed_before_its_result_is_stored_is_not_done(cell: Cell, who: str, ack: str) -> None:
    """[K2] As without a lock: its message comes back, and is run; or it has failed, and can be submitted again."""
    task = cell.task(f"once.{ack}.deadly")
    if ack == "requeue":
        result = chord([task.s(who)])(cell.task("collect").s(who))
    else:
        with pytest.raises(WorkerLostError):
            task.delay(who).get(timeout=SOON)
        result = task.delay(who)
    assert result.get(timeout=SOON)
    assert len(cell.journal.entries(who, "begin")) == 2


@pytest.mark.celery
@pytest.mark.parametrize("ack", ["early", "late"])
def test_key_is_free_after_each_end_of_a_body(cell: Cell, who: str, ack: str) -> None:
    """[C33] [C60] For Ignore, Reject and SystemExit no hook of the task is called."""
    for how in ("failure", "ignore", "reject", "exit"):
        task = cell.task(f"single.{ack}.ending")
        first = task.delay(who, how)
        cell.journal.wait(who, "postrun", id=first.id)
        # exit ends a child, which its parent has to see; for all the others the key is free at once
        second = new_job(cell, task, who, first, arguments=(how,)) if how == "exit" else task.delay(who, how)
        assert second.id != first.id, how
        cell.journal.wait(who, "begin", id=second.id, seconds=SOON)
