"""A run: what ``__call__`` does around the task's body.

The key is taken before the body and given back in a ``finally`` after it, which is before Celery stores the result and
sends callbacks: whoever has seen the result can submit the job again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore, Reject, Retry

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
        if start.header.follow and start.answered():
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
