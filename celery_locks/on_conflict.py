"""``lock_on_conflict``, and the other ways to end the delivery of a message that can't be run now."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, NoReturn

from celery.exceptions import Ignore
from kombu.exceptions import OperationalError

from django_redis_locks import LockNotAcquired, clock

from . import signals
from .header import HEADER
from .options import seconds
from .task_settings import bounded_delay, conflict_policy, conflict_wait, describe, has_results

if TYPE_CHECKING:
    from django_redis_locks import LockBackendError

    from .header import Header, Message
    from .job import Job
    from .job_record import JobRecord
    from .options import TaskOptions

BROKER_PAUSE: Final = 1.0
"""Seconds between two attempts to redeliver a message while the broker is down."""

MAX_PAUSE: Final = 30.0
"""Seconds after which a message that waits for a result, a lease or the store is redelivered at the latest."""


class Delivery:
    """A message that a worker received, and the ways to end its delivery without a run.

    Attributes:
        header: the message's header, or a new one. It changes with what is decided for the message.
        job_record: the record of the job's run.
        waited: seconds that the message has waited for its key in this worker.
        may_follow: whether the message may take the result of another job.
    """

    def __init__(self, task: TaskOptions, message: Message, header: Header, job_record: JobRecord) -> None:
        self.task = task
        self.message = message
        self.header = header
        self.job_record = job_record
        self.waited = 0.0
        self.may_follow = True

    def _can_follow(self) -> bool:
        return self.may_follow and has_results(self.task)

    def _conflict(self, job: Job) -> Job | None:
        """Apply ``lock_on_conflict``: raise, or return the job that the record has now, to decide again."""
        task = self.task
        policy = "retry" if self.header.retry_on_conflict else conflict_policy(task)
        if policy == "follow" and not self._can_follow():
            policy = "retry"
        if policy == "follow":
            self.header = replace(self.header, follows=job.id)
            return job
        if policy == "wait":
            max_wait = conflict_wait(task)
            if self.waited < max_wait:
                begin = clock.now()
                # The record doesn't change at the end of lock_min_hold
                left = min(max_wait - self.waited, job.seconds_until_free if job.state == "done" else inf)
                now = self.job_record.wait_for_change(job, -1 if left == inf else left)
                self.waited += clock.now() - begin
                return now
        # Only an explicit "retry" limits the redeliveries: otherwise a long run of another job would drop this message
        is_bounded = task.lock_on_conflict == "retry" and not self.header.retry_on_conflict
        if policy == "retry" and (not is_bounded or self.header.redeliveries < task.lock_max_retries):
            self._redeliver(seconds(task.lock_retry_delay), "another job has its key")
        if policy == "skip":
            signals.send(
                signals.lock_skipped, task, f"skipped: {describe(job)}", task_id=self.message.id, holder=job.holder
            )
            task.on_lock_skipped(job.holder)
            self._revoke(f"another job has the key: {job.id}")
        raise LockNotAcquired(
            f"task {task.name}: another job has the key: {describe(job)}",
            waited=self.waited,
            retry_after=job.seconds_until_free,
            holder=job.holder,
            key=self.header.key,
            name=task.name,
            alias=task.lock_using,
        )

    def _backoff(self) -> float:
        """Seconds until this message checks for a result again."""
        return min(0.5 * 2.0 ** min(self.header.redeliveries, 6), MAX_PAUSE)

    def _redeliver(self, pause: float, why: str) -> NoReturn:
        """Send the same message again with a delay, and end this delivery. Waits for a broker that is down."""
        pause = bounded_delay(self.task, pause)
        request = self.task.request
        if request.is_eager:
            self._ignore(why)
        header = replace(self.header, redeliveries=self.header.redeliveries + 1)
        headers = {**(request.headers or {}), HEADER: header.as_dict()}
        same = self.task.signature_from_request(request, countdown=pause, retries=request.retries, headers=headers)
        while True:
            try:
                same.apply_async()
                break
            except (
                OperationalError,
                OSError,
            ) as failure:  # retried, since this worker has the only copy of the message
                signals.log_broker_failure(self.task, self.message.id, failure)
                clock.sleep(BROKER_PAUSE)
        signals.send(signals.run_parked, self.task, f"{why}: again in {pause:.1f} s", task_id=request.id, seconds=pause)
        raise Ignore(why)

    def _ignore(self, why: str) -> NoReturn:
        signals.log_ignored(self.task, self.message.id, why)
        raise Ignore(why)

    def _revoke(self, why: str) -> NoReturn:
        request = self.task.request
        with suppress(NotImplementedError):  # there is no result backend
            self.task.backend.mark_as_revoked(
                self.message.id, why, request=request, store_result=not self.task.ignore_result
            )
        self._ignore(why)

    def _redeliver_after_failure(self, failure: LockBackendError) -> NoReturn:
        """Redeliver the message after a failure of the store, since a job never runs without its lock."""
        signals.log_failure(self.task, self.message.id, "start", failure)
        self._redeliver(min(2.0 ** min(self.header.redeliveries, 5), MAX_PAUSE), "the store of the locks is down")
