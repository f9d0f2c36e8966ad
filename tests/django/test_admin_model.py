"""The model without a table: what Django does with all models must work with it too."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command

from django_redis_locks import locks
from django_redis_locks.models import HeldLock

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_redis_locks"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    REDIS_LOCKS={"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}},
)
django.setup()

from django.core.management import call_command
from django.db import connection

call_command("makemigrations", check=True, dry_run=True, verbosity=0)
call_command("check", fail_level="ERROR")
for _ in range(2):
    call_command("migrate", verbosity=0)
assert not [table for table in connection.introspection.table_names() if "lock" in table]
call_command("dumpdata", output="all.json", use_base_manager=True, verbosity=0)
call_command("dumpdata", "django_redis_locks", verbosity=0)
call_command("flush", interactive=False, verbosity=0)
call_command("loaddata", "all.json", verbosity=0)
"""


def test_model_needs_no_migration_and_no_table(tmp_path: Path) -> None:
    """[D55] [D56] `makemigrations --check` finds nothing to do, `migrate` makes no table, and `dumpdata`, `flush` and
    `loaddata` don't look for one. All of it in a project without the admin. An empty package of migrations would ask
    each project to make one."""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], cwd=tmp_path, check=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert not (ROOT / "django_redis_locks" / "migrations").exists()


@pytest.mark.django_db
def test_dumpdata_beside_a_held_lock_has_no_row() -> None:
    """[D55] A lock is no row: with and without `--all`."""
    for options in ([], ["--all"]):
        out = StringIO()
        with locks.lock("order:42"):
            call_command("dumpdata", *options, stdout=out)
        assert not [row for row in json.loads(out.getvalue()) if row["model"] == "django_redis_locks.heldlock"]
    assert not HeldLock.objects.exists()
    assert not HeldLock._base_manager.count()


@pytest.mark.django_db
def test_model_has_the_permissions_to_view_and_to_release() -> None:
    """[F24] And the app a name for people."""
    content_type = ContentType.objects.get(app_label="django_redis_locks", model="heldlock")
    found = Permission.objects.filter(content_type=content_type).values_list("codename", flat=True)
    assert sorted(found) == ["force_release_heldlock", "view_heldlock"]
    assert str(apps.get_app_config("django_redis_locks").verbose_name) == "Redis locks"
