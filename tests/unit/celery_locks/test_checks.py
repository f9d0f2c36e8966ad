"""Warnings about task options, at the start of a worker and by ``manage.py check``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.core.checks import run_checks

from celery_locks import IdempotentTask, SingletonTask
from celery_locks.checks import task_warnings
from django_redis_locks.cache import cached

WARNINGS: dict[str, dict[str, Any]] = {
    "celery_locks.W001": {"idempotency_ttl": 60, "ignore_result": True},
    "celery_locks.W002": {"idempotency_ttl": 90_000},
    "celery_locks.W003": {"acks_late": True, "time_limit": 4000},
    "celery_locks.W004": {"lock_redelivery_window": 60},
    "celery_locks.W005": {"lock_min_hold": 60},
    "celery_locks.W008": {"lock_limit": 2},
}


@cached("checked:{number}", ttl=60, stale=600, refresh="celery")
def report(number: int) -> int:
    return number


def body(number: int = 0) -> None: ...


def declare(app: Celery, name: str, base: type = SingletonTask, **options: Any) -> None:
    app.task(body, base=base, name=name, shared=False, lazy=False, **options)


def new_app(broker: str | None = "redis://127.0.0.1/0") -> Celery:
    return Celery("checked", broker=broker, backend="cache+memory://", set_as_current=False)


def test_each_doubtful_option_has_its_documented_warning() -> None:
    for id, options in WARNINGS.items():
        app = new_app()
        declare(app, "doubtful", **options)
        declare(app, "fine")
        app.conf.beat_schedule = {name: {"task": name, "schedule": 60.0} for name in ("doubtful", "fine", "another")}
        (found,) = task_warnings(app)
        assert found.id == id
        assert "doubtful" in found.message
    page = Path("docs/reference/checks.md").read_text()
    assert set(re.findall(r"celery_locks\.W\d+(?=` \|)", page)) == {
        *WARNINGS,
        "celery_locks.W006",
        "celery_locks.W007",
    }  # neither is about an option of a task


def test_options_of_the_app_and_of_beats_entries_are_checked() -> None:
    app = new_app()
    app.conf.redis_locks_defaults = {"idempotency_ttl": 90_000}
    declare(app, "a")
    assert {warning.id for warning in task_warnings(app)} == {"celery_locks.W002"}  # also of shared tasks
    app = new_app()
    declare(app, "a", ignore_result=True)
    calls = {"one": {"idempotency_ttl": 60}, "two": {"lock_min_hold": 60}, "three": {"lock_min_holt": 60}, "four": {}}
    app.conf.beat_schedule = {
        name: {"task": "a", "schedule": 60.0, "options": options} for name, options in calls.items()
    }
    found = {warning.id[-4:]: warning.message for warning in task_warnings(app)}
    assert set(found) == {"W001", "W005", "W007"}
    assert "in beat's entry one" in found["W001"]
    assert "there is no option lock_min_holt" in found["W007"]


def test_limits_within_the_brokers_timeout_give_no_warning() -> None:
    app = new_app()
    app.conf.broker_transport_options = {"visibility_timeout": 5000}
    declare(app, "a", acks_late=True, time_limit=4000)
    declare(app, "b", IdempotentTask, idempotency_ttl=3600)
    assert list(task_warnings(app)) == []
    app.conf.broker_url = "amqp://"
    declare(app, "c", acks_late=True, time_limit=400_000)
    assert list(task_warnings(app)) == []


def test_djangos_checks_report_the_current_app() -> None:
    app = Celery("checked", broker="redis://127.0.0.1/0")
    try:
        declare(app, "doubtful", lock_redelivery_window=60)
        assert [message.id for message in run_checks(tags=["celery_locks"])] == ["celery_locks.W004"]
    finally:
        app.close()
        Celery("default").set_current()


# Cached functions that workers refresh


def test_refresh_by_celery_without_a_broker_is_W006() -> None:
    app = new_app(broker=None)
    (found,) = task_warnings(app)
    assert found.id == "celery_locks.W006"
    assert 'has refresh="celery"' in found.message
    app.conf.broker_url = "memory://"
    assert [*task_warnings(app)] == []


def test_refresh_by_celery_without_the_load_task_is_W048(project_app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S37] A worker discards the messages of a task that it doesn't know."""

    def found() -> list[str]:
        return [message.id for message in run_checks(tags=["redis_locks"]) if message.id.endswith("W048")]

    assert found() == []
    monkeypatch.delitem(sys.modules, "celery_locks")
    assert found() == ["redis_locks.W048"]
    project_app.conf.imports = ["celery_locks"]
    assert found() == []
    project_app.conf.imports = []
    monkeypatch.delitem(sys.modules, "celery")
    assert found() == ["redis_locks.W048"]


def test_project_without_cached_functions_does_not_import_the_cache() -> None:
    program = (
        "import sys\nfrom celery import Celery\nfrom celery_locks.checks import task_warnings\n"
        "app = Celery('plain')\nassert not list(task_warnings(app))\nassert 'celery_locks.load' in app.tasks\n"
        "assert 'django_redis_locks.cache' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
