"""Workers go: in good order, in haste, and without a word. What they held comes back, or can be submitted again."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell, new_job

pytestmark = pytest.mark.chaos

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@pytest.mark.celery
def test_in_haste_a_late_job_runs_elsewhere(make_cell: Callable[..., Cell], help_comes, needs_celery, who: str) -> None:
    """[C33] SIGQUIT: the child is ended, the message is back, and finds the key free."""
    needs_celery(5, 5)  # before, Celery acknowledges it then, and calls it a failure
    cell = make_cell()
    (hasty,) = cell.start(concurrency=1)
    result = cell.task("once.late.hold").delay(who)
    (body,) = cell.journal.wait(who, "begin")
    others = help_comes()
    hasty.signal(signal.SIGQUIT)
    _, second = cell.journal.wait(who, "begin", count=2, seconds=10)
    assert second.node in others
    assert second.id == result.id
    assert second.fence > body.fence
    cell.journal.open_gate(who)
    assert result.get(timeout=10) == second.run
    assert cell.journal.crowd(who) == 1
    hasty.ended()


@pytest.mark.celery
def test_in_haste_an_early_job_is_lost_and_free(make_cell: Callable[..., Cell], help_comes, who: str) -> None:
    """[C33] Its state is RETRY, and nothing is sent again: that isn't taken for a job that is to come."""
    cell = make_cell()
    (hasty,) = cell.start(concurrency=1)
    first = cell.task("once.early.hold").delay(who)
    (body,) = cell.journal.wait(who, "begin")
    help_comes()
    cell.journal.write("killed", who, pids=[body.pid])
    hasty.signal(signal.SIGQUIT)
    hasty.ended()
    second = new_job(cell, cell.task("once.early.hold"), who, first)
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1


@pytest.mark.parametrize("ack", ["early", "late"])
def test_in_good_order_what_was_fetched_runs_elsewhere(
    make_cell: Callable[..., Cell], help_comes, who: str, ack: str
) -> None:
    """[C32] SIGTERM: the job ends, and those that were fetched and not begun come back marked as delivered before."""
    cell = make_cell({"conf": {"worker_prefetch_multiplier": 4}})
    (leaving,) = cell.start(concurrency=1)
    task = cell.task(f"once.{ack}.hold")
    results = [task.delay(who, number) for number in range(4)]
    cell.journal.wait(who, "begin")
    cell.journal.until(lambda: cell.queued(f"q-{who}") == 0, who, "an empty queue")
    leaving.signal(signal.SIGTERM)
    help_comes()
    cell.journal.open_gate(who)
    runs = [result.get(timeout=20) for result in results]
    assert len(set(runs)) == 4
    assert len(cell.journal.entries(who, "begin")) == 4
    leaving.ended()


@KINDS
def test_a_node_that_dies_gives_its_job_back_with_the_lease(
    make_cell: Callable[..., Cell], help_comes, who: str, kind: str
) -> None:
    """[C31] The message is back before the lease has ended: it waits, and is neither skipped nor lost."""
    cell = make_cell()
    cell.start(concurrency=1)
    task = cell.task(f"{kind}.late.brief")
    result = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    help_comes()
    cell.kill_node(body)
    cell.redeliver(result.id)
    assert task.delay(who).id == result.id
    _, second = cell.journal.wait(who, "begin", count=2)
    assert second.id == result.id
    assert second.fence > body.fence
    cell.journal.open_gate(who)
    assert result.get(timeout=10) == second.run
    assert cell.journal.crowd(who) == 1


def test_an_early_job_that_died_with_its_node_can_be_submitted_again(
    make_cell: Callable[..., Cell], help_comes, who: str
) -> None:
    """[C31] When its lease has ended."""
    cell = make_cell()
    cell.start(concurrency=1)
    first = cell.task("once.early.brief").delay(who)
    (body,) = cell.journal.wait(who, "begin")
    help_comes()
    cell.kill_node(body)
    second = new_job(cell, cell.task("once.early.brief"), who, first, 20)
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1
