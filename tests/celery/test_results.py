"""Other places for results: none at all, and Django's database. (Redis is in all the other tests.)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.celery.conftest import Cell
from tests.celery.django_results import SETTINGS, migrate, state_of

pytestmark = pytest.mark.chaos


def test_without_results_each_submission_and_delivery_runs_once(make_cell: Callable[..., Cell], who: str) -> None:
    """[C30] [C51] A duplicate with a callback runs as a job of its own, later."""
    cell = make_cell({"results": None})
    cell.start()
    task, first, _ = cell.begin("once.late.hold", who)
    assert task.delay(who).id == first.id
    copy = cell.unacked(first.id)
    linked = task.apply_async((who,), link=cell.task("collect").s(who))
    assert linked.id != first.id
    cell.journal.wait(who, "postrun", id=linked.id)
    cell.journal.open_gate(who)
    cell.journal.wait(who, "postrun", id=first.id)
    cell.deliver(copy)
    cell.journal.wait(who, "postrun", id=first.id, count=2)
    cell.journal.wait(who, "collected")
    assert cell.journal.crowd(who) == 1
    assert len(cell.journal.entries(who, "begin", id=first.id)) == 1
    assert len(cell.journal.entries(who, "begin")) == 2


def test_results_in_djangos_database_are_taken_or_the_job_is_revoked_there(
    make_cell: Callable[..., Cell], who: str, tmp_path: Path
) -> None:
    """[C17] The workers are Django's; the duplicates come by send_task."""
    database = tmp_path / "results.sqlite3"
    environ = {"DJANGO_SETTINGS_MODULE": SETTINGS, "RESULTS": str(database)}
    migrate(environ)
    cell = make_cell({"results": None, "worker_results": "django-db", "environ": environ})
    cell.start()
    for kind, state in {"single": "REVOKED", "once": "SUCCESS"}.items():
        mark = f"{who}-{kind}"
        task, first, _ = cell.begin(f"{kind}.early.hold", mark)
        assert task.delay(mark).id == first.id
        second = cell.app.send_task(task.name, (mark,), task_id=f"second-{mark}")
        cell.journal.wait(mark, "postrun", id=second.id)
        cell.journal.open_gate(mark)
        cell.journal.wait(mark, "postrun", id=first.id)
        cell.journal.until(lambda task_id=second.id, state=state: state_of(database, task_id) == state, mark, state, 15)
        assert state_of(database, first.id) == "SUCCESS"
        assert len(cell.journal.entries(mark, "begin")) == 1
