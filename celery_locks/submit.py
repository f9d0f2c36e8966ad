"""``delay()`` and ``apply_async()``: one message for a job, however often it is submitted.

The key is reserved, the message sent, and the reservation confirmed. A submitter that finds a reservation in progress
waits until it is confirmed or abandoned; a returned result therefore always belongs to a message that was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from celery.states import READY_STATES
from celery.utils import uuid
from kombu.exceptions import EncodeError

from django_redis_locks import LockBackendError

from . import beat, signals
from .decisions import Submit, at_submit
from .errors import DuplicateTask, IdempotencyKeyReused
from .header import HEADER, Header, header_in
from .job import Job
from .job_record import SENDING_LEASE, record_of
from .keys import key_of
from .options import TaskOptions
from .run_lock import Successor
from .task_settings import RESULT_DEADLINE, describe, has_results, result_state_unless_slow
from .times import times_of, widened

if TYPE_CHECKING:
    from celery.result import AsyncResult

    from .job_record import JobRecord
    from .times import Times

Publish = Callable[..., "AsyncResult[Any]"]

AWAITING_OPTIONS: Final = ("chord", "chain", "group_id", "link", "link_error")
"""Options of ``apply_async`` by which a caller or a canvas waits for this task id."""

_NOT_SENT: Final = (EncodeError, TypeError, ValueError)
"""Errors raised before a message is sent. After any other one the broker may have taken it."""


def submit(
    task: TaskOptions,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    task_id: str | None,
    key: str | None,
    options: dict[str, Any],
    send: Callable[..., AsyncResult[Any]],
) -> AsyncResult[Any]:
    """Send the message of a job, unless there is one already.

    Args:
        task, args, kwargs: the call.
        task_id: the id that the caller gave, or None.
        key: the ``idempotency_key``, or None.
        options: the caller's options of ``apply_async``.
        send: Celery's own ``apply_async`` with these options, called with ``task_id``, ``headers`` and changes of them.

    Raises:
        DuplicateTask, IdempotencyKeyReused, LockKeyError, LockBackendError, TypeError: as the options say.
    """

    def publish(id: str, header: Header, **changes: Any) -> AsyncResult[Any]:
        headers = {**(options.get("headers") or {}), HEADER: header.as_dict()}
        return send(task_id=id, headers=headers, **changes)

    run = task.request.get("lock_run")
    known = header_in(options.get("headers"), task_id)
    if known is not None:  # a retry, or a redelivery
        result = mark(publish(known.id, known), duplicated=False)
        if run is not None and known.key == run.header.key:  # set only now, since the message was sent
            run.successor = _successor(task, known.id, options)
        return result
    place_key, fingerprint = key_of(task, args, kwargs, key)
    new = Header(place_key, task_id or uuid(), fingerprint=fingerprint)
    if run is not None and run.header.key == place_key and task.unique_until != "start":
        return _after(
            run, _Submission(task, replace(new, submitted_by=run.id), publish, options, id_given=task_id is not None)
        )
    submission = _Submission(task, new, publish, options, id_given=task_id is not None)
    tick = beat.current(task.name)
    if tick is not None:
        submission.ticking = True
        claim = beat.claim(task.lock_using, tick, new.id)
        if not claim.won:
            signals.send(signals.tick_suppressed, task, "another beat sent this tick", task_id=claim.winner)
            return mark(task.AsyncResult(claim.winner), duplicated=True)
        if claim.store_down:  # else each entry of beat would wait for the store
            return mark(publish(new.id, new), duplicated=False)
        try:
            return submission.result()
        except BaseException:
            claim.give_back()
            raise
    return submission.result()


def _successor(task: TaskOptions, id: str, options: Mapping[str, Any]) -> Successor:
    return Successor(id, int(options.get("retries") or 0), times_of(task, options))


def _after(run: Any, submission: _Submission) -> AsyncResult[Any]:
    """Submit a job from its own run: that message gets the key when the run ends. There is one such message at most."""
    task, new, successor = submission.task, submission.new, run.successor
    itself = new.id == run.header.id  # the same task id is submitted again
    queued = None if successor is None or itself else Job("queued", successor.id)
    if queued is not None and task.lock_on_duplicate != "queue" and not submission.is_void(queued):
        return submission.duplicate(queued)
    result = submission.publish(new.id, new)
    if queued is None or task.lock_on_duplicate != "queue":
        run.successor = _successor(task, new.id, submission.options)
    return mark(result, duplicated=False)


class _Submission:
    """One submission of a job."""

    def __init__(
        self, task: TaskOptions, new: Header, publish: Publish, options: Mapping[str, Any], *, id_given: bool
    ) -> None:
        self.task = task
        self.new = new
        self.publish = publish
        self.options = options
        self.id_given = id_given
        self.ticking = False
        """Whether beat submits it: an error would only be logged by beat, and the tick lost."""
        self.job_record: JobRecord = record_of(task, new.key)
        self.times = times_of(task, options)
        self.changes: dict[str, Any] = {}
        """Changes of the options, for a message that replaces another one."""
        self.job = Job(
            "reserved",
            new.id,
            retries=int(options.get("retries") or 0),
            fingerprint=new.fingerprint,
            due=self.times.due,
            until=self.times.until,
            awaited=any(options.get(name) for name in AWAITING_OPTIONS),
        )

    def result(self) -> AsyncResult[Any]:
        if self.task.lock_on_duplicate == "queue":
            return mark(self.publish(self.new.id, self.new), duplicated=False)
        try:
            return self._reserve()
        except LockBackendError as failure:
            if self.task.lock_on_backend_error == "closed" and not self.ticking:
                raise
            signals.log_failure(self.task, self.new.id, "submission", failure)
            return mark(self.publish(self.new.id, self.new), duplicated=False)

    def _reserve(self) -> AsyncResult[Any]:
        job: Job | None = None
        result: AsyncResult[Any] | None = None
        while result is None:
            if job is None or at_submit(job) is Submit.RESERVE or self.is_void(job):
                if job is not None:
                    self.job = replace(self.job, last_success=job.last_success, late_until=max(job.late_until, job.due))
                done, job = self.job_record.put(job, self.job, SENDING_LEASE)
                if done and job is not None:
                    return self._send(job, None)
            else:
                result, job = self._on_existing(job)
        return result

    def _on_existing(self, job: Job) -> tuple[AsyncResult[Any] | None, Job | None]:
        """Handle a key that isn't free. Returns the caller's result, or the job to decide about next."""
        self._check_fingerprint(job)
        found = at_submit(job)
        if job.id == self.new.id:  # sent again under its own id, as by a retry in the worker's main process
            return mark(self.publish(job.id, replace(self.new, reserved=job.reserved)), duplicated=False), job
        if found is Submit.AWAIT:
            return None, self.job_record.wait_for_change(job, job.known.lease_left + 0.1)
        if found is Submit.REPEAT:
            # no caller has the id of the unconfirmed message; the id of this one may be known already
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
        if self._is_awaited() or job.awaited or not job.reserved or self.task.unique_until == "start":
            return self.duplicate(job, separate=True, sooner=times.due < job.due), job
        return self._resend(job, times)

    def _resend(self, job: Job, times: Times) -> tuple[AsyncResult[Any] | None, Job | None]:
        """Replace a queued message that starts too late or expires too early: send another one under the job's id."""
        own = self.times
        self.times, self.changes = times, {**times.options(), "retries": job.retries}
        first, late = job.first_reserved or job.reserved, max(job.late_until, job.due)
        again = job.in_state(
            "reserved", reserved=0, first_reserved=first, late_until=late, due=times.due, until=times.until
        )
        result, now = self._publish_instead(job, again, job)
        if result is None:  # another submission was first
            self.times, self.changes = own, {}
            return None, now
        arguments = {"task_id": job.id, "state": job.state}
        signals.send(signals.duplicate_suppressed, self.task, "a duplicate, sent again for its times", **arguments)
        return mark(result, duplicated=True), now

    def _replacement_for(self, job: Job, **changes: Any) -> Job:
        """This submission's job, as a replacement for another one."""
        late = max(job.late_until, job.due)
        return replace(
            self.job,
            first_reserved=job.first_reserved or job.reserved,
            last_success=job.last_success,
            late_until=late,
            **changes,
        )

    def _publish_instead(self, job: Job, new: Job, replaced: Job | None) -> tuple[AsyncResult[Any] | None, Job | None]:
        """Send a message that replaces one that was sent, or may have been."""
        done, now = self.job_record.put(job, new, SENDING_LEASE)
        if not done or now is None:
            return None, now
        self.job = new
        self.new = replace(self.new, id=new.id)
        return self._send(now, replaced), now

    def _send(self, reserved: Job, replaced: Job | None) -> AsyncResult[Any]:
        """Send the message of a reserved job, and record that."""
        version = reserved.known.version
        self.new = replace(self.new, reserved=version)
        try:
            result = self.publish(self.new.id, self.new, **self.changes)
        except BaseException as failure:
            self._not_sent(reserved, replaced, failure)
            raise
        queued = self.job.in_state("queued", reserved=version)
        try:
            self.job_record.put(reserved, queued, self.times.message_ttl(self.task))
        except LockBackendError as failure:  # the message was sent: the worker takes the key
            signals.log_failure(self.task, self.new.id, "submission", failure)
        return mark(result, duplicated=False)

    def _not_sent(self, reserved: Job, replaced: Job | None, failure: BaseException) -> None:
        try:
            if not isinstance(failure, _NOT_SENT):
                unsure = reserved.in_state("unsure", reserved=reserved.known.version)
                self.job_record.put(reserved, unsure, self.times.message_ttl(self.task))
            elif replaced is not None and self.task.unique_until != "start":  # where the replaced job may run already
                self.job_record.put(reserved, replaced.in_state("queued"), replaced.known.lease_left)
            else:
                self.job_record.drop(reserved)
        except LockBackendError as trouble:  # the key is free when the lease ends
            signals.log_failure(self.task, self.new.id, "submission", trouble)

    def _check_fingerprint(self, job: Job) -> None:
        if self.new.fingerprint != job.fingerprint and self.new.fingerprint and job.fingerprint:
            raise IdempotencyKeyReused(
                f"the idempotency_key of task {self.task.name} was given to a job with other arguments, {job.id}. "
                "Each job needs a key of its own",
                key=self.new.key,
                name=self.task.name,
                alias=self.task.lock_using,
            )

    def is_void(self, job: Job) -> bool:
        """Whether a job won't have a result: it was revoked while it was queued, and may never reach a worker; or its
        process died before it stored the result."""
        if job.state == "queued" and not self.task.ignore_result:
            return result_state_unless_slow(self.task, job.id) in READY_STATES
        if job.state == "done" and job.process and job.age > RESULT_DEADLINE:
            state = result_state_unless_slow(self.task, job.id)
            return bool(state) and state not in READY_STATES
        return False

    def _is_awaited(self) -> bool:
        """Whether a caller, a chord, a group, a chain or a callback waits for this task id."""
        return self.id_given or self.job.awaited

    def duplicate(self, job: Job, *, separate: bool = False, sooner: bool = False) -> AsyncResult[Any]:
        """The result of a submission whose job exists already.

        Args:
            job: the existing job.
            separate: send a message of its own, since the job's message starts too late or may expire before.
            sooner: the job's message starts too late.
        """
        if (self._is_awaited() or separate) and self.task.lock_on_duplicate != "raise":
            how = self.task.lock_canvas if self._is_awaited() else "follow"
            if how == "follow" and (sooner or not has_results(self.task)):
                how = "run"
            if how != "fail":
                new = (
                    replace(self.new, follows=job.id) if how == "follow" else replace(self.new, retry_on_conflict=True)
                )
                signals.send(
                    signals.duplicate_suppressed, self.task, "a duplicate follows", task_id=job.id, state=job.state
                )
                return mark(self.publish(new.id, new), duplicated=how == "follow")
        if (self.task.lock_on_duplicate == "raise" and not self.ticking) or self._is_awaited():
            raise DuplicateTask(
                f"task {self.task.name} is {job.state} already, as {job.id}",
                task_id=job.id,
                state=job.state,
                key=self.new.key,
                name=self.task.name,
                alias=self.task.lock_using,
            )
        arguments = {"task_id": job.id, "state": job.state}
        signals.send(signals.duplicate_suppressed, self.task, f"a duplicate: {describe(job)}", **arguments)
        return mark(self.task.AsyncResult(job.id), duplicated=True)


def mark(result: AsyncResult[Any], *, duplicated: bool) -> AsyncResult[Any]:
    """Set ``result.deduplicated``: whether the job had been submitted before."""
    result.deduplicated = duplicated  # type: ignore[attr-defined]
    return result
