"""``Submission``: one submission of a job, whatever it finds in the record of its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from celery.states import READY_STATES
from kombu.exceptions import EncodeError

from django_redis_locks import LockBackendError

from . import signals
from .decisions import Submit, at_submit
from .errors import DuplicateTask, IdempotencyKeyReused
from .header import Header
from .job import Job
from .job_record import SENDING_LEASE, record_of
from .options import is_unique_until_start
from .task_settings import RESULT_DEADLINE, describe, has_results, result_state_unless_slow
from .times import times_of, widened

if TYPE_CHECKING:
    from celery.result import AsyncResult

    from .job_record import JobRecord
    from .options import TaskOptions
    from .times import Times

Publish = Callable[..., "AsyncResult[Any]"]

AWAITING_OPTIONS: Final = ("chord", "chain", "group_id", "link", "link_error")
"""Options of ``apply_async`` by which a caller or a canvas waits for this task id."""

_NOT_SENT: Final = (EncodeError, TypeError, ValueError)
"""Errors that are raised before a message is sent. After any other error the broker may have accepted it."""

_MAX_DUPLICATED: Final = 1024

_duplicated: set[str] = set()
"""The keys of recent duplicates. The next submission of such a key reads the record before it tries to reserve it."""


def is_known_duplicate(key: str) -> bool:
    """Whether the last submission with this key was a duplicate."""
    return key in _duplicated


def forget_duplicate(key: str) -> None:
    """Forget that the last submission with this key was a duplicate: it is free now."""
    _duplicated.discard(key)


class Submission:
    """One submission of a job.

    Args:
        task: the task, with the options of the call in place of its own.
        new: the header of the message.
        publish: sends a message, given its id, its header and options that replace the caller's.
        options: the caller's options of ``apply_async``.
        id_given: whether the caller gave the id.
    """

    def __init__(
        self, task: TaskOptions, new: Header, publish: Publish, options: Mapping[str, Any], *, id_given: bool
    ) -> None:
        self.task = task
        self.new = new
        self.publish = publish
        self.options = options
        self.id_given = id_given
        self.ticking = False
        """Whether beat submits it. Then a duplicate or an outage raises no error, since beat would lose the tick."""
        self.job_record: JobRecord = record_of(task, new.key)
        self.times = times_of(task, options)
        self.changes: dict[str, Any] = {}
        """Options that replace the caller's, for a message that replaces another one."""
        self.job = Job(
            "reserved",
            new.id,
            retries=int(options.get("retries") or 0),
            fingerprint=new.fingerprint,
            due=self.times.due,
            until=self.times.until,
            awaited=any(map(options.get, AWAITING_OPTIONS)),
        )

    def result(self, found: Job | None = None) -> AsyncResult[Any]:
        """Submit the job, given the one that a refused reservation has found, if there was one."""
        if self.task.lock_on_duplicate == "queue":
            return mark(self.publish(self.new.id, self.new), duplicated=False)
        try:
            return self._reserve(found)
        except LockBackendError as failure:
            if self.needs_store:
                raise
            return self.send_unreserved(failure)

    @property
    def needs_store(self) -> bool:
        """Whether the submission fails if the store can't be reached."""
        return self.task.lock_on_backend_error == "closed" and not self.ticking

    def send_unreserved(self, failure: LockBackendError) -> AsyncResult[Any]:
        """Send the message although its key couldn't be reserved. The worker decides then."""
        signals.log_failure(self.task, self.new.id, "submission", failure)
        return mark(self.publish(self.new.id, self.new), duplicated=False)

    def _reserve(self, job: Job | None) -> AsyncResult[Any]:
        if job is None and is_known_duplicate(self.new.key):
            job = self._read_known_duplicate()
        result: AsyncResult[Any] | None = None
        while result is None:
            if job is None or at_submit(job) is Submit.RESERVE or is_void(self.task, job):
                forget_duplicate(self.new.key)
                if job is not None:
                    self.job = replace(self.job, last_success=job.last_success, late_until=max(job.late_until, job.due))
                written, job = self.job_record.put(job, self.job, SENDING_LEASE)
                if written and job is not None:
                    return self._send(job, None)
            else:
                result, job = self._on_existing(job)
        return result

    def _read_known_duplicate(self) -> Job | None:
        """Read the record, as the last submission with this key was a duplicate; without the lease if this one needs
        no more than to know that the job is still queued."""
        job = self.job_record.peek()
        needs_lease = job is not None and (
            job.state != "queued" or self.task.lock_on_duplicate == "replace" or widened(job, self.times) is not None
        )
        return self.job_record.read() if needs_lease else job

    def _on_existing(self, job: Job) -> tuple[AsyncResult[Any] | None, Job | None]:
        """Handle a key that isn't free. Returns the caller's result, or None and the job that the record has now."""
        self._check_fingerprint(job)
        found = at_submit(job)
        if job.id == self.new.id:  # sent again under its own id, as by a retry in the worker's main process
            return mark(self.publish(job.id, replace(self.new, reserved=job.reserved)), duplicated=False), job
        if found is Submit.AWAIT:
            return None, self.job_record.wait_for_change(job, job.stored_record.lease_left + 0.1)
        if found is Submit.REPEAT:
            # Reuse the id of the unconfirmed message, which no caller has, unless this id may be known already
            same = {} if self._is_awaited() else {"id": job.id, "fingerprint": job.fingerprint}
            return self._publish_instead(job, self._replacement_for(job, **same), None)
        raises = self.task.lock_on_duplicate == "raise" and not self.ticking
        if job.state != "queued" or raises:
            return self.duplicate(job), job
        if self.task.lock_on_duplicate == "replace" and not self._is_awaited():
            return self._publish_instead(job, self._replacement_for(job), job)
        times = widened(job, self.times)
        if times is None:
            return self.duplicate(job), job
        if self._is_awaited() or job.awaited or not job.reserved or is_unique_until_start(self.task):
            return self.duplicate(job, separate=True, sooner=times.due < job.due), job
        return self._resend(job, times)

    def _resend(self, job: Job, times: Times) -> tuple[AsyncResult[Any] | None, Job | None]:
        """Replace a queued message that starts too late or expires too early: send another one with the same task
        id."""
        own_times = self.times
        self.times, self.changes = times, {**times.options(), "retries": job.retries}
        first, late = job.first_reserved or job.reserved, max(job.late_until, job.due)
        resent = job.in_state(
            "reserved", reserved=0, first_reserved=first, late_until=late, due=times.due, until=times.until
        )
        result, current = self._publish_instead(job, resent, job)
        if result is None:  # another submission was first
            self.times, self.changes = own_times, {}
            return None, current
        arguments = {"task_id": job.id, "state": job.state}
        signals.send(signals.duplicate_suppressed, self.task, "a duplicate, sent again for its times", **arguments)
        return mark(result, duplicated=True), current

    def _replacement_for(self, job: Job, **changes: Any) -> Job:
        """This submission's job as the replacement of another one."""
        late = max(job.late_until, job.due)
        return replace(
            self.job,
            first_reserved=job.first_reserved or job.reserved,
            last_success=job.last_success,
            late_until=late,
            **changes,
        )

    def _publish_instead(self, job: Job, new: Job, replaced: Job | None) -> tuple[AsyncResult[Any] | None, Job | None]:
        """Send a message that replaces one which was sent, or may have been.

        Returns:
            The result, or None if the record has changed; and the job that the record has now.
        """
        written, current = self.job_record.put(job, new, SENDING_LEASE)
        if not written or current is None:
            return None, current
        self.job = new
        self.new = replace(self.new, id=new.id)
        return self._send(current, replaced), current

    def _send(self, reserved: Job, replaced: Job | None) -> AsyncResult[Any]:
        """Send the message of a reserved job, and confirm the reservation."""
        version = reserved.stored_record.version
        self.new = replace(self.new, reserved=version)
        try:
            result = self.publish(self.new.id, self.new, **self.changes)
        except BaseException as failure:
            self.not_sent(reserved, replaced, failure)
            raise
        try:
            self.job_record.confirm(reserved, self.times.message_ttl(self.task))
        except LockBackendError as failure:  # the message was sent, and the worker takes the key without a reservation
            signals.log_failure(self.task, self.new.id, "submission", failure)
        return mark(result, duplicated=False)

    def not_sent(self, reserved: Job, replaced: Job | None, failure: BaseException) -> None:
        """Undo the reservation after a failure to send, or record that the message may have been sent."""
        try:
            if not isinstance(failure, _NOT_SENT):
                unsure = reserved.in_state("unsure", reserved=reserved.stored_record.version)
                self.job_record.put(reserved, unsure, self.times.message_ttl(self.task))
            elif replaced is not None and not is_unique_until_start(self.task):  # otherwise it may be running already
                self.job_record.put(reserved, replaced.in_state("queued"), replaced.stored_record.lease_left)
            else:
                self.job_record.drop(reserved)
        except LockBackendError as store_failure:  # the key is free when the lease ends
            signals.log_failure(self.task, self.new.id, "submission", store_failure)

    def _check_fingerprint(self, job: Job) -> None:
        if self.new.fingerprint != job.fingerprint and self.new.fingerprint and job.fingerprint:
            raise IdempotencyKeyReused(
                f"the idempotency_key of task {self.task.name} was used for a job with other arguments, {job.id}. "
                "Each job needs its own key",
                key=self.new.key,
                name=self.task.name,
                alias=self.task.lock_using,
            )

    def _is_awaited(self) -> bool:
        """Whether a caller, a chord, a group, a chain or a callback waits for this task id."""
        return self.id_given or self.job.awaited

    def duplicate(self, job: Job, *, separate: bool = False, sooner: bool = False) -> AsyncResult[Any]:
        """Return the result of a submission if its job exists already.

        Args:
            job: the existing job.
            separate: send a separate message that follows the job, since the job's own starts too late or expires too
                early.
            sooner: the job's own message starts too late.
        """
        if (self._is_awaited() or separate) and self.task.lock_on_duplicate != "raise":
            policy = self.task.lock_canvas if self._is_awaited() else "follow"
            if policy == "follow" and (sooner or not has_results(self.task)):
                policy = "run"
            if policy != "fail":
                follows = policy == "follow"
                new = replace(self.new, follows=job.id) if follows else replace(self.new, retry_on_conflict=True)
                signals.send(
                    signals.duplicate_suppressed, self.task, "a duplicate follows", task_id=job.id, state=job.state
                )
                return mark(self.publish(new.id, new), duplicated=follows)
        if (self.task.lock_on_duplicate == "raise" and not self.ticking) or self._is_awaited():
            raise DuplicateTask(
                f"task {self.task.name} is {job.state} already, as {job.id}",
                task_id=job.id,
                state=job.state,
                retry_after=job.retry_after,
                key=self.new.key,
                name=self.task.name,
                alias=self.task.lock_using,
            )
        return result_of_existing(self.task, self.new.key, job)


def is_void(task: TaskOptions, job: Job) -> bool:
    """Whether a job will never have a result: it was revoked while it was queued, or its process died before it stored
    the result."""
    if job.state == "queued" and not task.ignore_result:
        return result_state_unless_slow(task, job.id) in READY_STATES
    if job.state == "done" and job.process and job.seconds_since_end > RESULT_DEADLINE:
        state = result_state_unless_slow(task, job.id)
        return bool(state) and state not in READY_STATES
    return False


def result_of_existing(task: TaskOptions, key: str, job: Job) -> AsyncResult[Any]:
    """Return the result of a job that exists already, and remember its key as that of a duplicate."""
    if len(_duplicated) >= _MAX_DUPLICATED:
        _duplicated.clear()
    _duplicated.add(key)
    arguments = {"task_id": job.id, "state": job.state}
    signals.send(signals.duplicate_suppressed, task, f"a duplicate: {describe(job)}", **arguments)
    return mark(task.AsyncResult(job.id), duplicated=True)


def mark(result: AsyncResult[Any], *, duplicated: bool) -> AsyncResult[Any]:
    """Set ``result.deduplicated``: whether the job had been submitted before."""
    result.deduplicated = duplicated  # type: ignore[attr-defined]
    return result
