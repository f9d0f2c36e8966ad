"""A message that follows another task: it takes that task's result, instead of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.states import EXCEPTION_STATES, READY_STATES, REVOKED

from .actions import Answer, Drop, Fail, Follow, Redeliver, StopFollowing
from .job_record import record_of, run_record_of
from .options import is_unique_until_start
from .task_settings import MAX_PAUSE, RESULT_DEADLINE

if TYPE_CHECKING:
    from .actions import Action
    from .header import Header
    from .job import Job
    from .options import TaskOptions


def take_result(task: TaskOptions, header: Header) -> Action:
    """Take the result of the task that ``header.follows`` names.

    It is redelivered while there may be a result later, and run itself if there will never be one.

    Raises:
        LockBackendError: the store can't be reached.
    """
    leader = header.follows
    if task.request.is_eager:
        return Drop(f"it is the same job as {leader}")
    meta = task.backend.get_task_meta(leader)
    revoked = meta["status"] == REVOKED
    if meta["status"] in READY_STATES and not revoked:
        return Fail(meta["result"]) if meta["status"] in EXCEPTION_STATES else Answer(meta["result"])
    job = _leader_job(task, header)
    if revoked:
        if job is None or job.id in (leader, header.id):
            return StopFollowing()  # only that task was revoked, as when it has expired and this one hasn't
        return Follow(job.id)  # the job that replaced the revoked one
    is_active = job is not None and (
        leader in (job.id, job.merged_id) or (job.run_id and job.run_id == header.submitted_by)
    )
    if job is not None and is_active and not (job.state == "done" and job.seconds_since_end > RESULT_DEADLINE):
        return Redeliver(result_backoff(header), f"it follows {leader}")
    return StopFollowing()


def result_backoff(header: Header) -> float:
    """Seconds until a message checks for a result again."""
    return min(0.5 * 2.0 ** min(header.redeliveries, 6), MAX_PAUSE)


def _leader_job(task: TaskOptions, header: Header) -> Job | None:
    """The job that a message follows, or the one in its record now. With ``unique_until="start"`` a job leaves the
    queue's record when it runs."""
    leader = header.follows
    job = record_of(task, header.key).read()
    if is_unique_until_start(task) and (job is None or leader not in (job.id, job.merged_id)):
        run = run_record_of(task, header.key, leader).read()
        return run if run is not None and leader in (run.id, run.merged_id) else job
    return job
