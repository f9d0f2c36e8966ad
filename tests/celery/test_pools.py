"""Every pool: what prefork does is shown elsewhere, these share a process between their runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell

LEASE = 1.0


EVENTLET = pytest.param("eventlet", marks=pytest.mark.xfail(reason="the renewal takes its threads for tasks of a loop"))


@pytest.mark.parametrize("pool", ["threads", "gevent", EVENTLET, "solo"])
def test_a_job_is_alone_and_renewed_in_every_pool(make_cell: Callable[..., Cell], who: str, pool: str) -> None:
    """[C24] [C26] It outlives its lease, keeps others out, and is free at its end."""
    cell = make_cell(EXPIRE=LEASE)
    nodes = 1 if pool == "solo" else 2
    cell.start(nodes, pool=pool)
    task = cell.task("single.early.hold")
    first = task.delay(who)
    (body,) = cell.journal.wait(who, "begin")
    assert body.fence
    cell.journal.until(lambda: cell.journal.age(body) > 2.5 * LEASE, who, "more than the lease")
    twin = task.delay(who)
    assert twin.id == first.id
    other = task.delay(who, "other")
    if pool != "solo":
        cell.journal.wait(who, "begin", id=other.id)
    cell.journal.open_gate(who)
    assert first.get(timeout=20) == body.run
    assert other.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 2
    after = task.delay(who)
    assert after.id != first.id
    assert after.get(timeout=20)


@pytest.mark.parametrize("pool", ["threads", "gevent", "eventlet"])
def test_a_redelivered_message_meets_its_own_run_in_the_same_process(
    make_cell: Callable[..., Cell], who: str, pool: str
) -> None:
    """[C28] Run and copy share a process, and perhaps a thread: who runs is told by the run, not by the process."""
    cell = make_cell(EXPIRE=LEASE)
    cell.start(pool=pool)
    result = cell.task("once.late.hold").delay(who)
    cell.journal.wait(who, "begin")
    cell.redeliver(result.id)
    cell.journal.wait(who, "postrun")
    assert len(cell.journal.entries(who, "begin")) == 1
    cell.journal.open_gate(who)
    assert result.get(timeout=20)
    ends = len(cell.journal.entries(who, "postrun"))
    cell.journal.wait(who, "postrun", count=ends + 1)
    assert len(cell.journal.entries(who, "begin")) == 1
