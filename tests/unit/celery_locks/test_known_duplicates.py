"""Submissions of a job whose last submission was a duplicate."""

from __future__ import annotations

from typing import Any

from celery import Celery

from celery_locks import IdempotentTask
from celery_locks.job_record import record_of
from celery_locks.keys import key_of
from tests.probes.engine import sent_commands
from tests.unit.celery_locks.conftest import MEMORY


def double(x: int) -> int:
    return 2 * x


def test_submission_after_a_duplicate_reads_the_record_first(project_app: Celery, settings: Any) -> None:
    """When the job has ended, it is a new job."""
    settings.REDIS_LOCKS = MEMORY
    task = project_app.task(double, base=IdempotentTask, shared=False, lazy=False, ignore_result=True)
    first = task.delay(1)
    with sent_commands() as commands:
        assert {task.delay(1).id for _ in range(3)} == {first.id}
    assert commands == ["record/put", "record/get", "record/get"]
    record = record_of(task, key_of(task, (1,), {}, None)[0])
    record.ref.drop(record.ref.get())
    with sent_commands() as commands:
        assert [task.delay(1).deduplicated for _ in range(2)] == [False, True]
    assert commands == ["record/get", "record/put", "record/put", "record/put"]
