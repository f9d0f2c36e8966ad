"""Settings of a task that are derived from its options, from Celery's configuration and from the process."""

from __future__ import annotations

import os
import socket
import threading
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from django_redis_locks import clock, locks
from django_redis_locks.job_schema import HOLDER_FIELDS

from . import signals
from .options import is_unique_until_start, seconds

if TYPE_CHECKING:
    from .job import Job
    from .options import Duration, OnConflict, TaskOptions

LIMIT_GRACE: Final = 10.0
"""Seconds within which a task ends after its time limit."""

DEFAULT_VISIBILITY_TIMEOUT: Final = 3600.0
"""Seconds after which Redis and SQS redeliver an unacknowledged message, unless the transport's options say
otherwise."""

LATE_COPY_WAIT: Final = 60.0
"""Seconds for which a redelivered copy may wait in its queue."""

RESULT_DEADLINE: Final = 60.0
"""Seconds within which the result of a run is stored after its end. A job without a result after that won't have
one."""

MAX_PAUSE: Final = 30.0
"""Seconds after which a message that waits for a result, a lease or the store is redelivered at the latest."""

SLOW_BACKEND: Final = 1.0
"""Seconds without an answer after which a result backend counts as slow."""

SLOW_BACKEND_PAUSE: Final = 30.0
"""Seconds for which submissions don't query a result backend after it was slow."""

_unanswered_since: dict[str | None, float] = {}
"""The time of the oldest unanswered query of a submission, by the URL of the result backend."""


def process_digest(pid: int = 0) -> str:
    """A digest of host and pid, by which the parent of a dead process recognizes its records. The fields of
    ``METADATA`` may be disabled."""
    where = f"{socket.gethostname()}/{pid or os.getpid()}"
    return blake2b(where.encode(), digest_size=6).hexdigest()


def holder_here(task: TaskOptions) -> tuple[Any, ...]:
    """The current run as the admin shows it: the fields that ``METADATA`` names, None for the others."""
    known = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "thread": threading.current_thread().name[:40],
        "name": task.name[:80],
    }
    wanted = locks[task.lock_using].settings.metadata
    return tuple(known[name] if name in wanted else None for name in HOLDER_FIELDS) if wanted else ()


def max_hold_of(task: TaskOptions) -> Duration:
    """Seconds for which the lease of a run is renewed; -1 for ever."""
    if task.lock_max_hold is not None:
        return task.lock_max_hold
    limit = (task.request.timelimit or (None,))[0] or task.time_limit or task.app.conf.task_time_limit
    return -1 if limit is None else float(limit) + LIMIT_GRACE


def redelivery_window(task: TaskOptions) -> float:
    """Seconds for which a late copy of a message may still be delivered after the job's end."""
    if task.lock_redelivery_window is not None:
        return seconds(task.lock_redelivery_window)
    return max(_visibility(task), LATE_COPY_WAIT) if _visibility(task) else DEFAULT_VISIBILITY_TIMEOUT


def bounded_delay(task: TaskOptions, pause: float) -> float:
    """Limit the delay of a redelivery to half of the broker's visibility timeout.

    After that timeout the broker also delivers a message that still waits in a worker to another worker. Each of the
    copies would be sent again, and so the copies would multiply.
    """
    visibility = _visibility(task)
    return min(pause, visibility / 2) if visibility else pause


def _visibility(task: TaskOptions) -> float:
    """The visibility timeout in the transport's options, in seconds; 0 if there is none."""
    return float((task.app.conf.broker_transport_options or {}).get("visibility_timeout") or 0)


def conflict_policy(task: TaskOptions) -> OnConflict:
    """``lock_on_conflict``, or its default for this task."""
    if task.lock_on_conflict is not None:
        return task.lock_on_conflict
    return "retry" if is_unique_until_start(task) else task.lock_usual_conflict


def conflict_wait(task: TaskOptions, policy: OnConflict) -> float:
    """Seconds for which ``lock_on_conflict="wait"`` or ``"retry"`` waits in the worker; infinity for ever."""
    if task.lock_wait is not None:
        return seconds(task.lock_wait)
    return locks[task.lock_using].default_wait(task.name) if policy == "wait" else 0.0


def has_results(task: TaskOptions) -> bool:
    """Whether the result of another message can be read."""
    return not task.ignore_result and not type(task.backend).__name__.startswith("Disabled")


def stores_result(task: TaskOptions) -> bool:
    """Whether Celery stores the result of the current run."""
    return has_results(task) and not task.request.is_eager and not task.request.get("ignore_result")


def result_state(task: TaskOptions, id: str) -> str:
    """The state of a result; "" if the result backend can't be read."""
    try:
        return str(task.backend.get_state(id))
    except Exception:  # noqa: BLE001 - there is no result backend, or it is down: whatever its library raises
        return ""


def result_state_unless_slow(task: TaskOptions, id: str) -> str:
    """As ``result_state``, but "" at once while the result backend is slow.

    One submission of this process then waits for the backend every ``SLOW_BACKEND_PAUSE`` seconds; the others don't.
    """
    url, began = getattr(task.backend, "url", None), clock.now()
    since = _unanswered_since.setdefault(url, began)
    if SLOW_BACKEND <= began - since < SLOW_BACKEND_PAUSE:
        return ""
    if began - since >= SLOW_BACKEND_PAUSE:
        _unanswered_since[url] = began
    state = result_state(task, id)
    ended = clock.now()
    if ended - began < SLOW_BACKEND:
        _unanswered_since.pop(url, None)
    else:
        _unanswered_since[url] = ended - SLOW_BACKEND
        signals.log_slow_results(task, ended - began, SLOW_BACKEND_PAUSE)
    return state


def describe(job: Job) -> str:
    """Describe a job for messages: its id, state, age and holder."""
    if job.record is None:
        return f"{job.id} is {job.state}"
    # Versions and reservations are times of the store's clock in microseconds
    began = job.record.version if job.state == "running" else job.reserved or job.record.version
    age = max(0.0, clock.wall() - began / 1_000_000)
    return f"{job.id} is {job.state} for {age:.0f} s{'' if job.holder is None else f', held by {job.holder}'}"
