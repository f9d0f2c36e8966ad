"""Settings of a Django project that stores task results in its database, a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.celery.worker_process import ROOT

SETTINGS = "tests.celery.django_results"

SECRET_KEY = "not a secret"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_redis_locks", "django_celery_results"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("RESULTS", ":memory:"),
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}


def migrate(environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "django", "migrate", "-v", "0"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environ}, check=True)


def state_of(database: Path, task_id: str) -> str | None:
    """The state of a task in the table of results; None if it has none."""
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        row = connection.execute(
            "SELECT status FROM django_celery_results_taskresult WHERE task_id = ?", (task_id,)
        ).fetchone()
    return row[0] if row else None
