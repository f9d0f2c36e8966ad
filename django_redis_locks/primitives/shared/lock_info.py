"""A lock, or a record that is listed, as people see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...core import holder as holders
from ...core.digests import digest_of
from ...core.holder import Holder
from ...core.keys import usual_name
from ...core.replies import LATEST, parse_json
from ...job_schema import KIND as JOB
from ...job_schema import SHOWN_AS
from ..lock import KIND
from .index import ListedRecord
from .requests import ForeignValue

if TYPE_CHECKING:
    from .index import Inspection

State: TypeAlias = Literal["held", "overdue", "expired", "queued", "done", "free", "foreign"]
"""Of a lock: it is held; held for longer than ``MAX_HOLD``; its lease ended without a release, within the last hour; it
is free; or something that is no lock of ours lives under its key. Of a job: it runs, which is held, too; it waits to
begin; or it is done, and its record is kept for a while."""


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock, as it was when its page was read; or a record: that of a job, as a rule.

    Attributes:
        alias: of ``REDIS_LOCKS``.
        key: what is locked. Of one beyond 200 bytes only the beginning is kept, and a hash of the rest: it names the
            lock here all the same. Personal data, perhaps.
        name: its label.
        kind: "lock", "job" or "record".
        state: see ``State``.
        holder: the holder, with its fence; None unless it is held.
        held_for: seconds since it was acquired; of a job since its state was written. None if it is free.
        lease_left: seconds until its lease ends, negative since it ended; None if it is free.
        waiting: the number of processes' queues that wait for it.
        foreign: what lives under the key instead of a lock.
        task_id: of a job: the id of its task.
        version: of a record.
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

    @property
    def digest(self) -> str:
        """Of its key: what log records have instead of it."""
        return digest_of(self.key)

    @property
    def fence(self) -> int | None:
        """Of the hold, or the version of a record: what a forced release names. None unless there is something to
        free."""
        if self.holder is not None:
            return self.holder.fence
        return None if self.state == "done" else self.version

    @property
    def since(self) -> datetime | None:
        """Since when it is so, on the store's clock; None unless it is held, or a record."""
        if self.holder is not None:
            return datetime.fromtimestamp(self.holder.since, UTC)
        return None if self.version is None else datetime.fromtimestamp(_seconds_of(self.version), UTC)


def info_of(
    alias: str, key: str, look: Inspection, max_hold: Callable[[str], float], now: float = 0.0, ends: float = 0.0
) -> LockInfo:
    """What was seen under a key. ``now`` and ``ends`` are of the index, where it was asked."""
    found = look.found
    if isinstance(found, ListedRecord):
        return _info_of_record(alias, key, look, found)
    if found is None:
        ended = 0.0 < ends <= now
        return LockInfo(
            alias,
            key,
            usual_name(key),
            "expired" if ended else "free",
            lease_left=ends - now if ended else None,
            waiting=look.waiting,
        )
    if isinstance(found, ForeignValue):
        return LockInfo(alias, key, usual_name(key), "foreign", foreign=found.what, waiting=look.waiting)
    name = found.name or usual_name(key)
    held_for = max(0.0, look.at - found.since)
    return LockInfo(
        alias,
        key,
        name,
        "overdue" if held_for > max_hold(name) else "held",
        holder=found,
        held_for=held_for,
        lease_left=found.lease_left,
        waiting=look.waiting,
    )


def _info_of_record(alias: str, key: str, look: Inspection, kept: ListedRecord) -> LockInfo:
    """A job has a state that we know, and the id of a task. A record that isn't listed is none of ours, unless that job
    is done."""
    fields = _parse_fields(kept.fields)
    task, word = fields.get("id"), fields.get("state")
    state: State | None = SHOWN_AS.get(word) if isinstance(word, str) and isinstance(task, str) else None
    if not kept.listed and state != "done":
        return LockInfo(alias, key, usual_name(key), "foreign", foreign="a record", waiting=look.waiting)
    kind, name = JOB, _job_name(key)
    if state is None:
        state, task = "queued" if kept.listed == "queued" else "held", None
        kind, name = "record", usual_name(key)
    since = _seconds_of(kept.version)
    holder: Holder | None = None
    if kind == JOB and state == "held" and isinstance(fields.get("holder"), list):
        holder = Holder(kept.version, since, kept.lease_left, **holders.fields_of(fields["holder"]))
        name = holder.name or name
    return LockInfo(
        alias,
        key,
        name,
        state,
        kind,
        holder=holder,
        held_for=max(0.0, look.at - since),
        lease_left=kept.lease_left,
        waiting=look.waiting,
        task_id=task,
        version=kept.version,
    )


def _seconds_of(version: int) -> float:
    """The seconds since 1970 that a version, or a fence, was given at."""
    return min(version / 1e6, LATEST / 1000)


def _parse_fields(text: str) -> dict[str, Any]:
    try:
        fields = parse_json(text)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _job_name(key: str) -> str:
    """``job:<name of the task>:<the rest>``"""
    kind, _, rest = key.partition(":")
    return usual_name(rest) if kind == JOB and rest else kind
