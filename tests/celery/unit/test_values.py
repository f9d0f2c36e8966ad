"""Jobs, headers and errors: what is written is read again, and what can't be understood is told apart."""

from __future__ import annotations

import pickle

import pytest

import celery_locks
from celery_locks import DuplicateTask, IdempotencyKeyReused
from celery_locks.job import Job, read
from celery_locks.message import HEADER, Header, header_in
from django_redis_locks import LockKeyError, Record

FULL = Job(
    "done", "id", "run", 2, 5, 3, "twin", 4, "print", "spot", ("host", 7, "main", "t"), 60.0, 5.0, 6.0, "success"
)


@pytest.mark.parametrize("job", [FULL, Job("reserved", "id")])
def test_a_job_is_read_as_it_was_written(job: Job) -> None:
    record = Record(7, job.fields(), 10.0)
    assert read(record) == Job(**{**{name: getattr(job, name) for name in Job.__slots__}, "record": record})


def test_of_a_short_job_little_is_stored() -> None:
    assert Job("queued", "id").fields() == {"v": 1, "state": "queued", "id": "id"}


@pytest.mark.parametrize("fields", [{}, {"v": 2, "state": "queued", "id": "id"}, {"v": 1, "state": "queued"}])
def test_a_record_of_another_version_is_refused(fields: dict[str, object]) -> None:
    """[C46] Whatever it means, it is neither overwritten nor taken for free."""
    with pytest.raises(LockKeyError, match="same version everywhere"):
        read(Record(7, fields, 10.0))


def test_a_header_is_read_as_it_was_written() -> None:
    header = Header("k", "id", reserved=5, after="r", follow="f", line=True, turns=3, fingerprint="p")
    assert header_in({HEADER: header.written()}, "id") == header


@pytest.mark.parametrize(
    "found",
    [None, "text", {}, {"v": 2, "key": "k", "id": "id"}, {"v": 1, "key": "k", "id": "another"}, {"v": 1, "id": "id"}],
)
def test_a_header_of_another_version_counts_as_none(found: object) -> None:
    """[C46] The message is adopted. One that was inherited from another task isn't taken for one's own."""
    assert header_in({HEADER: found}, "id") is None


def test_who_runs_it() -> None:
    running = read(Record(1_700_000_000_000_000, Job("running", "id", holder=("h", 1, "t", "n")).fields(), 10.0))
    assert running is not None
    assert running.who is not None
    assert (running.who.host, running.who.pid, running.who.fence) == ("h", 1, 1_700_000_000_000_000)
    assert running.who.since == 1_700_000_000
    queued = read(Record(7, Job("queued", "id").fields(), 10.0))
    assert queued is not None
    assert queued.who is None


@pytest.mark.parametrize(
    "error",
    [
        DuplicateTask("text", task_id="id", state="queued", key="k", name="n", alias="default"),
        IdempotencyKeyReused("text", key="k", name="n", alias="default"),
    ],
)
def test_errors_pickle(error: Exception) -> None:
    """[C4] An error that doesn't ended a whole worker."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_every_public_error_is_tested_here() -> None:
    public = [getattr(celery_locks, name) for name in celery_locks.__all__]
    errors = {item for item in public if isinstance(item, type) and issubclass(item, Exception)}
    assert errors == {DuplicateTask, IdempotencyKeyReused}
