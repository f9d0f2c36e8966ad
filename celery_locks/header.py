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
        after: the run that submitted this job and goes on, whose end is to be awaited.
        follow: the task whose result this one is to take, instead of a run.
        line: in a conflict it comes again later, whatever the task says: somebody counts on its result.
        turns: how often it came again.
        copy: its own run went on when it came: it isn't the only message of this job.
        fingerprint: of the arguments, if they aren't the key.
    """

    key: str
    id: str
    reserved: int = 0
    after: str = ""
    follow: str = ""
    line: bool = False
    turns: int = 0
    copy: bool = False
    fingerprint: str = ""

    def written(self) -> dict[str, Any]:
        about = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return {"v": VERSION, **about}


def header_in(headers: Mapping[str, Any] | None, task_id: str | None) -> Header | None:
    """The header of this task, if these have one that is understood. A message of another version counts as one without:
    it is adopted, never dropped."""
    found = (headers or {}).get(HEADER)
    if not isinstance(found, dict) or found.get("v") != VERSION or not task_id or found.get("id") != task_id:
        return None
    known = {name: found[name] for name in Header.__slots__ if name in found}
    try:
        return Header(**known)
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class Message:
    """The message that a worker is to run: its task's id, how often that was retried, whether the broker says that it was
    delivered before (which proves nothing), and its header."""

    id: str
    tries: int = 0
    redelivered: bool = False
    header: Header | None = None
    """None if it was sent by who doesn't know of locks."""
