"""Helpers for a project's tests of tasks that run under a lock.

``locked_eager(app)`` runs tasks at once, under their locks and without a server. ``running(task, ...)`` makes a job
appear to run in another worker, to test duplicates and conflicts. Tests with a real worker
(``celery.contrib.testing.worker.start_worker``) need neither, but a Redis server for the locks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from celery import Celery
from celery.utils import uuid
from django.conf import settings

from django_redis_locks import LockNotAcquired, locks
from django_redis_locks.testing import override_locks

from .job import Job
from .job_record import run_record_of
from .keys import key_of
from .options import TaskOptions
from .run_permit import take_permit
from .task_settings import holder_here

BACKEND = "django_redis_locks.backends.memory.MemoryBackend"


@contextmanager
def locked_eager(app: Celery) -> Iterator[None]:
    """Run tasks at once in ``delay()`` and ``apply_async()``, under their locks, which are kept in memory.

    If a run submits its own job, that job finds the lock taken, as in a worker. Submissions aren't checked for
    duplicates.

    Args:
        app: the Celery app.

    Example::

        with locked_eager(app):
            result = charge.delay(7)
    """
    with ExitStack() as stack:
        stack.enter_context(override_locks() if settings.configured else _without_django(app))
        stack.callback(setattr, app.conf, "task_always_eager", app.conf.task_always_eager)
        app.conf.task_always_eager = True
        for task in app.tasks.values():
            if isinstance(task, TaskOptions):
                stack.enter_context(mock.patch.object(type(task), "lock_eager", new=True))
        yield


@contextmanager
def _without_django(app: Celery) -> Iterator[None]:
    locks.configure({"default": {"BACKEND": BACKEND, "LOCATION": uuid()}})
    try:
        yield
    finally:
        locks.configure(app.conf.get("redis_locks"))


@contextmanager
def running(task: TaskOptions, *args: Any, **kwargs: Any) -> Iterator[str]:
    """Hold the key of a call, as a run in another worker would; with a ``lock_limit`` above 1, one of its permits.

    Args:
        task: the task.
        *args, **kwargs: its arguments.

    Yields:
        The id of the running task.

    Raises:
        AssertionError: the job runs already.

    Example::

        with running(charge, 7):
            assert charge.delay(7).deduplicated
    """
    key, id = key_of(task, args, kwargs, None)[0], uuid()
    if task.lock_limit > 1:
        try:
            permit = take_permit(task, key, id, 0.0, lambda _: None)
        except LockNotAcquired:
            raise AssertionError(
                f"{task.lock_limit} jobs of task {task.name} with these arguments run already"
            ) from None
        with permit:
            yield id
        return
    job_record = run_record_of(task, key, id)
    job = Job("running", id, run_id=uuid(), holder_fields=holder_here(task))
    found = job_record.read()
    written, held = False, found
    if found is None or found.state != "running":
        written, held = job_record.put_renewed(found, job, task.lock_expire, -1, lambda _: None)
    if not written or held is None:
        raise AssertionError(f"a job of task {task.name} with these arguments runs already")
    try:
        yield job.id
    finally:
        job_record.drop(held)
