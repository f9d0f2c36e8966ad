"""Submissions by many processes at once, and of every way to declare a task."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.celery.conftest import Cell
from tests.celery.declarations import FORMS
from tests.celery.nodes import ROOT
from tools.processes import with_parent


@pytest.mark.chaos
def test_200_submissions_of_four_processes_send_one_message(cell: Cell, who: str) -> None:
    """[C13] [C41] Fifty threads in each: one id, and 199 duplicates."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environment["CELERY_TESTS"] = json.dumps(cell.config)
    command = [*with_parent(), sys.executable, "-m", "tests.celery.crowd", who, "once.early.quick", "50"]
    crowd = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(4)]
    cell.journal.wait(who, "ready", count=4, seconds=60)
    cell.journal.open_gate(who)
    submitted = cell.journal.wait(who, "submitted", count=4)
    for process in crowd:
        assert process.wait(10) == 0
    assert sum(entry.count for entry in submitted) == 200
    assert len({id for entry in submitted for id in entry.ids}) == 1
    assert sum(entry.duplicates for entry in submitted) == 199
    assert cell.queued(f"nobody-{who}") == 1


def test_every_declaration_makes_a_singleton(cell: Cell, who: str) -> None:
    """[C48] A class that is registered, `base=` of both decorators, and an app's default class."""
    for form in FORMS:
        mark = f"{who}-{form}"
        task, first, _ = cell.begin(f"form.{form}", mark)
        twin = task.delay(mark)
        assert (twin.id, twin.deduplicated, first.deduplicated) == (first.id, True, False), form
        other = task.delay(mark, "other")
        cell.journal.wait(mark, "begin", count=2)
        cell.journal.open_gate(mark)
        assert first.get(timeout=20) != other.get(timeout=20)
        after = task.delay(mark)
        assert after.id != first.id
        assert after.get(timeout=20)
