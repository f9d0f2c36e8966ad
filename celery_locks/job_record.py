"""``JobRecord``: reads and writes the record of a job in the store, by compare-and-set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from django_redis_locks import locks
from django_redis_locks.job_schema import SHOWN_AS

from .job import parse_job

LISTED_AS_QUEUED: Final = "queued"

_SHOW_IN_ADMIN: Final[dict[str, bool | Literal["queued"]]] = {"queued": LISTED_AS_QUEUED, "held": True, "done": False}
"""By the state in the admin: in which list of the admin the record is, if any."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_redis_locks import Record, RecordRef

    from .job import Job
    from .options import Duration, TaskOptions

SENDING_LEASE: Final = 10.0
"""Lease of a reservation in seconds: how long a key stays reserved if the submitter dies before it has sent the
message. If sending takes longer, the worker still runs the message."""

REQUEUED_LEASE: Final = 60.0
"""Seconds for which a key stays reserved for a message that was requeued, which brokers deliver again at once. If that
takes longer, the worker still runs the message."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record of one key. Every change is a compare-and-set: if the record has changed since it was read, nothing is
    written, and the method returns what the record has now.

    All methods raise ``LockBackendError`` if the store can't be reached, and ``LockKeyError`` if the key holds
    something else.
    """

    ref: RecordRef

    def read(self) -> Job | None:
        """Return the job that the record has, or None."""
        return parse_job(self.ref.get())

    def peek(self) -> Job | None:
        """Return the job that the record has, or None, without its lease. Takes a fifth less time than ``read``."""
        return parse_job(self.ref.peek())

    def put(self, expected: Job | None, job: Job, expire: Duration | None, **terms: Any) -> tuple[bool, Job | None]:
        """Write a job if the record still has the expected one. Returns whether it was written, and the job that the
        record has now."""
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
        """As ``put``. The lease is renewed for as long as the returned job is referenced."""
        return self.put(expected, job, expire, renew=True, max_hold=max_hold, on_lost=lost)

    def confirm(self, reserved: Job, expire: Duration) -> None:
        """Write that the message of a reserved job was sent, if the record still has that reservation. Doesn't wait for
        the reply, since nothing depends on it."""
        self.ref.post(reserved.stored_record, reserved.fields_after_sending(), expire, LISTED_AS_QUEUED)

    def drop(self, job: Job) -> bool:
        """Delete the record if it still has this job. Return whether it had."""
        return self.ref.drop(job.stored_record).ok

    def wait_for_change(self, job: Job | None, seconds: float) -> Job | None:
        """Wait until the record no longer has this job, or for that number of seconds. Returns the job that it has
        then."""
        return parse_job(self.ref.wait_for_change(None if job is None else job.record, seconds))


def record_of(task: TaskOptions, key: str) -> JobRecord:
    """The record of a task's key, in the alias ``lock_using``."""
    # With "open" no submission waits for a store that refuses requests
    on_backend_error: Literal["open"] | None = "open" if task.lock_on_backend_error == "open" else None
    ref = locks[task.lock_using].record(key, name=task.name, on_backend_error=on_backend_error)
    return JobRecord(ref)


def run_record_of(task: TaskOptions, key: str, id: str) -> JobRecord:
    """The record of a job's run. With ``unique_until="start"`` the queued job has another record than the run, and with a
    ``lock_limit`` above 1 each task id has one."""
    if task.lock_limit > 1:
        return record_of(task, f"{key}:run:{id}")
    return record_of(task, f"{key}:run" if task.unique_until == "start" else key)
