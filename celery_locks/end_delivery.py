"""Ends the delivery of a message without a run. All that Celery needs to be raised for that is raised here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from celery.exceptions import Ignore
from kombu.exceptions import OperationalError

from django_redis_locks import clock

from . import signals
from .actions import Answer, Drop, Fail, Redeliver, Revoke, Skip
from .header import HEADER
from .task_settings import bounded_delay

if TYPE_CHECKING:
    from .actions import Ending
    from .header import Header
    from .options import TaskOptions

BROKER_PAUSE: Final = 1.0
"""Seconds between two attempts to redeliver a message while the broker is down."""


def end_delivery(task: TaskOptions, header: Header, ending: Ending) -> Any:
    """End the delivery of a message.

    Returns:
        The result of the task that this one follows.

    Raises:
        Ignore: Celery acknowledges the message, and stores no result.
        Exception: the error of the task that this one follows, or ``LockNotAcquired``.
    """
    match ending:
        case Answer(result):
            return result
        case Fail(error):
            raise error
        case Redeliver(_, why):
            if task.request.is_eager:  # there is no message
                signals.log_ignored(task, header.id, why)
            else:
                _send_again(task, header, ending)
        case Skip(why, described, holder):
            signals.send(signals.lock_skipped, task, f"skipped: {described}", task_id=header.id, holder=holder)
            task.on_lock_skipped(holder)
            _revoke(task, header, why)
        case Revoke(why):
            _revoke(task, header, why)
        case Drop(why):
            signals.log_ignored(task, header.id, why)
    raise Ignore(why)


def _send_again(task: TaskOptions, header: Header, ending: Redeliver) -> None:
    """Send the same message again with a delay. Waits for a broker that is down, since this worker has the only copy of
    the message."""
    request = task.request
    pause = bounded_delay(task, ending.pause)
    sent = replace(header, redeliveries=header.redeliveries + 1, is_copy=header.is_copy or ending.is_copy)
    headers = {**(request.headers or {}), HEADER: sent.as_dict()}
    same = task.signature_from_request(request, countdown=pause, retries=request.retries, headers=headers)
    while True:
        try:
            same.apply_async()
            break
        except (OperationalError, OSError) as failure:
            signals.log_broker_failure(task, header.id, failure)
            clock.sleep(BROKER_PAUSE)
    signals.send(signals.run_parked, task, f"{ending.why}: again in {pause:.1f} s", task_id=header.id, seconds=pause)


def _revoke(task: TaskOptions, header: Header, why: str) -> None:
    with suppress(NotImplementedError):  # there is no result backend
        task.backend.mark_as_revoked(header.id, why, request=task.request, store_result=not task.ignore_result)
    signals.log_ignored(task, header.id, why)
