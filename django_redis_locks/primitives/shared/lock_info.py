"""``LockInfo``: the description of a lock, job or record for the admin, the management command and ``inspection``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...core import holder as holders
from ...core.digests import digest_of
from ...core.holder import Holder
from ...core.keys import default_name
from ...core.replies import LATEST, parse_json
from ...job_schema import KIND as JOB
from ...job_schema import SHOWN_AS
from .index import FoundLatch, ListedRecord
from .mutex_steps import KIND
from .permit_steps import SEMAPHORE, PermitState
from .requests import ForeignValue
from .rwlock_steps import RWLOCK

if TYPE_CHECKING:
    from .index import Inspection

State: TypeAlias = Literal[
    "held", "overdue", "expired", "queued", "done", "closed", "open", "free", "foreign", "unclear"
]
"""The state of a lock: ``"held"``; ``"overdue"``, held for longer than its ``max_hold``; ``"expired"``, its lease ended
without a release within the last hour; ``"free"``; ``"foreign"``, its key holds a value that isn't a lock; or
``"unclear"``, a minority of the servers of a Redlock has it, so that it isn't held.

The state of a job: ``"held"`` while it runs; ``"queued"`` until it starts; or ``"done"`` while its record is kept.

The state of a latch: ``"closed"`` until it is counted down to 0, and then ``"open"``."""


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock, a record (usually of a job) or a latch, at the moment when it was read.

    Attributes:
        alias: the alias in ``REDIS_LOCKS``.
        key: the filled key, which may be personal data. A key of more than 200 bytes is shortened and ends with a hash;
            all functions here accept it in this form.
        name: the name of the lock.
        kind: "lock", "semaphore", "rwlock", "job", "record" or "latch".
        state: see ``State``.
        holder: the holder, with its fence; None unless the lock is held. Of several holders that with the first end of a
            lease.
        held_for: seconds since the lock was acquired, or since the state of the job was written; None if it is free.
        lease_left: seconds until the lease ends, negative after its end; None if it is free.
        waiting: the number of processes' queues that wait for the lock; of a fair lock, of the callers that wait.
        foreign: a description of the value that the key holds instead of a lock.
        task_id: the id of a job's task; None for locks.
        version: the version of a record; None for locks.
        left: what is left of the count of a latch; None for all others.
        holders: all holders of a semaphore or read-write lock, in the order in which their leases end; the holder of
            another lock.
        limit: the limit of a semaphore; None for others.
    """

    alias: str
    key: str
    name: str
    state: State
    kind: str = KIND
    holder: Holder | None = None
    held_for: float | None = None
    lease_left: float | None = None
    waiting: int = 0
    foreign: str = ""
    task_id: str | None = None
    version: int | None = None
    left: int | None = None
    holders: tuple[Holder, ...] = ()
    limit: int | None = None

    @property
    def digest(self) -> str:
        """The digest that log records contain instead of the key."""
        return digest_of(self.key)

    @property
    def fence(self) -> int | None:
        """The fence of the hold, or the version of the record, for a forced release. None if there is nothing to
        release."""
        if self.holder is not None:
            return self.holder.fence
        return None if self.state == "done" else self.version

    @property
    def has_permits(self) -> bool:
        """Whether it is a semaphore or a read-write lock, which may have several holders."""
        return self.kind in (SEMAPHORE, RWLOCK)

    def seconds_held(self, holder: Holder) -> float:
        """Return for how long one of the holders has held it.

        Args:
            holder: one of ``holders``.
        """
        first = min((other.since for other in self.holders), default=holder.since)
        return max(0.0, (self.held_for or 0.0) + first - holder.since)

    @property
    def since(self) -> datetime | None:
        """When the lock was acquired, or the record written, on the store's clock; None for other states."""
        if self.holder is not None:
            return datetime.fromtimestamp(self.holder.since, UTC)
        return None if self.version is None else datetime.fromtimestamp(_seconds_of(self.version), UTC)


def info_of(
    alias: str, key: str, inspection: Inspection, max_hold: Callable[[str], float], now: float = 0.0, ends: float = 0.0
) -> LockInfo:
    """Describe what was found under a key.

    Args:
        alias: the alias of the lock.
        key: the filled key.
        inspection: the result of the inspection.
        max_hold: returns the ``MAX_HOLD`` of a name, in seconds.
        now: the store's clock when the index was read; 0.0 if it wasn't.
        ends: the end of the lease in the index; 0.0 if it isn't known.
    """
    found = inspection.found
    if isinstance(found, ListedRecord):
        return _info_of_record(alias, key, inspection, found)
    if isinstance(found, FoundLatch):
        return LockInfo(
            alias,
            key,
            default_name(key),
            "closed" if found.left else "open",
            "latch",
            lease_left=found.seconds_left,
            waiting=inspection.waiting,
            left=found.left,
        )
    if isinstance(found, PermitState):
        return _info_of_permits(alias, key, inspection, found, max_hold)
    if found is None:
        ended = 0.0 < ends <= now
        return LockInfo(
            alias,
            key,
            default_name(key),
            "expired" if ended else "free",
            lease_left=ends - now if ended else None,
            waiting=inspection.waiting,
        )
    if isinstance(found, ForeignValue):
        return LockInfo(alias, key, default_name(key), "foreign", foreign=found.what, waiting=inspection.waiting)
    name = found.name or default_name(key)
    held_for = max(0.0, inspection.at - found.since)
    longest = max_hold(name) if found.max_hold is None else found.max_hold
    return LockInfo(
        alias,
        key,
        name,
        "unclear" if inspection.unclear else "overdue" if held_for > longest else "held",
        holder=found,
        held_for=held_for,
        lease_left=found.lease_left,
        waiting=inspection.waiting,
        holders=(found,),
    )


def _info_of_permits(
    alias: str, key: str, inspection: Inspection, permits: PermitState, max_hold: Callable[[str], float]
) -> LockInfo:
    """Describe permits by the hold that lasts longest, and the holder of the lease that ends first. They are overdue if
    one of the holds is."""
    limit = permits.limit if permits.kind == SEMAPHORE else None
    if not permits.holders:
        return LockInfo(alias, key, default_name(key), "free", permits.kind, waiting=inspection.waiting, limit=limit)
    first = permits.holders[0]
    name = first.name or default_name(key)
    held_for = max(0.0, inspection.at - min(holder.since for holder in permits.holders))
    usual = max_hold(name)
    overdue = any(
        inspection.at - holder.since > (usual if holder.max_hold is None else holder.max_hold)
        for holder in permits.holders
    )
    return LockInfo(
        alias,
        key,
        name,
        "overdue" if overdue else "held",
        permits.kind,
        holder=first,
        held_for=held_for,
        lease_left=permits.holders[-1].lease_left,
        waiting=inspection.waiting,
        holders=tuple(permits.holders),
        limit=limit,
    )


def _info_of_record(alias: str, key: str, inspection: Inspection, record: ListedRecord) -> LockInfo:
    """Describe a record. It is the record of a job if its fields have the id of a task and a known state. A record that
    no index lists is foreign, unless it is that of a job that is done."""
    fields = _parse_fields(record.fields)
    task_id, job_state = fields.get("id"), fields.get("state")
    state: State | None = SHOWN_AS.get(job_state) if isinstance(job_state, str) and isinstance(task_id, str) else None
    if not record.listed and state != "done":
        return LockInfo(alias, key, default_name(key), "foreign", foreign="a record", waiting=inspection.waiting)
    kind, name = JOB, _job_name(key)
    if state is None:
        state, task_id = "queued" if record.listed == "queued" else "held", None
        kind, name = "record", default_name(key)
    since = _seconds_of(record.version)
    holder: Holder | None = None
    if kind == JOB and state == "held" and isinstance(fields.get("holder"), list):
        holder = Holder(record.version, since, record.lease_left, **holders.fields_of(fields["holder"]))
        name = holder.name or name
    return LockInfo(
        alias,
        key,
        name,
        state,
        kind,
        holder=holder,
        held_for=max(0.0, inspection.at - since),
        lease_left=record.lease_left,
        waiting=inspection.waiting,
        task_id=task_id,
        version=record.version,
    )


def _seconds_of(version: int) -> float:
    """Return when a version or fence was issued, in seconds since 1970."""
    return min(version / 1e6, LATEST / 1000)


def _parse_fields(text: str) -> dict[str, Any]:
    try:
        fields = parse_json(text)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _job_name(key: str) -> str:
    """Return the default name of a job from its key, ``job:<name of the task>:<the rest>``."""
    kind, _, rest = key.partition(":")
    return default_name(rest) if kind == JOB and rest else kind
