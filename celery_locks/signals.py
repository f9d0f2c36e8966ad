"""Signals, counters and log lines about jobs.

The sender of each signal is the task, and each has the argument ``task_id``. Receivers run in the process and thread
that sends the signal. Celery logs their exceptions, which don't affect the job.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from celery.utils.dispatch import Signal

if TYPE_CHECKING:
    from celery import Task

_log = logging.getLogger("celery_locks")

lock_acquired = Signal(name="lock_acquired", providing_args=["task_id", "fence"])
lock_released = Signal(name="lock_released", providing_args=["task_id", "outcome"])
lock_skipped = Signal(name="lock_skipped", providing_args=["task_id", "holder"])
lock_lost = Signal(name="lock_lost", providing_args=["task_id", "fence"])
dead_run_freed = Signal(name="dead_run_freed", providing_args=["task_id", "holder"])
duplicate_suppressed = Signal(name="duplicate_suppressed", providing_args=["task_id", "state"])
tick_suppressed = Signal(name="tick_suppressed", providing_args=["task_id"])
run_parked = Signal(name="run_parked", providing_args=["task_id", "seconds"])

_counts: Counter[tuple[str, str]] = Counter()

_QUIET: Final = ("lock_acquired", "lock_released")


def counters() -> dict[tuple[str, str], int]:
    """Return how often each signal was sent in this process, by (task name, signal name)."""
    return dict(_counts)


def log_failure(task: Task[Any, Any], id: str, doing: str, failure: Exception) -> None:
    """Log that the store failed during a step. The job continues, or is redelivered."""
    log_fields = {"lock_name": task.name, "lock_task_id": id, "lock_doing": doing}
    _log.warning("%s[%s]: the store of the locks failed during %s: %s", task.name, id, doing, failure, extra=log_fields)


def log_broker_failure(task: Task[Any, Any], id: str, failure: Exception) -> None:
    """Log that a message couldn't be redelivered. The worker repeats that until it succeeds."""
    log_fields = {"lock_name": task.name, "lock_task_id": id}
    _log.warning("%s[%s]: the broker failed, and the worker waits for it: %s", task.name, id, failure, extra=log_fields)


def log_slow_results(task: Task[Any, Any], took: float, pause: float) -> None:
    """Log that the result backend delayed a submission."""
    text = "%s: the result backend took %.1f s: no submission of this process queries it for %.0f s"
    _log.warning(text, task.name, took, pause, extra={"lock_name": task.name})


def log_ignored(task: Task[Any, Any], id: str, why: str) -> None:
    """Log that a message was ignored."""
    _log.info("%s[%s]: not run: %s", task.name, id, why, extra={"lock_name": task.name, "lock_task_id": id})


def send(signal: Signal, task: Task[Any, Any], text: str, **arguments: Any) -> None:
    """Count, log and send a signal."""
    name = str(getattr(signal, "name", ""))
    _counts[task.name, name] += 1
    level = logging.DEBUG if name in _QUIET else logging.WARNING if name == "dead_run_freed" else logging.INFO
    if _log.isEnabledFor(level):
        extra = {"lock_name": task.name, **{f"lock_{key}": value for key, value in arguments.items()}}
        _log.log(level, "%s[%s]: %s", task.name, arguments.get("task_id"), text, extra=extra)
    declared = task.app.tasks.get(task.name, task)  # receivers are connected to it, and not to ``with_options(task)``
    signal.send(sender=declared, **arguments)
