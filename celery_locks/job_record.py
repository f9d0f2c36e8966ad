"""Where the record of a key is, and how it changes hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from django_redis_locks import locks
from django_redis_locks.job_schema import SHOWN_AS

from .job import parse_job

_SHOW_IN_ADMIN: Final[dict[str, bool | Literal["queued"]]] = {"queued": "queued", "held": True, "done": False}
"""By the state that operators see."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_redis_locks import Record, RecordRef

    from .job import Job
    from .options import Duration, TaskOptions

SENDING_LEASE: Final = 10.0
"""Seconds for which a key stays taken by somebody who died while he sent its message. He who takes longer is not harmed:
the worker decides."""

REQUEUED_LEASE: Final = 60.0
"""Seconds for which a key stays taken for a message that the broker was told to deliver again, at once. If it comes later it
is run all the same."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record of one key. Every change is a compare-and-set, so whoever comes second sees what the first one did.

    All raise ``LockBackendError`` if the store can't be reached, and ``LockKeyError`` if something else lives under the key.
    """

    ref: RecordRef

    def read(self) -> Job | None:
        return parse_job(self.ref.get())

    def put(self, expected: Job | None, job: Job, expire: Duration | None, **terms: Any) -> tuple[bool, Job | None]:
        """Write a job over the one that is expected; whether that was there, and what is there now."""
        known = None if expected is None else expected.record
        written = self.ref.put(known, job.fields(), expire, show_in_admin=_SHOW_IN_ADMIN[SHOWN_AS[job.state]], **terms)
        return written.ok, parse_job(written.record)

    def put_renewed(
        self,
        expected: Job | None,
        job: Job,
        expire: Duration | None,
        max_hold: Duration,
        lost: Callable[[Record], object],
    ) -> tuple[bool, Job | None]:
        """As ``put``; the lease is renewed while the job that is returned is reachable."""
        return self.put(expected, job, expire, renew=True, max_hold=max_hold, on_lost=lost)

    def drop(self, job: Job) -> bool:
        return self.ref.drop(job.known).ok

    def wait_for_change(self, job: Job | None, seconds: float) -> Job | None:
        """The job once the record isn't the expected one any more, or as it is after so many seconds."""
        return parse_job(self.ref.wait_for_change(None if job is None else job.record, seconds))


def record_of(task: TaskOptions, key: str) -> JobRecord:
    """Of the key of a task. Where no alias of that name is in Django's settings, ``app.conf.redis_locks`` may have it."""
    # "open": then no submission waits for a store that refuses
    on_backend_error: Literal["open"] | None = "open" if task.lock_on_backend_error == "open" else None
    ref = locks[task.lock_using].record(key, name=task.name, on_backend_error=on_backend_error)
    return JobRecord(ref)


def run_record_of(task: TaskOptions, key: str) -> JobRecord:
    """Of the run of a job, where that isn't what makes a submission a duplicate."""
    return record_of(task, f"{key}:run" if task.unique_until == "start" else key)
