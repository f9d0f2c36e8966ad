"""Submissions of a job whose last submission was a duplicate."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_locks import IdempotentTask
from celery_locks.job_record import record_of
from celery_locks.keys import key_of
from django_redis_locks import LockKeyError, locks
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
    assert commands == ["record/put", "record/peek", "record/peek"]
    record = record_of(task, key_of(task, (1,), {}, None)[0])
    record.ref.drop(record.ref.get())
    with sent_commands() as commands:
        assert [task.delay(1).deduplicated for _ in range(2)] == [False, True]
    assert commands == ["record/peek", "record/put", "record/put", "record/put"]
    job = record.read()
    assert job is not None
    assert record.put(job, job.in_state("done", ttl=60.0, retention=60.0), 60)[0]
    with sent_commands() as commands:
        assert task.delay(1).deduplicated
    assert commands == ["record/peek", "record/get"], "its end is known by the lease"


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_record_is_read_without_its_lease_by_a_plain_command(settings: Any, redis_url: str, store: str) -> None:
    settings.REDIS_LOCKS = MEMORY if store == "memory" else {"default": {"LOCATION": redis_url}}
    ref = locks.record("peeked")
    assert ref.peek() is None
    ref.put(None, {"text": "a b\r\n", "list": [1, None]})
    (peeked, read) = ref.peek(), ref.get()
    assert peeked is not None
    assert read is not None
    assert (peeked.version, peeked.fields) == (read.version, read.fields)
    with locks.lock("locked"), pytest.raises(LockKeyError, match="holds a lock"):
        locks.record("locked").peek()
