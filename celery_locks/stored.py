"""The result of a run is stored: a copy of its message isn't run any more.

Celery sends these signals after that, in the process of the run, and not if the result could not be stored.
"""

from __future__ import annotations

from typing import Any

from celery.signals import task_failure, task_success


def confirm(sender: Any = None, **_: Any) -> None:
    """Record that the result of the run of a task is stored."""
    request = getattr(sender, "request", None)
    held = None if request is None else request.get("lock_ended")
    if held is not None:
        held.confirm()


task_success.connect(confirm, weak=False, dispatch_uid="celery_locks")
task_failure.connect(confirm, weak=False, dispatch_uid="celery_locks")
