"""Submissions that our `apply_async` doesn't see, and some that it sees from within a run."""

from __future__ import annotations

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.conftest import Cell

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


def send_task(cell: Cell, name: str, who: str):
    """As a program without our tasks does, or one in another language."""
    stranger = type(cell.app)("stranger", set_as_current=False)
    stranger.conf.update(broker_url=cell.app.conf.broker_url, result_backend=cell.app.conf.result_backend)
    try:
        id = stranger.send_task(name, (who,)).id
    finally:
        stranger.close()
    return cell.app.AsyncResult(id)


def test_what_a_stranger_sends_takes_the_result(cell: Cell, who: str) -> None:
    """[C49] The worker arbitrates."""
    first = cell.task("once.early.hold").delay(who)
    (body,) = cell.journal.wait(who, "begin")
    second = send_task(cell, "once.early.hold", who)
    cell.journal.wait(who, "postrun", id=second.id)  # it has looked, and comes again
    cell.journal.open_gate(who)
    assert first.get(timeout=20) == body.run
    assert second.get(timeout=20) == body.run
    assert len(cell.journal.entries(who, "begin")) == 1


def test_what_a_stranger_sends_is_skipped(cell: Cell, who: str) -> None:
    """[C49] [C18] With an end that its caller sees."""
    first = cell.task("single.early.hold").delay(who)
    cell.journal.wait(who, "begin")
    second = send_task(cell, "single.early.hold", who)
    with pytest.raises(TaskRevokedError):
        second.get(timeout=20)
    cell.journal.open_gate(who)
    assert first.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 1


@KINDS
def test_a_stranger_is_the_first(cell: Cell, who: str, kind: str) -> None:
    """[C49] Its job runs under the key that ours would have: what is submitted meanwhile is a duplicate."""
    first = send_task(cell, f"{kind}.early.hold", who)
    cell.journal.wait(who, "begin")
    assert cell.task(f"{kind}.early.hold").delay(who).id == first.id
    cell.journal.open_gate(who)
    assert first.get(timeout=20)


@KINDS
def test_map_and_chunks_run_their_items_plainly(cell: Cell, who: str, kind: str) -> None:
    """[C49] Celery calls them within a task of its own, and every item counts: also the same one twice."""
    task = cell.task(f"{kind}.early.quick")
    runs = task.map([who, who, who]).apply_async().get(timeout=20)
    assert len(set(runs)) == 3
    chunks = task.chunks([(who, 1), (who, 1), (who, 2)], 2)
    runs = [run for chunk in chunks.apply_async().get(timeout=20) for run in chunk]
    assert len(set(runs)) == 3


@KINDS
def test_a_job_submits_itself_at_its_end(cell: Cell, who: str, kind: str) -> None:
    """[C47] It isn't swallowed by its own lock, and doesn't run beside itself."""
    cell.task(f"{kind}.early.again").delay(who)
    cell.journal.wait(who, "end", count=3)
    assert cell.journal.crowd(who) == 1
    assert len(cell.journal.entries(who, "begin")) == 3
    after = cell.task(f"{kind}.early.again").delay(who)
    assert after.get(timeout=20)
