"""[C5.5] Two beats whose schedule is in a database (django-celery-beat), stepped by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_each_tick_of_a_database_schedule_is_published_once() -> None:
    """[C36] Also by a beat that overslept, and after a restart."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "tests.unit.celery_locks.beat_database"]
    run = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    runs = json.loads(run.stdout.splitlines()[-1])
    times = {kind: [round(at) for at, _ in found] for kind, found in runs.items()}
    assert 18 <= len(times["interval"]) <= 20, runs
    assert all(54 <= later - before <= 114 for before, later in pairwise(times["interval"])), runs
    assert times["crontab"] == [300, 600, 900, 1200], runs
    assert times["clocked"] == [92], runs
