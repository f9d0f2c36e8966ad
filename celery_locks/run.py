"""A run: what ``__call__`` does around the task's body.

The key is taken before the body and given back in a ``finally`` after it, which is before Celery stores the result and
sends callbacks: whoever has seen the result can submit the job again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore, Reject, Retry
from celery.signals import task_failure, task_postrun, task_success

from django_redis_locks import release_leftovers

from .worker_start import DeliveredTask

if TYPE_CHECKING:
    from .job import Outcome
    from .options import TaskOptions
    from .run_lock import RunHold


def run(task: TaskOptions, body: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the body of a task under its key, or do with the message what is to be done instead.

    Raises:
        Ignore: nothing is to be run now. LockNotAcquired: ``lock_on_conflict`` says so.
    """
    start = DeliveredTask(task, args, kwargs)
    held: RunHold | None = None
    while held is None:
        if start.header.follows and start.take_result():
            return start.result
        held = start.begin()
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
    """Record that the result of a task's run is stored: a copy of its message isn't run any more.

    Celery sends these signals after that, in the process of the run, and not if the result could not be stored.
    """
    request = getattr(sender, "request", None)
    held = None if request is None else request.get("lock_ended")
    if held is not None:
        held.confirm()


def _release_leftovers(**_: Any) -> None:
    """Release the locks of ``@redis_lock`` that were kept until the end of a transaction and not released then."""
    release_leftovers()


task_success.connect(confirm, weak=False, dispatch_uid="celery_locks")
task_failure.connect(confirm, weak=False, dispatch_uid="celery_locks")
task_postrun.connect(_release_leftovers, weak=False, dispatch_uid="celery_locks")
