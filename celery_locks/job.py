"""``Job``: the contents of a job's record, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from django_redis_locks import Holder, LockKeyError
from django_redis_locks.job_schema import HOLDER_FIELDS, JobState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_redis_locks import Record

VERSION: Final = 1

WAITING: Final = ("reserved", "unsure", "queued")

Outcome: TypeAlias = Literal["", "success", "failure"]

_STORED_AS: Final = {
    "retries": "n",
    "reserved": "res",
    "first_reserved": "from",
    "merged_id": "twin",
    "run_id": "run",
    "last_success": "past",
    "fingerprint": "args",
    "process": "spot",
    "retention": "keep",
    "min_hold_left": "rest",
    "holder_fields": "holder",
    "awaited": "counted",
    "late_until": "late",
}
"""By attribute: its name in the record, if that differs. Records outlive their jobs by an hour, so the names stay."""


@dataclass(slots=True, unsafe_hash=True)
class Job:
    """The contents of a job's record. Immutable by convention: a frozen dataclass takes three times as long to make. Times
    are seconds.

    Attributes:
        state: see ``JobState``.
        id: the id of the task.
        run_id: the id of the current run; a redelivered copy of the message has another one.
        retries: Celery's retries so far.
        reserved: the record's version at the reservation; 0 if the job was never reserved.
        first_reserved: the first reservation in a row of reservations that replaced each other.
        merged_id: the id of another message of the same job, which this run completes too.
        last_success: the latest reservation of this key after which the job succeeded. A message with an earlier
            reservation was overtaken.
        fingerprint: digest of the arguments, if they aren't the key.
        process: digest of the process that runs the job, see ``process_digest``. Of a job that is done: of the process
            that has to store its result; empty when it has.
        holder_fields: host, pid, thread and name of the run, as far as ``METADATA`` names them.
        retention: of a job that is done: how long the record is kept after the end of the run.
        min_hold_left: how long after its end no other job of this key may run.
        ttl: how long after its end its result is the result of new submissions.
        outcome: of a job that is done.
        due: Unix time from which the queued message may be run; 0: at once.
        until: Unix time at which that message expires; 0: never.
        awaited: a caller or a canvas waits for this task id, by options that only the first message has.
        late_until: Unix time until which a message that another one replaced may still be delivered.
        permit: the fence of the run's permit, with a ``lock_limit`` above 1.
        record: the record that was read; None for a job that is to be written.
    """

    state: JobState
    id: str
    run_id: str = ""
    retries: int = 0
    reserved: int = 0
    first_reserved: int = 0
    merged_id: str = ""
    last_success: int = 0
    fingerprint: str = ""
    process: str = ""
    holder_fields: tuple[Any, ...] = ()
    retention: float = 0.0
    min_hold_left: float = 0.0
    ttl: float = 0.0
    outcome: Outcome = ""
    due: float = 0.0
    until: float = 0.0
    awaited: bool = False
    late_until: float = 0.0
    permit: int = 0
    record: Record | None = None

    def fields(self) -> dict[str, Any]:
        """The fields to write; those with their default are left out."""
        return {"v": VERSION, **{short: value for name, short in _NAMES.items() if (value := getattr(self, name))}}

    def fields_after_sending(self) -> dict[str, Any]:
        """The fields to write when the message of a reserved job was sent."""
        record = self.stored_record
        return {**record.fields, "state": "queued", _NAMES["reserved"]: record.version}

    def in_state(self, state: JobState, **changes: Any) -> Self:
        """The same job in another state."""
        return replace(self, state=state, record=None, **changes)

    def requeued(self) -> Self:
        """The same job after a run that ended without an outcome: its message is delivered again."""
        return self.in_state(
            "queued",
            run_id="",
            process="",
            holder_fields=(),
            retention=0.0,
            min_hold_left=0.0,
            ttl=0.0,
            outcome="",
            permit=0,
        )

    @property
    def stored_record(self) -> Record:
        """The record that the job was read from."""
        assert self.record is not None  # noqa: S101 - it was read
        return self.record

    @property
    def reservation(self) -> int:
        """The version of the reservation: the record's own version while the message is being sent."""
        return self.reserved or (self.stored_record.version if self.state in WAITING else 0)

    @property
    def queued_at_once(self) -> bool:
        """Whether the job is queued, may be run at once, and doesn't expire."""
        return self.state == "queued" and not self.due and not self.until

    @property
    def sent(self) -> bool:
        """Whether the broker is known to have taken a message of the job."""
        return self.state not in ("reserved", "unsure")

    @property
    def seconds_since_end(self) -> float:
        """Seconds since the end of the run, by the store's clock."""
        return max(0.0, self.retention - self.stored_record.lease_left)

    @property
    def within_min_hold(self) -> bool:
        """Whether the run has ended, and ``lock_min_hold`` keeps its key."""
        return self.state == "done" and self.seconds_since_end < self.min_hold_left

    @property
    def seconds_until_free(self) -> float:
        """Seconds until the key is free if the record isn't changed before."""
        return (
            max(0.0, self.min_hold_left - self.seconds_since_end)
            if self.state == "done"
            else self.stored_record.lease_left
        )

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same job can be submitted again if the record isn't changed before; None if it is
        queued."""
        if self.state == "done":
            return max(0.0, max(self.min_hold_left, self.ttl) - self.seconds_since_end)
        return self.stored_record.lease_left if self.state == "running" else None

    @property
    def within_ttl(self) -> bool:
        """Whether the job is done and its result is still the result of new submissions."""
        return self.state == "done" and self.seconds_since_end < self.ttl

    @property
    def holder(self) -> Holder | None:
        """The run that holds the key; None unless the job runs."""
        if self.record is None or self.state != "running":
            return None
        since = self.record.version / 1_000_000
        holder = dict(zip(HOLDER_FIELDS, self.holder_fields, strict=False))
        return Holder(self.record.version, since, self.record.lease_left, **holder)


def parse_job(record: Record | None) -> Job | None:
    """The job that a record describes, or None for None.

    Raises:
        LockKeyError: the record was written by another version of ``celery_locks``, or isn't a job's.
    """
    if record is None:
        return None
    found: Mapping[str, Any] = record.fields
    if found.get("v") != VERSION or not isinstance(found.get("id"), str):
        raise LockKeyError(
            f"the record of this job has version {found.get('v')!r}; this is celery_locks of version {VERSION}. "
            "Run the same version everywhere, or wait until the record is gone"
        )
    values = {name: found[short] for name, short in _NAMES.items() if short in found}
    values["holder_fields"] = tuple(values.get("holder_fields", ()))
    return Job(record=record, **values)


_NAMES: Final = {field.name: _STORED_AS.get(field.name, field.name) for field in fields(Job) if field.name != "record"}
