"""Workers stop: warm, quickly, and killed. Their jobs come back, or can be submitted again."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell, new_job

pytestmark = pytest.mark.chaos


@pytest.mark.celery
def test_late_job_of_a_worker_that_quits_runs_elsewhere(
    make_cell: Callable[..., Cell], help_comes, needs_celery, who: str
) -> None:
    """[C33] SIGQUIT: the child is ended, the message is back, and finds the key free."""
    needs_celery(5, 5)  # before, Celery acknowledges it then, and calls it a failure
    cell = make_cell()
    (worker,) = cell.start(concurrency=1)
    _, result, body = cell.begin("once.late.hold", who)
    others = help_comes()
    worker.signal(signal.SIGQUIT)
    _, second = cell.journal.wait(who, "begin", count=2, seconds=10)
    assert second.node in others
    assert second.id == result.id
    assert second.fence > body.fence
    cell.journal.open_gate(who)
    assert result.get(timeout=10) == second.run
    assert cell.journal.crowd(who) == 1
    worker.ended()


@pytest.mark.celery
def test_early_job_of_a_worker_that_quits_is_lost_and_free(
    make_cell: Callable[..., Cell], help_comes, who: str
) -> None:
    """[C33] Its state is RETRY, and nothing is sent again: that isn't taken for a job that is to come."""
    cell = make_cell()
    (worker,) = cell.start(concurrency=1)
    task, first, body = cell.begin("once.early.hold", who)
    help_comes()
    cell.journal.write("killed", who, pids=[body.pid])
    worker.signal(signal.SIGQUIT)
    worker.ended()
    second = new_job(cell, task, who, first)
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1


def test_jobs_prefetched_by_a_worker_that_shuts_down_run_elsewhere(
    make_cell: Callable[..., Cell], help_comes, who: str
) -> None:
    """[C32] SIGTERM: the job ends, and those that were fetched and not begun come back marked as delivered before."""
    cell = make_cell({"conf": {"worker_prefetch_multiplier": 4}})
    (worker,) = cell.start(concurrency=1)
    task = cell.task("once.late.hold")
    results = [task.delay(who, number) for number in range(4)]
    cell.journal.wait(who, "begin")
    cell.journal.until(lambda: cell.queued(f"q-{who}") == 0, who, "an empty queue")
    worker.signal(signal.SIGTERM)
    help_comes()
    cell.journal.open_gate(who)
    runs = [result.get(timeout=20) for result in results]
    assert len(set(runs)) == 4
    assert len(cell.journal.entries(who, "begin")) == 4
    worker.ended()
