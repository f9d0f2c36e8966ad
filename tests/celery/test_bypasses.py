"""Submissions that our `apply_async` doesn't see, and some that it sees from within a run."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.conftest import Cell


def send_task(cell: Cell, name: str, who: str) -> Any:
    """As a program without our tasks does, or one in another language."""
    stranger = type(cell.app)("stranger", set_as_current=False)
    stranger.conf.update(broker_url=cell.app.conf.broker_url, result_backend=cell.app.conf.result_backend)
    try:
        id = stranger.send_task(name, (who,)).id
    finally:
        stranger.close()
    return cell.app.AsyncResult(id)


def test_send_task_of_a_running_job_takes_its_result_or_is_revoked(cell: Cell, who: str) -> None:
    """[C49] The worker arbitrates. [C18] A singleton's second caller sees an end."""
    for kind in ("once", "single"):
        mark = f"{who}-{kind}"
        _, first, body = cell.begin(f"{kind}.early.hold", mark)
        second = send_task(cell, f"{kind}.early.hold", mark)
        cell.journal.wait(mark, "postrun", id=second.id)  # it has looked
        cell.journal.open_gate(mark)
        assert first.get(timeout=20) == body.run
        if kind == "once":
            assert second.get(timeout=20) == body.run
        else:
            with pytest.raises(TaskRevokedError):
                second.get(timeout=20)
        assert len(cell.journal.entries(mark, "begin")) == 1


def test_delay_of_a_job_that_send_task_began_is_a_duplicate(cell: Cell, who: str) -> None:
    """[C49] The job runs under the key that ours would have."""
    first = send_task(cell, "single.early.hold", who)
    cell.journal.wait(who, "begin")
    assert cell.task("single.early.hold").delay(who).id == first.id
    cell.journal.open_gate(who)
    assert first.get(timeout=20)


def test_map_and_chunks_run_each_item_without_a_lock(cell: Cell, who: str) -> None:
    """[C49] Celery calls them within a task of its own, and every item counts: also the same one twice."""
    task = cell.task("once.early.quick")
    runs = task.map([who, who, who]).apply_async().get(timeout=20)
    assert len(set(runs)) == 3
    chunks = task.chunks([(who, 1), (who, 1), (who, 2)], 2)
    runs = [run for chunk in chunks.apply_async().get(timeout=20) for run in chunk]
    assert len(set(runs)) == 3


def test_job_that_submits_itself_runs_again_after_its_end(cell: Cell, who: str) -> None:
    """[C47] Its own lock doesn't make it a duplicate, and it doesn't run beside itself."""
    task, *_ = cell.begin("once.early.again", who)
    cell.journal.wait(who, "end", count=3)
    assert cell.journal.crowd(who) == 1
    assert len(cell.journal.entries(who, "begin")) == 3
    assert task.delay(who).get(timeout=20)
