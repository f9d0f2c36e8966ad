"""Runs the body of a task under its key.

The key is released in a ``finally`` after the body, before Celery stores the result and sends callbacks. So a caller
that has seen the result can submit the job again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore, Reject, Retry
from celery.signals import task_failure, task_postrun, task_success

from django_redis_locks import release_leftovers

from .end_delivery import end_delivery
from .run_lock import RunHold
from .worker_start import DeliveredTask

if TYPE_CHECKING:
    from .job import Outcome
    from .options import TaskOptions


def run(task: TaskOptions, body: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the body of a task under its key, or end the delivery without a run if the record of the key says so.

    Returns:
        The result of the body, or that of the task which this one follows.

    Raises:
        Ignore: the task isn't run now.
        LockNotAcquired: another job has the key, and ``lock_on_conflict`` raises.
        Exception: what the body raised.
    """
    delivered = DeliveredTask(task, args, kwargs)
    held = delivered.start()
    if not isinstance(held, RunHold):
        return end_delivery(delivered.task, delivered.header, held)
    outcome: Outcome = ""
    requeued = False
    try:
        task.request.update(lock_run=held)
        result = body()
        outcome = "success"
        return result
    except (Ignore, Retry):
        raise
    except Reject as reject:
        requeued = bool(getattr(reject, "requeue", False))
        raise
    except Exception:
        outcome = "failure"
        raise
    finally:
        vars(task.request).pop("lock_run", None)
        held.end(outcome, requeued=requeued and bool(task.acks_late))
        task.request.update(lock_ended=held)


def confirm(sender: Any = None, **_: Any) -> None:
    """Record that the result of a task's run is stored, so that copies of its message aren't run.

    A receiver of ``task_success`` and ``task_failure``, which Celery sends in the process of the run after it has
    stored the result, and only then.
    """
    request = getattr(sender, "request", None)
    held = None if request is None else request.get("lock_ended")
    if held is not None:
        held.confirm()


def _release_leftovers(**_: Any) -> None:
    """Release locks of ``@redis_lock`` that were to be released at the end of a transaction, and weren't."""
    release_leftovers()


task_success.connect(confirm, weak=False, dispatch_uid="celery_locks")
task_failure.connect(confirm, weak=False, dispatch_uid="celery_locks")
task_postrun.connect(_release_leftovers, weak=False, dispatch_uid="celery_locks")
