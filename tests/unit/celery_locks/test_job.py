"""The job's record: its fields, and what reading them refuses."""

from __future__ import annotations

import pytest

from celery_locks.job import Job, read
from django_redis_locks import LockKeyError, Record

FULL = Job(
    "done", "id", "run", 2, 5, 3, "twin", 4, "print", "spot", ("host", 7, "main", "t"), 60.0, 5.0, 6.0, "success"
)


@pytest.mark.parametrize("job", [FULL, Job("reserved", "id")])
def test_job_written_and_read_is_unchanged(job: Job) -> None:
    record = Record(7, job.fields(), 10.0)
    assert read(record) == Job(**{**{name: getattr(job, name) for name in Job.__slots__}, "record": record})


def test_read_without_a_record_returns_None() -> None:
    assert read(None) is None


def test_fields_with_defaults_are_left_out() -> None:
    assert Job("queued", "id").fields() == {"v": 1, "state": "queued", "id": "id"}


def test_read_of_another_version_raises_LockKeyError() -> None:
    """[C46] Such a record is neither overwritten nor taken for free."""
    for fields in ({}, {"v": 2, "state": "queued", "id": "id"}, {"v": 1, "state": "queued"}):
        with pytest.raises(LockKeyError, match="same version everywhere"):
            read(Record(7, fields, 10.0))


def test_holder_of_a_running_job_is_read_and_of_a_queued_one_is_None() -> None:
    running = read(Record(1_700_000_000_000_000, Job("running", "id", holder=("h", 1, "t", "n")).fields(), 10.0))
    assert running is not None
    assert running.who is not None
    assert (running.who.host, running.who.pid, running.who.fence) == ("h", 1, 1_700_000_000_000_000)
    assert running.who.since == 1_700_000_000
    queued = read(Record(7, Job("queued", "id").fields(), 10.0))
    assert queued is not None
    assert queued.who is None
