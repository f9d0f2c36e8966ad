"""Every pool: what prefork does is shown elsewhere, these share a process between their runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell
from tests.celery.tasks import BRIEF

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("pool", ["threads", "gevent", "eventlet", "solo"])
def test_a_job_is_alone_and_renewed_in_every_pool(make_cell: Callable[..., Cell], who: str, pool: str) -> None:
    """[C24] [C26] [C59] It outlives its lease, keeps others out, and is free at its end."""
    cell = make_cell()
    cell.start(pool=pool)
    task = cell.task("single.late.brief")
    first = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    assert body.fence
    if pool != "solo":
        a_copy_stays_out(cell, who, first.id)
    cell.journal.until(lambda: cell.journal.age(body) > 1.2 * BRIEF, who, "more than the lease")
    assert task.delay(who).id == first.id
    other = task.delay(who, "other")
    if pool != "solo":
        cell.journal.wait(who, "begin", id=other.id)
    cell.journal.open_gate(who)
    assert first.get(timeout=20) == body.run
    assert other.get(timeout=20)
    after = task.delay(who)
    assert after.id != first.id
    assert after.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 3


def a_copy_stays_out(cell: Cell, who: str, task_id: str) -> None:
    """[C28] Run and copy share a process, and perhaps a thread: who runs is told by the run, not by the process."""
    cell.redeliver(task_id)
    cell.journal.wait(who, "postrun")
    assert len(cell.journal.entries(who, "begin")) == 1
