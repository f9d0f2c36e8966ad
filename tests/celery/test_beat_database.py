"""[C5.5] Two beats whose schedule is in a database (django-celery-beat), stepped by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def published(kind: str) -> list[tuple[float, str]]:
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "tests.celery.beat_database", kind]
    run = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return [(round(at), by) for at, by in json.loads(run.stdout.splitlines()[-1])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["interval", "crontab", "clocked"])
def test_each_tick_is_published_once(kind: str) -> None:
    """[C36] Also by one that overslept, and after a restart."""
    runs = published(kind)
    times = [at for at, _ in runs]
    if kind == "interval":
        assert 18 <= len(runs) <= 20, runs
        assert all(54 <= later - before <= 114 for before, later in pairwise(times)), runs
    elif kind == "crontab":
        assert times == [300, 600, 900, 1200], runs
    else:
        assert times == [90], runs
