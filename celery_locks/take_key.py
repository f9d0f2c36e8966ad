"""``take_key``: one attempt of a delivered message to take the key of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from celery.utils import uuid

from . import signals
from .job import WAITING, Job
from .job_record import record_of
from .options import is_unique_until_start
from .run_lock import LossCallback, RunHold
from .task_settings import holder_here, max_hold_of, process_digest

if TYPE_CHECKING:
    from django_redis_locks import Grant

    from .header import Header
    from .job_record import JobRecord
    from .options import TaskOptions


def take_key(
    task: TaskOptions,
    header: Header,
    run_record: JobRecord,
    previous: Job | None,
    *,
    retries: int,
    awaited: bool,
    permit: Grant | None,
) -> tuple[RunHold | None, Job | None]:
    """Try to take a key from the job that its record has.

    Args:
        task: the task.
        header: the header of the message.
        run_record: the record of the job's run.
        previous: the job that the record has; None if it isn't known, or if the key is free.
        retries: Celery's retries so far.
        awaited: whether a canvas or a callback waits for the task id.
        permit: the permit of the run, if ``lock_limit`` is above 1.

    Returns:
        The hold, or None if the record has changed; and the job that the record has now.

    Raises:
        LockBackendError: the store can't be reached.
    """
    merged_id = _merged_message(task, header.id, previous)
    same_job = (
        previous if previous is not None and (merged_id or header.id in (previous.id, previous.merged_id)) else None
    )
    job = Job(
        "running",
        header.id,
        run_id=uuid(),
        retries=retries,
        reserved=header.reserved if same_job is None else max(header.reserved, same_job.reservation),
        first_reserved=0 if same_job is None or (merged_id and not same_job.sent) else same_job.first_reserved,
        merged_id=merged_id,
        last_success=0 if previous is None else previous.last_success,
        awaited=awaited,
        until=0.0 if previous is None or previous.id != header.id else previous.until,
        late_until=0.0 if previous is None else max(previous.late_until, previous.due),
        fingerprint=header.fingerprint,
        process=process_digest(),
        permit=0 if permit is None else permit.fence or 0,
        holder_fields=holder_here(task),
    )
    held = RunHold(task, header, job, run_record, permit)
    try:
        # The lease is renewed for as long as the record is referenced, so the callback has only a weak reference
        written, current = run_record.put_renewed(
            previous, job, task.lock_expire, max_hold_of(task), LossCallback(ref(held))
        )
        if not written or current is None:
            return None, current
        held.job = current
        if is_unique_until_start(task):
            _leave_queue(task, header)
    except BaseException:
        held.abandon()
        raise
    signals.send(signals.lock_acquired, task, "it has its key", task_id=job.id, fence=held.fence)
    return held, current


def _merged_message(task: TaskOptions, id: str, previous: Job | None) -> str:
    """The id of another message of the same job that this run completes too; "" if there is none."""
    if previous is None:
        return ""
    if previous.id == id:
        return previous.merged_id
    runs_every_message = task.lock_on_duplicate == "queue" or is_unique_until_start(task)
    return previous.id if previous.state in WAITING and not runs_every_message else ""


def _leave_queue(task: TaskOptions, header: Header) -> None:
    """Delete the queue's record of a job, so that a submission from now on is another job."""
    queue = record_of(task, header.key)
    job = queue.read()
    while job is not None and job.id == header.id and not queue.drop(job):
        job = queue.read()  # its submission was confirmed between read and drop
