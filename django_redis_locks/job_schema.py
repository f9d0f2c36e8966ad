"""The format of a job's record, shared by both packages: ``celery_locks`` writes it, ``inspection`` reads it.

The key is ``job:<name of the task>:<digest of the arguments, or the user's key>``. The fields that are shown are
``id``, the id of the task; ``state``; and ``holder``, an array in the order of ``HOLDER_FIELDS``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from .core.holder import FIELDS as HOLDER_FIELDS

__all__ = ["HOLDER_FIELDS", "KIND", "SHOWN_AS", "JobState"]

KIND: Final = "job"
"""The first part of the key."""

JobState: TypeAlias = Literal["reserved", "unsure", "queued", "running", "done"]
"""``reserved``: the message is being sent; ``unsure``: the broker didn't confirm that it accepted the message."""

SHOWN_AS: Final[dict[str, Literal["queued", "held", "done"]]] = {
    "reserved": "queued",
    "unsure": "queued",
    "queued": "queued",
    "running": "held",
    "done": "done",
}
"""The state of a job in lists, for each state in its record."""
