"""Serialization of a job: its record, the header of its messages, its errors."""

from __future__ import annotations

import pickle

import pytest

import celery_locks
from celery_locks import DuplicateTask, IdempotencyKeyReused
from celery_locks.header import HEADER, Header, header_in
from celery_locks.job import Job, parse_job
from django_redis_locks import LockKeyError, Record

FULL = Job(
    "done",
    "id",
    "run_id",
    2,
    5,
    3,
    "twin",
    4,
    "print",
    "spot",
    ("host", 7, "main", "t"),
    60.0,
    5.0,
    6.0,
    "success",
    7.0,
    8.0,
    True,
    9.0,
)


@pytest.mark.parametrize("job", [FULL, Job("reserved", "id")])
def test_job_written_and_read_is_unchanged(job: Job) -> None:
    record = Record(7, job.fields(), 10.0)
    assert parse_job(record) == Job(**{**{name: getattr(job, name) for name in Job.__slots__}, "record": record})


def test_fields_with_defaults_are_left_out() -> None:
    assert Job("queued", "id").fields() == {"v": 1, "state": "queued", "id": "id"}
    assert parse_job(None) is None


def test_read_of_another_version_raises_LockKeyError() -> None:
    """[C46] Such a record isn't overwritten, and doesn't count as free."""
    for fields in ({}, {"v": 2, "state": "queued", "id": "id"}, {"v": 1, "state": "queued"}):
        with pytest.raises(LockKeyError, match="same version everywhere"):
            parse_job(Record(7, fields, 10.0))


def test_holder_of_a_running_job_is_read_and_of_a_queued_one_is_None() -> None:
    running = parse_job(
        Record(1_700_000_000_000_000, Job("running", "id", holder_fields=("h", 1, "t", "n")).fields(), 10.0)
    )
    assert running is not None
    assert running.holder is not None
    assert (running.holder.host, running.holder.pid, running.holder.fence) == ("h", 1, 1_700_000_000_000_000)
    assert running.holder.since == 1_700_000_000
    queued = parse_job(Record(7, Job("queued", "id").fields(), 10.0))
    assert queued is not None
    assert queued.holder is None


def test_header_written_and_read_is_unchanged() -> None:
    header = Header(
        "k", "id", reserved=5, submitted_by="r", follows="f", retry_on_conflict=True, redeliveries=3, fingerprint="p"
    )
    assert header_in({HEADER: header.as_dict()}, "id") == header


def test_header_of_another_version_or_task_counts_as_none() -> None:
    """[C46] The message is adopted. A header inherited from another task is ignored."""
    known = {"v": 1, "key": "k", "id": "id"}
    for found in (None, "text", {}, {**known, "v": 2}, {**known, "id": "another"}, {"v": 1, "id": "id"}):
        assert header_in({HEADER: found}, "id") is None, found


ERRORS = {
    DuplicateTask: DuplicateTask("text", task_id="id", state="queued", key="k", name="n", alias="default"),
    IdempotencyKeyReused: IdempotencyKeyReused("text", key="k", name="n", alias="default"),
}


def test_every_public_error_pickles() -> None:
    """[C4] An error that can't be pickled would end the worker."""
    public = [getattr(celery_locks, name) for name in celery_locks.__all__]
    assert {item for item in public if isinstance(item, type) and issubclass(item, Exception)} == {*ERRORS}
    for error in ERRORS.values():
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
