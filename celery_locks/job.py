"""A job as its record tells it."""

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
    "first": "from",
    "merged_id": "twin",
    "last_success": "past",
    "fingerprint": "args",
    "process": "spot",
    "retention": "keep",
    "min_hold_left": "rest",
    "awaited": "counted",
    "late_until": "late",
}
"""Names in the record that differ: it is kept for an hour after its job."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the record of a key says. Times are seconds.

    Attributes:
        state: see ``JobState``.
        id: of its task.
        run: of the run that goes on, so that a run is told from a copy of itself.
        retries: Celery's retries so far.
        reserved: the version of its reservation; 0 if it was never reserved.
        first: that of the first reservation in a row of replaced ones.
        merged_id: another message of the same job, whose run this one stands for.
        last_success: the largest reservation of a job of this key that succeeded: a message with a smaller one comes too late.
        fingerprint: of its arguments, if they aren't its key.
        process: the process that runs it, as its parent can name it; of a job that is done: the one that stores its result, as
            long as that isn't known to be stored.
        holder: host, pid, thread and name of what runs it.
        retention: how long the record was to be kept when the job was done.
        min_hold_left: so long after its end nothing else of this key runs.
        ttl: so long after its end its result is the answer to new submissions.
        outcome: of a job that is done.
        due: since 1970: from then on the message that is queued may be run; 0: at once.
        until: since 1970: then that message is dropped; 0: never.
        awaited: a caller or a canvas waits for this very task, by options that only its first message has.
        late_until: since 1970: until then messages may come whose place others have taken.
        record: as it was read.
    """

    state: JobState
    id: str
    run: str = ""
    retries: int = 0
    reserved: int = 0
    first: int = 0
    merged_id: str = ""
    last_success: int = 0
    fingerprint: str = ""
    process: str = ""
    holder: tuple[Any, ...] = ()
    retention: float = 0.0
    min_hold_left: float = 0.0
    ttl: float = 0.0
    outcome: Outcome = ""
    due: float = 0.0
    until: float = 0.0
    awaited: bool = False
    late_until: float = 0.0
    record: Record | None = None

    def fields(self) -> dict[str, Any]:
        """What is written: only what is said."""
        return {"v": VERSION, **{short: value for name, short in _NAMES.items() if (value := getattr(self, name))}}

    def in_state(self, state: JobState, **changes: Any) -> Self:
        """The same job in another state."""
        return replace(self, state=state, record=None, **changes)

    def requeued(self) -> Self:
        """It runs no more, and its message comes back."""
        return self.in_state(
            "queued", run="", process="", holder=(), retention=0.0, min_hold_left=0.0, ttl=0.0, outcome=""
        )

    @property
    def known(self) -> Record:
        assert self.record is not None  # noqa: S101 - it was read
        return self.record

    @property
    def reservation(self) -> int:
        """The version of its reservation, which is its record's own as long as its message is being sent."""
        return self.reserved or (self.known.version if self.state in WAITING else 0)

    @property
    def sent(self) -> bool:
        """Whether there is a message of it, as far as is known."""
        return self.state not in ("reserved", "unsure")

    @property
    def age(self) -> float:
        """Seconds since it was done, by the store's clock."""
        return max(0.0, self.retention - self.known.lease_left)

    @property
    def in_min_hold(self) -> bool:
        return self.state == "done" and self.age < self.min_hold_left

    @property
    def left(self) -> float:
        """Seconds until its key is free, if nobody does anything about it."""
        return max(0.0, self.min_hold_left - self.age) if self.state == "done" else self.known.lease_left

    @property
    def answers(self) -> bool:
        """Done, and its result is still the answer."""
        return self.state == "done" and self.age < self.ttl

    @property
    def who(self) -> Holder | None:
        """What runs it."""
        if self.record is None or self.state != "running":
            return None
        since = self.record.version / 1_000_000
        about = dict(zip(HOLDER_FIELDS, self.holder, strict=False))
        return Holder(self.record.version, since, self.record.lease_left, **about)


def parse_job(record: Record | None) -> Job | None:
    """The job of a record.

    Raises:
        LockKeyError: it isn't one that this version understands.
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
    values["holder"] = tuple(values.get("holder", ()))
    return Job(record=record, **values)


_NAMES: Final = {field.name: _STORED_AS.get(field.name, field.name) for field in fields(Job) if field.name != "record"}
