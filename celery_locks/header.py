"""What a message says of its job: the header ``celery_locks``, which survives retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .job import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER: Final = "celery_locks"


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a job where it is submitted.

    Attributes:
        key: computed once, here, so that no worker computes another one.
        id: the task's, so that a header that was merely inherited isn't taken for one's own.
        reserved: the version of the reservation; 0 if there is none.
        submitted_by: the run that submitted this job and goes on, whose end is to be awaited.
        follows: the task whose result this one is to take, instead of a run.
        retry_on_conflict: in a conflict it comes again later, whatever the task says: somebody counts on its result.
        redeliveries: how often it came again.
        is_copy: its own run went on when it came: it isn't the only message of this job.
        fingerprint: of the arguments, if they aren't the key.
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

    def as_dict(self) -> dict[str, Any]:
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
}
"""The names in the message, which other versions read."""


def header_in(headers: Mapping[str, Any] | None, task_id: str | None) -> Header | None:
    """The header of this task, if these have one that is understood. A message of another version counts as one without:
    it is adopted, never dropped."""
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
    """The message that a worker is to run: its task's id, how often that was retried, whether the broker says that it was
    delivered before (which proves nothing), and its header."""

    id: str
    retries: int = 0
    redelivered: bool = False
    header: Header | None = None
    """None if it was sent by who doesn't know of locks."""
