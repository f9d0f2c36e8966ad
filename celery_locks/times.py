"""``Times``: when a job's message may be run, from the options ``countdown``, ``eta`` and ``expires``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django_redis_locks import clock

from .options import TaskOptions, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import Job

TOLERANCE: Final = 1.0
"""Seconds by which two times may differ and count as the same: submitters have different clocks, and two clicks of one
user are some time apart."""


class Times(NamedTuple):
    """When a message may be run, in Unix time.

    Attributes:
        due: when the message may be run at the earliest; 0: at once.
        until: when the message expires; 0: never.
    """

    due: float = 0.0
    until: float = 0.0

    def message_ttl(self, task: TaskOptions) -> float:
        """Seconds for which a queued message blocks submissions of the same job: until ``lock_queue_ttl`` after it is
        due, or until it expires."""
        now = clock.wall() if self.due or self.until else 0.0
        ttl = seconds(task.lock_queue_ttl) + max(0.0, self.due - now if self.due else 0.0)
        return max(1.0, min(ttl, self.until - now) if self.until else ttl)

    def options(self) -> dict[str, Any]:
        """The options of ``apply_async`` for these times."""
        due, until = (datetime.fromtimestamp(moment, UTC) if moment else None for moment in self)
        return {"countdown": None, "eta": due, "expires": until}


AT_ONCE: Final = Times()
"""The times of a message that may be run at once and doesn't expire."""


def times_of(task: TaskOptions, options: Mapping[str, Any]) -> Times:
    """The times that options of ``apply_async`` ask for."""
    due = options.get("countdown") or options.get("eta")
    until = options.get("expires", task.expires)
    return Times(_timestamp(due), 0.0 if until is None else max(_timestamp(until), 1.0))


def _timestamp(option: Any) -> float:
    """The Unix time of a number of seconds from now, of a datetime or of its ISO format; 0 for None."""
    if isinstance(option, str):
        option = datetime.fromisoformat(option)
    if isinstance(option, datetime):
        return (option if option.tzinfo else option.replace(tzinfo=UTC)).timestamp()
    return 0.0 if option is None else clock.wall() + float(option)


def widened(job: Job, asked: Times) -> Times | None:
    """The times of a queued message, widened by those of a new submission: the earlier start and the later end.

    The start of a retry isn't moved. None if the queued message needs no change.
    """
    sooner = not job.retries and job.due - max(asked.due, clock.wall()) > TOLERANCE
    longer = bool(job.until) and (not asked.until or asked.until - job.until > TOLERANCE)
    if not (sooner or longer):
        return None
    until = max(job.until, asked.until) if job.until and asked.until else 0.0
    return Times(asked.due if sooner else job.due, until)
