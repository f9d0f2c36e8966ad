"""Warnings about the tasks of an app: logged when a worker starts, and reported by ``manage.py check``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from celery import current_app
from celery.schedules import schedule
from celery.signals import worker_init
from django.core.checks import CheckMessage, Warning, register  # noqa: A004 - Django's name

from .call_options import call_options, with_options
from .options import TaskOptions, seconds
from .task_settings import DEFAULT_VISIBILITY_TIMEOUT, has_results, redelivery_window

if TYPE_CHECKING:
    from celery import Celery

_log = logging.getLogger("celery_locks")


class TaskWarning(NamedTuple):
    """A warning with the parts of a Django system check message."""

    id: str
    message: str
    hint: str


def task_warnings(app: Celery) -> Iterator[TaskWarning]:
    """Yield all warnings about the tasks of an app, without I/O."""
    for name in sorted(app.tasks):
        task = app.tasks[name]
        if isinstance(task, TaskOptions) and not task.plain:
            yield from _of_results(task)
            yield from _of_redelivery(task)
            yield from _of_beat(task)
            yield from _of_limit(task)
    yield from _of_loads(app)


def _of_results(task: TaskOptions, where: str = "") -> Iterator[TaskWarning]:
    ttl = seconds(task.idempotency_ttl)
    expires = task.app.conf.result_expires
    lifetime = expires.total_seconds() if isinstance(expires, timedelta) else expires
    if ttl and not has_results(task):
        yield TaskWarning(
            "celery_locks.W001",
            f"Task {task.name} has an idempotency_ttl{where}, but its results can't be read.",
            "For that time a duplicate isn't run, and its caller never gets a result. Give the app a result_backend.",
        )
    elif lifetime and ttl > lifetime:
        yield TaskWarning(
            "celery_locks.W002",
            f"Task {task.name} has an idempotency_ttl of {ttl:g} seconds{where}, but results are kept for {lifetime:g}.",
            "A later duplicate would get a result that is gone. Raise result_expires, or shorten idempotency_ttl.",
        )


def _of_redelivery(task: TaskOptions) -> Iterator[TaskWarning]:
    if not str(task.app.conf.broker_url or "").startswith(("redis", "unix", "sentinel", "sqs")):
        return
    timeout = float(
        (task.app.conf.broker_transport_options or {}).get("visibility_timeout") or DEFAULT_VISIBILITY_TIMEOUT
    )
    limit = task.time_limit or task.app.conf.task_time_limit
    if task.acks_late and limit and limit > timeout:
        yield TaskWarning(
            "celery_locks.W003",
            f"Task {task.name} may run for {limit:g} seconds, but the broker delivers it again after {timeout:g}.",
            "The copy isn't run, but redelivered repeatedly. Raise broker_transport_options['visibility_timeout'].",
        )
    if redelivery_window(task) < timeout:
        yield TaskWarning(
            "celery_locks.W004",
            f"Task {task.name} forgets its jobs after {redelivery_window(task):g} seconds, but the broker may deliver a "
            f"message again after {timeout:g}.",
            "A late copy of a job that is done would be run. Raise lock_redelivery_window.",
        )


def _of_beat(task: TaskOptions) -> Iterator[TaskWarning]:
    for name, entry in (task.app.conf.beat_schedule or {}).items():
        if entry.get("task") != task.name:
            continue
        options = entry.get("options") or {}
        try:
            called = with_options(task, call_options(task, options))
        except (TypeError, ValueError) as error:
            yield TaskWarning(
                "celery_locks.W007",
                f"Beat can't send its entry {name}: {error}.",
                "Correct the options of the entry in beat_schedule.",
            )
            continue
        if "idempotency_ttl" in options:
            yield from _of_results(called, f" in beat's entry {name}")
        yield from _of_interval(called, name, entry.get("schedule"))


def _of_interval(task: TaskOptions, name: str, every: Any) -> Iterator[TaskWarning]:
    min_hold = seconds(task.lock_min_hold)
    every = getattr(every, "run_every", every) if type(every) is schedule else every
    interval = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(interval, int | float) and min_hold >= interval:
        yield TaskWarning(
            "celery_locks.W005",
            f"Task {task.name} has a lock_min_hold of {min_hold:g} seconds, and beat sends it every {interval:g} ({name}).",
            "Ticks would be left out. Make it shorter than the interval, by more than the clocks differ.",
        )


def _of_limit(task: TaskOptions) -> Iterator[TaskWarning]:
    if task.lock_limit > 1 and task.lock_key is None and signature(task.run).parameters:
        yield TaskWarning(
            "celery_locks.W008",
            f"Task {task.name} has a lock_limit and no lock_key: it limits runs with the same arguments only.",
            'Name what is limited, as in lock_key="{tenant}", or lock_key="all" for all runs of the task.',
        )


def _of_loads(app: Celery) -> Iterator[TaskWarning]:
    # Not imported here: without that module no functions are cached
    functions = sys.modules.get("django_redis_locks.cache.decorator.function")
    paths: list[str] = [] if functions is None else functions.refreshed_by_celery()
    if paths and not app.conf.broker_url and not app.conf.task_always_eager:
        yield TaskWarning(
            "celery_locks.W006",
            f'{paths[0]} has refresh="celery", but the current Celery app of this process has no broker_url.',
            "Threads of this process would refresh it. Import the project's app where Django starts, or give it a broker.",
        )


@register("celery_locks")
def check(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Django's system check, for the current app."""
    return [Warning(warning.message, hint=warning.hint, id=warning.id) for warning in task_warnings(current_app)]


def _worker_starts(sender: Any = None, **_: Any) -> None:
    app = getattr(sender, "app", None) or current_app
    for warning in task_warnings(app):
        _log.warning("%s %s (%s)", warning.message, warning.hint, warning.id)


worker_init.connect(_worker_starts, weak=False, dispatch_uid="celery_locks")
