"""Other places for results: none at all, and Django's database. (Redis is in all the other tests.)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.celery.conftest import Cell
from tests.celery.django_results import SETTINGS, migrate, state_of

pytestmark = pytest.mark.chaos


def test_without_results(make_cell: Callable[..., Cell], who: str) -> None:
    """[C30] [C51] One run per submission and per delivery; a duplicate with a callback runs on its own account, later."""
    cell = make_cell({"results": None})
    cell.start()
    for kind in ("single", "once"):
        without_results(cell, f"{who}-{kind}", kind)


def without_results(cell: Cell, who: str, kind: str) -> None:
    task = cell.task(f"{kind}.late.hold")
    first = task.delay(who)
    cell.journal.wait(who, "begin")
    assert task.delay(who).id == first.id
    copy = cell.message(first.id)
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


def test_with_results_in_djangos_database(make_cell: Callable[..., Cell], who: str, tmp_path: Path) -> None:
    """[C17] The workers are Django's: what a stranger sends takes the result that the database has, or is skipped there."""
    database = tmp_path / "results.sqlite3"
    environ = {"DJANGO_SETTINGS_MODULE": SETTINGS, "RESULTS": str(database)}
    migrate(environ)
    cell = make_cell({"results": None, "worker_results": "django-db", "environ": environ})
    cell.start()
    for kind, state in {"single": "REVOKED", "once": "SUCCESS"}.items():
        in_the_database(cell, f"{who}-{kind}", kind, state, database)


def in_the_database(cell: Cell, who: str, kind: str, state: str, database: Path) -> None:
    task = cell.task(f"{kind}.early.hold")
    first = task.delay(who)
    cell.journal.wait(who, "begin")
    assert task.delay(who).id == first.id
    stranger = cell.app.send_task(task.name, (who,), task_id=f"stranger-{who}")
    cell.journal.wait(who, "postrun", id=stranger.id)
    cell.journal.open_gate(who)
    cell.journal.wait(who, "postrun", id=first.id)
    cell.journal.until(lambda: state_of(database, stranger.id) == state, who, state, 15)
    assert state_of(database, first.id) == "SUCCESS"
    assert len(cell.journal.entries(who, "begin")) == 1
