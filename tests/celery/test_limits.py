"""Time limits: the hard one tells everybody that the task has failed while its body is still inside."""

from __future__ import annotations

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from tests.celery.conftest import Cell, new_job

pytestmark = pytest.mark.celery

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@KINDS
def test_a_body_that_ignores_its_hard_limit_stays_alone(cell: Cell, who: str, kind: str) -> None:
    """[C7] It swallows SystemExit and lives until the SIGKILL. The next one begins after its last sign of life, and soon."""
    task = cell.task(f"{kind}.early.stubborn")
    first = task.apply_async((who,), time_limit=1)
    with pytest.raises(TimeLimitExceeded):
        first.get(timeout=20)
    second = new_job(cell, task, who, first, 20)
    cell.journal.wait(who, "begin", id=second.id, seconds=15)
    cell.journal.open_gate(who)
    second.get(timeout=10)
    first_run, second_run = cell.journal.entries(who, "begin")
    signs = [entry.run for entry in cell.journal.entries(who, "begin", "alive", "swallowed")]
    assert signs == sorted(signs, key=[first_run.run, second_run.run].index)


@KINDS
def test_a_soft_limit_frees_it_at_once(cell: Cell, who: str, kind: str) -> None:
    """[C56] Its exception comes anywhere, such as within a call to Redis."""
    task = cell.task(f"{kind}.early.hold")
    first = task.apply_async((who,), soft_time_limit=1)
    with pytest.raises(SoftTimeLimitExceeded):
        first.get(timeout=20)
    second = task.delay(who)
    assert second.id != first.id
    cell.journal.wait(who, "begin", id=second.id, seconds=10)
    assert cell.journal.crowd(who) == 1
