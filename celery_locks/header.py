"""``Header``: the message header ``celery_locks``, which describes a job and is kept in retries and redeliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .job import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER: Final = "celery_locks"


@dataclass(slots=True, unsafe_hash=True)
class Header:
    """The submitter's description of a job. Immutable by convention, as a ``Job``.

    Attributes:
        key: the key of the job. Only the submitter computes it, so that workers can't compute a different one.
        id: the id of the task. A header with another id was inherited from another message.
        reserved: the record's version at the reservation; 0 if there is none.
        submitted_by: the id of the run that submitted this job for its own key; the job waits for the end of that run.
        follows: the id of the task that gives this one its result, instead of a run.
        retry_on_conflict: redeliver it in a conflict, regardless of ``lock_on_conflict``: a caller waits for its
            result.
        redeliveries: how often this message was redelivered by ``celery_locks``.
        is_copy: the job's run was active when this message was delivered, so the job has another message.
        fingerprint: digest of the arguments, if they aren't the key.
        options: the options of the lock that this call has in place of the task's own.
    """

    key: str
    id: str
    reserved: int = 0
    submitted_by: str = ""
    follows: str = ""
    retry_on_conflict: bool = False
    redeliveries: int = 0
    is_copy: bool = False
    fingerprint: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the header as a message carries it, without empty fields."""
        return {"v": VERSION, **{sent: value for name, sent in _SENT_AS.items() if (value := getattr(self, name))}}


_SENT_AS: Final = {
    "key": "key",
    "id": "id",
    "reserved": "reserved",
    "submitted_by": "after",
    "follows": "follow",
    "retry_on_conflict": "line",
    "redeliveries": "turns",
    "is_copy": "copy",
    "fingerprint": "fingerprint",
    "options": "options",
}
"""By attribute: the name in the message. Other versions read these names."""


def header_in(headers: Mapping[str, Any] | None, task_id: str | None) -> Header | None:
    """The header of this task in the headers of a message.

    None if there is none, or one of another task or another version. A worker makes a new header for such a message,
    and never drops it.
    """
    found = (headers or {}).get(HEADER)
    if not isinstance(found, dict) or found.get("v") != VERSION or not task_id or found.get("id") != task_id:
        return None
    known = {name: found[sent] for name, sent in _SENT_AS.items() if sent in found}
    try:
        return Header(**known)
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a worker received.

    Attributes:
        id: the id of the task.
        retries: Celery's retries so far.
        redelivered: the broker's flag that it was delivered before. Some brokers set it for first deliveries, too.
        header: see ``Header``; None if the sender doesn't use ``celery_locks``.
    """

    id: str
    retries: int = 0
    redelivered: bool = False
    header: Header | None = None
