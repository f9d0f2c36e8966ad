"""Pools whose runs share a process. (Prefork is in all the other tests.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.celery.conftest import Cell
from tests.probes import celery as probe

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("pool", ["threads", "gevent", "eventlet", "solo"])
def test_job_is_alone_and_renewed_in_every_pool(make_cell: Callable[..., Cell], who: str, pool: str) -> None:
    """[C24] [C26] [C28] [C59] A copy stays out, though it shares a process, and perhaps a thread."""
    cell = make_cell()
    cell.start(pool=pool)
    task, first, body = cell.begin("single.late.brief", who)
    assert body.fence
    cell.journal.until_rise(lambda: probe.lease_left(task, who), who, "a renewal")
    if pool != "solo":
        cell.redeliver(first.id)
        cell.journal.wait(who, "postrun")
    assert task.delay(who).id == first.id
    other = task.delay(who, "other")
    if pool != "solo":
        cell.journal.wait(who, "begin", id=other.id)
    assert len(cell.journal.entries(who, "begin", id=first.id)) == 1
    cell.journal.open_gate(who)
    assert first.get(timeout=20) == body.run
    assert other.get(timeout=20)
    after = task.delay(who)
    assert after.id != first.id
    assert after.get(timeout=20)
    assert len(cell.journal.entries(who, "begin")) == 3
