"""What a task's options, Celery's and the process come to."""

from __future__ import annotations

import os
import socket
import threading
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from django_redis_locks import clock, locks
from django_redis_locks.job_schema import HOLDER_FIELDS

from . import signals
from .options import seconds

if TYPE_CHECKING:
    from .job import Job
    from .options import Duration, OnConflict, TaskOptions

LIMIT_GRACE: Final = 10.0
"""Seconds that a task may take to end after its time limit."""

DEFAULT_VISIBILITY_TIMEOUT: Final = 3600.0
"""Seconds after which Redis and SQS deliver once more what wasn't acknowledged, unless the transport's options say
otherwise."""

LATE_COPY_WAIT: Final = 60.0
"""Seconds that a copy may wait in its queue after it was delivered again."""


RESULT_DEADLINE: Final = 60.0
"""Seconds after which a job that is done, and has no result, won't have one."""

SLOW_BACKEND: Final = 1.0
"""Seconds after which a result backend that hasn't answered counts as slow."""

SLOW_BACKEND_PAUSE: Final = 30.0
"""Seconds for which submissions don't ask a slow result backend again."""

_unanswered_since: dict[str | None, float] = {}
"""By the URL of a result backend: since when an answer to a submission is outstanding."""


def process_digest(pid: int = 0) -> str:
    """Names a process, so that its parent finds what it held when it died; whatever ``METADATA`` says."""
    where = f"{socket.gethostname()}/{pid or os.getpid()}"
    return blake2b(where.encode(), digest_size=6).hexdigest()


def holder_here(task: TaskOptions) -> tuple[Any, ...]:
    """The holder as operators see it, as far as ``METADATA`` says."""
    known = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "thread": threading.current_thread().name[:40],
        "name": task.name[:80],
    }
    wanted = locks[task.lock_using].settings.metadata
    return tuple(known[name] if name in wanted else None for name in HOLDER_FIELDS) if wanted else ()


def max_hold_of(task: TaskOptions) -> Duration:
    """For so many seconds its lease is renewed; -1 for ever."""
    if task.lock_max_hold is not None:
        return task.lock_max_hold
    limit = (task.request.timelimit or (None,))[0] or task.time_limit or task.app.conf.task_time_limit
    return -1 if limit is None else float(limit) + LIMIT_GRACE


def redelivery_window(task: TaskOptions) -> float:
    """Seconds for which a late copy of a message may still come."""
    if task.lock_redelivery_window is not None:
        return seconds(task.lock_redelivery_window)
    return max(_visibility(task), LATE_COPY_WAIT) if _visibility(task) else DEFAULT_VISIBILITY_TIMEOUT


def bounded_delay(task: TaskOptions, pause: float) -> float:
    """Seconds after which a message comes again. One that waits in a worker for longer than the broker's visibility timeout
    is delivered to others meanwhile, and each of the copies would come again by itself: they would multiply."""
    visibility = _visibility(task)
    return min(pause, visibility / 2) if visibility else pause


def _visibility(task: TaskOptions) -> float:
    """What the transport's options say; 0 if nothing."""
    return float((task.app.conf.broker_transport_options or {}).get("visibility_timeout") or 0)


def conflict_policy(task: TaskOptions) -> OnConflict:
    """What ``lock_on_conflict`` says, or means."""
    if task.lock_on_conflict is not None:
        return task.lock_on_conflict
    return "retry" if task.unique_until == "start" else task.lock_usual_conflict


def conflict_wait(task: TaskOptions) -> float:
    """Seconds for which ``lock_on_conflict="wait"`` waits; infinity for ever."""
    return locks[task.lock_using].default_wait(task.name) if task.lock_wait is None else seconds(task.lock_wait)


def has_results(task: TaskOptions) -> bool:
    """Whether the result of another message can be read."""
    return not task.ignore_result and not type(task.backend).__name__.startswith("Disabled")


def stores_result(task: TaskOptions) -> bool:
    """Whether Celery stores the result of the run that goes on."""
    return has_results(task) and not task.request.is_eager and not task.request.get("ignore_result")


def result_state(task: TaskOptions, id: str) -> str:
    """The state of a result; "" if the result backend doesn't say."""
    try:
        return str(task.backend.get_state(id))
    except Exception:  # noqa: BLE001 - there is no result backend, or it is down: whatever its library raises
        return ""


def result_state_unless_slow(task: TaskOptions, id: str) -> str:
    """As ``result_state``, and "" at once while the result backend is slow: then one submission of this process waits for it
    every 30 s, and the others don't."""
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


def who(job: Job) -> str:
    """For messages: its state, for how long, and who runs it. Versions are the store's clock in microseconds."""
    if job.record is None:
        return f"{job.id} is {job.state}"
    began = job.record.version if job.state == "running" else job.reserved or job.record.version
    age = max(0.0, clock.wall() - began / 1_000_000)
    return f"{job.id} is {job.state} for {age:.0f} s{'' if job.who is None else f', held by {job.who}'}"
