"""The permit of a run. With a ``lock_limit`` above 1 a semaphore bounds the runs of a key, instead of one record for all
of them."""

from __future__ import annotations

from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any

from django_redis_locks import LockError, LockLost, locks

from . import signals
from .options import seconds
from .task_settings import max_hold_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_redis_locks import Grant

    from .options import TaskOptions


def semaphore_of(task: TaskOptions, key: str, **options: Any) -> Any:
    """The semaphore for the runs of a key. Its name in the store differs from those of the records, so that runs of a
    worker with another ``lock_limit`` don't fail."""
    return locks[task.lock_using].semaphore(
        f"{key}:runs", task.lock_limit, name=task.name, on_backend_error="closed", hold="block", **options
    )


def take_permit(task: TaskOptions, key: str, id: str, wait: float, on_lost: Callable[[Grant], object]) -> Grant:
    """Take a permit for a run. It is renewed for as long as the grant is referenced.

    Args:
        task: the task.
        key: the key of the job.
        id: the id of the task, for operators.
        wait: seconds to wait; infinity for ever.
        on_lost: called when the permit is lost.

    Raises:
        LockNotAcquired: others have all permits.
        LockBackendError: the store can't be reached.
    """
    semaphore = semaphore_of(
        task,
        key,
        wait=-1 if wait == inf else wait,
        expire=task.lock_expire,
        renew=True,
        max_hold=_max_hold(task),
        note=id[:200] if id.isascii() else None,
        on_lost=on_lost,
    )
    # In a context of its own, so that ``current_grant()`` in the body doesn't return it
    grant: Grant = copy_context().run(semaphore.acquire)
    return grant


def _max_hold(task: TaskOptions) -> float:
    """``lock_max_hold``, but not less than the lease."""
    client = locks[task.lock_using]
    lease = client.overrides(task.name).lease or client.settings.lease
    max_hold = seconds(max_hold_of(task))
    return -1 if max_hold == inf else max(max_hold, seconds(task.lock_expire) or lease / 1000)


def release_permit(task: TaskOptions, id: str, permit: Grant) -> None:
    """Give the permit of a run back. A failure is logged: the permit is free when its lease ends."""
    try:
        permit.release()
    except LockLost:
        pass  # it was reported
    except LockError as failure:
        signals.log_failure(task, id, "release", failure)


def free_permit_of_dead_run(task: TaskOptions, key: str, fence: int) -> None:
    """Give back the permit of a run after its process has died.

    Raises:
        LockBackendError: the store can't be reached.
    """
    semaphore_of(task, key).force_release("the process of its run is dead", fence=fence)
