"""Without a result backend, and with Django's database. All other tests use Redis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.celery.conftest import Cluster
from tests.celery.django_results import SETTINGS, migrate, state_of

pytestmark = pytest.mark.chaos


def test_jobs_without_a_result_backend_run_once(make_cluster: Callable[..., Cluster], tag: str) -> None:
    """[C30] [C51] A duplicate with a callback runs later as a separate job."""
    cluster = make_cluster({"results": None})
    cluster.start_workers()
    task, first, _ = cluster.begin_job("idempotent.late.wait_for_gate", tag)
    assert task.delay(tag).id == first.id
    copy = cluster.unacknowledged_message(first.id)
    linked = task.apply_async((tag,), link=cluster.task("collect").s(tag))
    assert linked.id != first.id
    cluster.journal.wait(tag, "postrun", id=linked.id)
    cluster.journal.open_gate(tag)
    cluster.journal.wait(tag, "postrun", id=first.id)
    cluster.deliver_again(copy)
    cluster.journal.wait(tag, "postrun", id=first.id, count=2)
    cluster.journal.wait(tag, "collected")
    assert cluster.journal.max_concurrency(tag) == 1
    assert len(cluster.journal.entries(tag, "begin", id=first.id)) == 1
    assert len(cluster.journal.entries(tag, "begin")) == 2


def test_duplicates_with_results_in_djangos_database_take_the_result_or_are_revoked(
    make_cluster: Callable[..., Cluster], tag: str, tmp_path: Path
) -> None:
    """[C17] The duplicates are submitted by send_task."""
    database = tmp_path / "results.sqlite3"
    environ = {"DJANGO_SETTINGS_MODULE": SETTINGS, "RESULTS": str(database)}
    migrate(environ)
    cluster = make_cluster({"results": None, "worker_results": "django-db", "environ": environ})
    cluster.start_workers()
    for kind, state in {"singleton": "REVOKED", "idempotent": "SUCCESS"}.items():
        case_tag = f"{tag}-{kind}"
        task, first, _ = cluster.begin_job(f"{kind}.early.wait_for_gate", case_tag)
        assert task.delay(case_tag).id == first.id
        second = cluster.app.send_task(task.name, (case_tag,), task_id=f"second-{case_tag}")
        cluster.journal.wait(case_tag, "postrun", id=second.id)
        cluster.journal.open_gate(case_tag)
        cluster.journal.wait(case_tag, "postrun", id=first.id)
        cluster.journal.until(
            lambda task_id=second.id, state=state: state_of(database, task_id) == state, case_tag, state, 15
        )
        assert state_of(database, first.id) == "SUCCESS"
        assert len(cluster.journal.entries(case_tag, "begin")) == 1
