"""Time limits. At the hard one the task has failed for everybody while its body is still inside."""

from __future__ import annotations

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from tests.celery.conftest import Cell, new_job

pytestmark = pytest.mark.celery


@pytest.mark.chaos
def test_body_that_ignores_its_hard_limit_stays_alone(cell: Cell, who: str) -> None:
    """[C7] It swallows SystemExit and lives until the SIGKILL. The next run begins after its last sign of life, and soon."""
    task, first, body = cell.begin("once.early.stubborn", who, time_limit=4)
    # that worker ends its child just then, and would be late
    silenced = {"destination": [body.node], "reply": True, "timeout": 10}
    assert cell.app.control.cancel_consumer("celery", **silenced)
    try:
        with pytest.raises(TimeLimitExceeded):
            first.get(timeout=20)
        second = new_job(cell, task, who, first, 20)
        (new,) = cell.journal.wait(who, "begin", id=second.id, seconds=15)
        cell.journal.wait(who, "alive", run=new.run, count=10)
        cell.journal.open_gate(who)
        second.get(timeout=10)
    finally:
        cell.app.control.add_consumer("celery", **silenced)
    signs = [entry.run for entry in cell.journal.entries(who, "begin", "alive", "swallowed")]
    assert signs == sorted(signs, key=[body.run, new.run].index)


def test_key_is_free_at_once_after_the_soft_limit(cell: Cell, who: str) -> None:
    """[C56] Its exception comes anywhere, such as within a call to Redis."""
    task = cell.task("single.early.hold")
    first = task.apply_async((who,), soft_time_limit=1)
    with pytest.raises(SoftTimeLimitExceeded):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1
