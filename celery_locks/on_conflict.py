"""``lock_on_conflict``: what a worker does with a message if another job has its key."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from django_redis_locks import LockNotAcquired

from .actions import Fail, Follow, Redeliver, Skip, Wait
from .options import seconds
from .task_settings import conflict_policy, conflict_wait, describe, has_results

if TYPE_CHECKING:
    from .actions import Action
    from .header import Header
    from .job import Job
    from .options import TaskOptions


def on_conflict(task: TaskOptions, header: Header, job: Job, waited: float) -> Action:
    """Apply ``lock_on_conflict``.

    Args:
        task: the task.
        header: the header of its message.
        job: the job that has the key.
        waited: seconds for which this delivery has waited for the key already.
    """
    policy = "retry" if header.retry_on_conflict else conflict_policy(task)
    if policy == "follow":
        if has_results(task):
            return Follow(job.id)
        policy = "retry"
    if policy in ("wait", "retry"):
        left = conflict_wait(task, policy) - waited
        if left > 0:
            # The record doesn't change at the end of lock_min_hold
            left = min(left, job.seconds_until_free if job.state == "done" else inf)
            return Wait(-1 if left == inf else left, for_key=True)
    # Only an explicit "retry" limits the redeliveries: otherwise a long run of another job would drop this message
    is_bounded = task.lock_on_conflict == "retry" and not header.retry_on_conflict
    if policy == "retry" and (not is_bounded or header.redeliveries < task.lock_max_retries):
        return Redeliver(seconds(task.lock_retry_delay), "another job has its key")
    if policy == "skip":
        return Skip(job)
    return Fail(
        LockNotAcquired(
            f"task {task.name}: another job has the key: {describe(job)}",
            waited=waited,
            retry_after=job.seconds_until_free,
            holder=job.holder,
            key=header.key,
            name=task.name,
            alias=task.lock_using,
        )
    )
