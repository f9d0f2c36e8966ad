"""``lock_on_conflict``: what a worker does with a message if another job, or ``lock_limit`` others, have its key."""

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
    from .options import OnConflict, TaskOptions


def on_conflict(task: TaskOptions, header: Header, job: Job, waited: float) -> Action:
    """Apply ``lock_on_conflict``.

    Args:
        task: the task.
        header: the header of its message.
        job: the job that has the key.
        waited: seconds for which this delivery has waited for the key already.
    """
    policy = _policy(task, header)
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
    if policy == "retry" and _may_redeliver(task, header):
        return Redeliver(seconds(task.lock_retry_delay), "another job has its key")
    if policy == "skip":
        return Skip(f"another job has the key: {job.id}", describe(job), job.holder)
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


def permit_wait(task: TaskOptions, header: Header, waited: float) -> float:
    """Seconds for which a message waits for a permit in the worker; infinity for ever."""
    policy = _policy(task, header)
    return max(0.0, conflict_wait(task, policy) - waited) if policy in ("wait", "retry") else 0.0


def on_no_permit(task: TaskOptions, header: Header, busy: LockNotAcquired, waited: float) -> Action:
    """Apply ``lock_on_conflict`` to a message that got no permit, because ``lock_limit`` other jobs have the key.

    Args:
        task: the task.
        header: the header of its message.
        busy: the refusal.
        waited: seconds for which this delivery has waited.
    """
    policy = _policy(task, header)
    why = "other jobs have all permits of the key"
    described = why if busy.holder is None else f"{why}, one of them {busy.holder}"
    if policy == "retry" and _may_redeliver(task, header):
        return Redeliver(seconds(task.lock_retry_delay), why)
    if policy == "skip":
        return Skip(why, described, busy.holder)
    return Fail(
        LockNotAcquired(
            f"task {task.name}: {described}",
            waited=waited,
            retry_after=busy.retry_after,
            holder=busy.holder,
            key=header.key,
            name=task.name,
            alias=task.lock_using,
        )
    )


def _policy(task: TaskOptions, header: Header) -> OnConflict:
    return "retry" if header.retry_on_conflict else conflict_policy(task)


def _may_redeliver(task: TaskOptions, header: Header) -> bool:
    """Whether the message may be delivered again. Only an explicit ``"retry"`` limits that: otherwise a long run of
    another job would drop the message."""
    is_bounded = task.lock_on_conflict == "retry" and not header.retry_on_conflict
    return not is_bounded or header.redeliveries < task.lock_max_retries
