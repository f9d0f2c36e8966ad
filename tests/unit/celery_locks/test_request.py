"""A run beyond its hard time limit, in the worker's main process: the child renews its lease until it is killed."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from celery import Celery

from celery_locks import SingletonTask, request
from celery_locks.header import HEADER
from celery_locks.job import Job
from celery_locks.job_record import run_record_of
from celery_locks.task_settings import process_digest
from tests.waiting import eventually

LEASE = 600.0


def body() -> None: ...


def test_renewal_between_the_check_and_the_kill_does_not_prolong_the_lease(settings: Any) -> None:
    """[C7] Such a renewal sets the full lease again, and would keep the key for that time."""
    settings.REDIS_LOCKS = {"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}}
    app = Celery("limits", broker="memory://", set_as_current=False)
    task = app.task(body, name="limited", base=SingletonTask, lazy=False, shared=False)
    job_record = run_record_of(task, "limited", "me")
    _, job = job_record.put(None, Job("running", "me", process=process_digest()), LEASE)
    assert job is not None
    headers = {HEADER: {"v": 1, "key": "limited", "id": "me", "reserved": 0}}
    overdue: Any = SimpleNamespace(
        task=task, worker_pid=os.getpid(), id="me", args=(), kwargs={}, _context=SimpleNamespace(headers=headers)
    )

    def left() -> float:
        now = job_record.read()
        assert now is not None
        return now.stored_record.lease_left

    request.expire_lease_soon(overdue)
    assert left() <= request.DEATH_GRACE
    job_record.ref.touch(job.stored_record, LEASE)
    eventually(lambda: left() <= request.DEATH_GRACE)
