"""A child of the pool is killed: its job is free in milliseconds, whatever became of its message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from billiard.exceptions import WorkerLostError

from tests.celery.conftest import Cell, new_job

KINDS = pytest.mark.parametrize("kind", ["single", "once"])

SOON = 10.0
"""Seconds: far more than it takes, and far less than the lease of 30 s, which would free it too."""


@pytest.mark.celery
@KINDS
@pytest.mark.parametrize("ack", ["early", "late"])
def test_the_job_of_a_killed_child_can_be_submitted_again(cell: Cell, who: str, kind: str, ack: str) -> None:
    """[C5] Nothing of the task is called then. Who sees the failure can submit: the lock is freed before."""
    task = cell.task(f"{kind}.{ack}.hold")
    first = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
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
@KINDS
def test_a_job_whose_child_is_killed_runs_again_by_itself(cell: Cell, who: str, kind: str) -> None:
    """[C5] [C31] acks_late and reject_on_worker_lost: the message is back at once, and meets the lock of its dead run."""
    task = cell.task(f"{kind}.requeue.hold")
    result = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    cell.kill(body)
    _, new = cell.journal.wait(who, "begin", count=2, seconds=SOON)
    assert new.id == result.id
    assert new.fence > body.fence
    assert task.delay(who).id == result.id
    cell.journal.open_gate(who)
    assert result.get(timeout=SOON) == new.run


@pytest.mark.chaos
@pytest.mark.exact("measures the time from a death to the next run")
def test_the_next_run_begins_milliseconds_after_a_death(
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
def test_a_child_may_die_between_its_result_and_its_end(cell: Cell, who: str, ack: str) -> None:
    """[C6] Killed in on_success, when the result is stored: the job has run, it is free, and it doesn't run again."""
    task = cell.task(f"once.{ack}.dying")
    first = task.delay(who)
    run = first.get(timeout=SOON)
    second = task.delay(who)
    assert second.id != first.id
    assert second.get(timeout=SOON) != run
    assert len(cell.journal.entries(who, "begin", id=first.id)) == 1


@pytest.mark.celery
@KINDS
@pytest.mark.parametrize("ack", ["early", "late"])
@pytest.mark.parametrize("how", ["failure", "ignore", "reject", "exit"])
def test_every_end_of_a_body_frees_it(cell: Cell, who: str, kind: str, ack: str, how: str) -> None:
    """[C33] [C60] For Ignore, Reject and SystemExit no hook of the task is called."""
    task = cell.task(f"{kind}.{ack}.ending")
    first = task.delay(who, how)
    cell.journal.wait(who, "postrun", id=first.id)
    # exit ends a child, which its parent has to see; for all the others the key is free at once
    second = new_job(cell, task, who, first, arguments=(how,)) if how == "exit" else task.delay(who, how)
    assert second.id != first.id
    cell.journal.wait(who, "begin", id=second.id, seconds=SOON)
