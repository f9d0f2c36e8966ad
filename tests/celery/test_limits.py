"""Time limits: the hard one tells everybody that the task has failed while its body is still inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from tests.celery.conftest import Cell, new_job

pytestmark = pytest.mark.celery

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@pytest.fixture
def elsewhere(cell: Cell) -> Iterator[Callable[[str], None]]:
    """`elsewhere(host)`: this worker takes no other job for now. It ends its child just then, and would come too late."""
    silenced: list[str] = []

    def silence(host: str) -> None:
        silenced.append(host)
        assert cell.app.control.cancel_consumer("celery", destination=silenced, reply=True, timeout=10)

    yield silence
    cell.app.control.add_consumer("celery", destination=silenced, reply=True, timeout=10)


@pytest.mark.chaos
@KINDS
def test_a_body_that_ignores_its_hard_limit_stays_alone(cell: Cell, elsewhere, who: str, kind: str) -> None:
    """[C7] It swallows SystemExit and lives until the SIGKILL. The next one begins after its last sign of life, and soon."""
    task = cell.task(f"{kind}.early.stubborn")
    first = task.apply_async((who,), time_limit=4)
    (body,) = cell.journal.wait(who, "begin")
    elsewhere(body.node)
    with pytest.raises(TimeLimitExceeded):
        first.get(timeout=20)
    second = new_job(cell, task, who, first, 20)
    (new,) = cell.journal.wait(who, "begin", id=second.id, seconds=15)
    cell.journal.wait(who, "alive", run=new.run, count=10)
    cell.journal.open_gate(who)
    second.get(timeout=10)
    signs = [entry.run for entry in cell.journal.entries(who, "begin", "alive", "swallowed")]
    assert signs == sorted(signs, key=[body.run, new.run].index)


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
