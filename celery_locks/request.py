"""Releases the keys of dead runs, and of revoked and expired jobs, in the worker's main process.

``Request`` replaces Celery's class, since its ``on_failure`` is the only hook that is called for every death of a child
process. A call may come twice or not at all, as if the main process dies, too; then the key is free when its lease
ends. Celery imports this module in workers only.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from billiard.exceptions import Terminated, WorkerLostError
from celery.signals import task_revoked, worker_ready
from celery.states import FAILURE, SUCCESS
from celery.worker.request import Request as CelerysRequest
from celery.worker.state import revoked as revoked_tasks
from celery.worker.state import task_ready

from django_redis_locks import LockError, clock

from . import signals
from .decisions import gives_way
from .header import header_in
from .job import WAITING
from .job_record import REQUEUED_LEASE, record_of, run_record_of
from .keys import key_of
from .run_permit import free_permit_of_dead_run
from .task_settings import process_digest, result_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from .job import Job
    from .job_record import JobRecord

_log = logging.getLogger("celery_locks")

DEATH_GRACE: Final = 5.0
"""Seconds after its time limit within which a child process has ended or was killed."""

KILL_DELAY: Final = 1.0
"""Seconds after which such a child was usually killed: Celery gives it 0.1 seconds to end by itself."""

POLL_INTERVAL: Final = 0.2
"""Seconds between two checks for dead children; a check takes microseconds."""


class Request(CelerysRequest):
    """A request of Celery that releases the key of a dead run, a revoked job or an expired one."""

    _already_revoked: bool

    def revoked(self) -> bool:
        """Return whether the job is revoked or expired; free its key then. Called by Celery before the run."""
        if self._already_revoked or self.id in revoked_tasks or not is_expired(self):
            return bool(super().revoked())
        outcome = expire(self)
        if outcome == "dropped":
            return bool(super().revoked())
        if outcome == "replaced":  # the id isn't revoked, since the message that replaced this one has the same
            self._already_revoked = True
            task_ready(self)
            self.acknowledge()
        return outcome == "replaced"

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Shorten the lease before Celery kills the run at its hard time limit."""
        if not soft:
            expire_lease_soon(self)
        super().on_timeout(soft, timeout)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Free the key of a run after its process has died, before Celery requeues its message."""
        failure = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(failure, Terminated | WorkerLostError | SystemExit | KeyboardInterrupt):
            # Before super() requeues the message, so that the next worker finds a free key
            free_dead_run(self, redelivered=is_redelivered(self, failure))
        return super().on_failure(exc_info, send_failed_event, return_ok)


def is_expired(request: Any) -> bool:
    """Whether a message that wasn't run has expired."""
    return bool(request.expires) and clock.wall() > request.expires.timestamp()


def expire(request: Any) -> Literal["dropped", "replaced", "begun"]:
    """Handle a message that has expired.

    Returns:
        ``"dropped"``: its job was dropped. ``"replaced"``: another message of the job has replaced it. ``"begun"``: the
        job runs or has run, so the message is a copy, which the task handles.
    """
    outcome: Literal["dropped", "replaced", "begun"] = "dropped"

    def decide(job_record: JobRecord, job: Job | None) -> None:
        nonlocal outcome
        while job is not None and job.id == request.id:
            if gives_way(job, header_in(request._context.headers, request.id)):
                outcome = "replaced"
            elif job.state not in WAITING or _tries(request) < job.retries:
                outcome = "begun"
            elif not job_record.drop(job):  # another submission changed it, or its own confirmed it
                job = job_record.read()
                continue
            return

    _with_record(request, record_of, decide)
    return outcome


def expire_lease_soon(request: Any) -> None:
    """Shorten the lease of a request's run to ``DEATH_GRACE`` seconds, and again after its child process was killed,
    which renews the lease until then. The lease of its permit can't be shortened: it is given back after that time."""
    _shorten(request)
    _call_later(KILL_DELAY, _shorten, request)
    if request.task.lock_limit > 1:
        _with_run(request, lambda _, job: _call_later(DEATH_GRACE, _free_permit, request, job))


def _call_later(delay: float, function: Callable[..., object], *args: Any) -> None:
    timer = threading.Timer(delay, function, args)
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be started
        timer.start()


def _shorten(request: Any) -> None:
    _with_run(request, lambda job_record, job: job_record.ref.touch(job.stored_record, DEATH_GRACE, shorten=True))


def _free_permit(request: Any, job: Job) -> None:
    """Give the permit of a dead run back. Never raises."""
    if job.permit:
        try:
            free_permit_of_dead_run(request.task, _key_of(request), job.permit)
        except LockError as failure:
            signals.log_failure(request.task, request.id, "release", failure)


def free_dead_run(request: Any, *, redelivered: bool) -> None:
    """Release the key of a request's dead run, or reserve it for the message if that is ``redelivered``."""

    def free(job_record: JobRecord, job: Job) -> None:
        _free_permit(request, job)
        if redelivered:
            job_record.put(job, job.requeued(), REQUEUED_LEASE)
        else:
            job_record.drop(job)
        died = "its process" if job.holder is None else job.holder
        signals.send(signals.dead_run_freed, request.task, f"{died} died", task_id=request.id, holder=job.holder)

    _with_run(request, free)


def is_redelivered(request: Any, failure: BaseException) -> bool:
    """Whether Celery redelivers or retries the message of a request after its child process died."""
    task = request.task
    if getattr(request, "_already_cancelled", False):  # the worker shuts down, or lost its broker
        return bool(task.acks_late)
    if getattr(request, "_already_revoked", False) or isinstance(failure, Terminated):
        return False
    if getattr(task, "retry_on_worker_lost", False):  # from Celery 5.7 on
        return task.max_retries is None or _tries(request) < task.max_retries
    return bool(task.acks_late and task.reject_on_worker_lost)


def _tries(request: Any) -> int:
    return int(request._context.retries or 0)


def _with_run(request: Any, act: Callable[[JobRecord, Job], object]) -> None:
    """Call ``act`` with the record of a request's run, if its child process holds the key and hasn't stored the
    result."""

    def with_run(job_record: JobRecord, job: Job) -> None:
        if job.process == process_digest(request.worker_pid) and (job.state == "running" or not _stored(request)):
            act(job_record, job)

    _with_record(request, partial(run_record_of, id=request.id), with_run)


def _stored(request: Any) -> bool:
    """Whether the run of a request has stored its result. True if the result backend can't be read: a copy of the
    message then finds out."""
    return result_state(request.task, request.id) in (SUCCESS, FAILURE, "")


def _with_record(
    request: Any, record_of: Callable[[Any, str], JobRecord], act: Callable[[JobRecord, Job], object]
) -> None:
    """Call ``act`` with the record of a request's key, if the record is that of this job. Never raises."""
    task = request.task
    try:
        job_record = record_of(task, _key_of(request))
        job = job_record.read()
        if job is not None and job.id == request.id:
            act(job_record, job)
    except LockError as failure:
        signals.log_failure(task, request.id, "release", failure)
    except Exception:  # noqa: BLE001 - the worker's main process continues
        _log.exception("%s[%s]: its key stays taken until its lease ends", task.name, request.id)


def _key_of(request: Any) -> str:
    header = header_in(request._context.headers, request.id)
    return key_of(request.task, request.args, request.kwargs, None)[0] if header is None else header.key


def _on_revoked(request: Any, terminated: bool = False, **_: Any) -> None:
    """Drop the record of a job that was revoked, or expired, before it started."""
    if terminated or not hasattr(getattr(request, "task", None), "lock_using"):
        return

    def drop(job_record: JobRecord, job: Job | None) -> None:
        while job is not None and job.id == request.id and job.state in WAITING and not job_record.drop(job):
            job = job_record.read()  # its submission was confirmed between read and drop

    _with_record(request, record_of, drop)


task_revoked.connect(_on_revoked, weak=False, dispatch_uid="celery_locks")


def _poll_for_deaths(sender: Any, **_: Any) -> None:
    """Check for dead child processes every ``POLL_INTERVAL``.

    Celery's pool checks when a child's pipe closes, which is shortly before the kernel reports the death, and then only
    every five seconds. Until then the job's key would stay taken.
    """
    hub, maintain_pool = getattr(sender, "hub", None), getattr(sender.pool, "maintain_pool", None)
    if hub is not None and maintain_pool is not None:
        hub.call_repeatedly(POLL_INTERVAL, maintain_pool)


worker_ready.connect(_poll_for_deaths, weak=False, dispatch_uid="celery_locks")
