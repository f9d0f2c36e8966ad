"""Who submits: many at once, in every way to declare a task."""

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

KINDS = pytest.mark.parametrize("kind", ["single", "once"])


@pytest.mark.chaos
@KINDS
def test_a_crowd_submits_one_job(cell: Cell, who: str, kind: str) -> None:
    """[C13] [C41] Fifty threads in each of four processes: one message, one id, and 199 are told that they were not first."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environment["CELERY_TESTS"] = json.dumps(cell.config)
    command = [*with_parent(), sys.executable, "-m", "tests.celery.crowd", who, f"{kind}.early.quick", "50"]
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


@pytest.mark.parametrize("form", FORMS)
def test_every_declaration_is_a_singleton(cell: Cell, who: str, form: str) -> None:
    """[C48] A class that is registered, `base=` of both decorators, and an app's default class."""
    task = cell.task(f"form.{form}")
    first = task.delay(who)
    cell.journal.wait(who, "begin")
    twin = task.delay(who)
    assert (twin.id, twin.deduplicated, first.deduplicated) == (first.id, True, False)
    other = task.delay(who, "other")
    cell.journal.wait(who, "begin", count=2)
    cell.journal.open_gate(who)
    assert first.get(timeout=20) != other.get(timeout=20)
    after = task.delay(who)
    assert after.id != first.id
    assert after.get(timeout=20)
