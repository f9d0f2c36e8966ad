"""``DeliveredTask``: takes the key of a delivered message in the worker, or ends the delivery without a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn
from weakref import ref

from celery.states import EXCEPTION_STATES, READY_STATES, REVOKED
from celery.utils import uuid

from django_redis_locks import LockBackendError, clock

from . import signals
from .decisions import Verdict, at_start
from .header import Header, Message, header_in
from .job import WAITING, Job
from .job_record import record_of, run_record_of
from .keys import key_of
from .on_conflict import MAX_PAUSE, Delivery
from .run_lock import LossCallback, RunHold
from .task_settings import RESULT_DEADLINE, has_results, holder_here, max_hold_of, process_digest, result_state

if TYPE_CHECKING:
    from .options import TaskOptions

PREDECESSOR_WAIT: Final = 5.0
"""Seconds for which a message waits for the end of the run that sent it, or for a newer submission to be sent."""


class DeliveredTask(Delivery):
    """A message that a worker is about to run."""

    def __init__(self, task: TaskOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        request = task.request
        id = str(request.id)
        known = header_in(request.headers, id)
        header = known or Header(key_of(task, args, kwargs, None)[0], id)
        redelivered = bool((request.delivery_info or {}).get("redelivered"))
        message = Message(id, request.retries or 0, redelivered, known)
        super().__init__(task, message, header, run_record_of(task, header.key))
        self.result: Any = None

    def begin(self) -> RunHold | None:
        """Take the key and return its hold. Returns None if this message takes the result of another job instead, which
        ``header.follows`` names.

        Raises:
            Ignore: the delivery is ended.
            LockNotAcquired: another job has the key, and ``lock_on_conflict`` raises.
        """
        while True:
            try:
                return self._begin()
            except LockBackendError as failure:
                self._redeliver_after_failure(failure)

    def _begin(self) -> RunHold | None:
        """Try to take the key, and act on the verdict about the job that has it, until either ends the loop."""
        if self.task.unique_until == "start":
            self._check_replaced()
        job: Job | None = None  # read by the first attempt to take the key
        until = clock.now() + PREDECESSOR_WAIT
        while not self.header.follows:
            verdict = at_start(job, self.message)
            if job is not None and verdict is Verdict.UNSTORED:
                verdict = self._check_stored(job)
            if (
                job is None
                or verdict is Verdict.RUN
                or (verdict is Verdict.ANSWERED and not self._may_take_result(job))
            ):
                held, job = self._take(job)
                if held is not None:
                    return held
            elif verdict in (Verdict.FOLLOWING, Verdict.SENDING) and clock.now() < until:
                job = self.job_record.wait_for_change(job, max(0.0, until - clock.now()))
            else:
                job = self._handle(verdict, job)
        return None

    def _check_stored(self, job: Job) -> Verdict:
        """The verdict on a copy of a job that is done without a confirmed result: its process may be storing it, or has
        died."""
        state = result_state(self.task, self.message.id)
        if state in READY_STATES:
            return Verdict.ENDED
        return Verdict.RUN if state and job.seconds_since_end > RESULT_DEADLINE else Verdict.UNSTORED

    def _handle(self, verdict: Verdict, job: Job) -> Job | None:
        """Handle a verdict other than ``RUN``: raise ``Ignore``, or return the job that the record has now."""
        if verdict is Verdict.CONFLICT:
            return self._conflict(job)
        if verdict is Verdict.OVERTAKEN and self._has_result():
            self._ignore(Verdict.ENDED.value)  # it is a late copy of a message that was run
        replaced_but_awaited = verdict in (Verdict.SUPERSEDED, Verdict.OVERTAKEN) and self._is_awaited()
        follows = self.task.lock_canvas == "follow" if replaced_but_awaited else self._done_by_later_submission(verdict)
        if self._is_answer(verdict, job) or (follows and self._can_follow()):
            self.header = replace(self.header, follows=job.id)
        elif replaced_but_awaited and self.task.lock_canvas != "fail":  # it is run after the other message
            self.header = replace(self.header, reserved=0, retry_on_conflict=True)
            self.message = replace(self.message, header=self.header)
        else:
            self._end_without_run(verdict, job)
        return job

    def _done_by_later_submission(self, verdict: Verdict) -> bool:
        """Whether a later submission of the same job was run in place of this one, without replacing it."""
        return verdict is Verdict.OVERTAKEN and self.task.lock_on_duplicate != "replace"

    def _has_result(self) -> bool:
        return has_results(self.task) and result_state(self.task, self.message.id) in READY_STATES

    def _end_without_run(self, verdict: Verdict, job: Job) -> NoReturn:
        """End the delivery by a redelivery, a revocation or ``Ignore``, as the verdict requires."""
        if verdict is Verdict.UNSTORED:
            self.header = replace(self.header, is_copy=True)
            self._redeliver(self._backoff(), "its result isn't known to be stored")
        if verdict in (Verdict.REDELIVER, Verdict.FOLLOWING, Verdict.SENDING):
            copy = verdict is Verdict.REDELIVER and job.id == self.message.id
            self.header = replace(self.header, is_copy=copy or self.header.is_copy)
            self._redeliver(min(job.stored_record.lease_left, MAX_PAUSE) + 0.2, verdict.value.partition(":")[0])
        if verdict is Verdict.SUPERSEDED:
            self._revoke(f"superseded by {job.id}")
        if verdict is Verdict.OVERTAKEN:
            self._revoke("a later submission of the same job was run")
        self._ignore(verdict.value if verdict is Verdict.STALE else f"it was run to its end before, as {job.id}")

    def _is_answer(self, verdict: Verdict, job: Job) -> bool:
        """Whether this job's result is the result of this message."""
        has_its_result = verdict is Verdict.ANSWERED or (
            verdict is Verdict.REDELIVER and job.merged_id == self.message.id
        )
        return has_its_result and self._may_take_result(job) and self._can_follow()

    def _may_take_result(self, job: Job) -> bool:
        """Whether this message may take that job's result. With ``lock_on_duplicate="replace"`` a message that was
        merged into another run is run anyway: its arguments are the newest."""
        return self.may_follow and not (job.merged_id == self.message.id and self.task.lock_on_duplicate == "replace")

    def _check_replaced(self) -> None:
        """With ``unique_until="start"``: end the delivery if the queue's record says that the message was replaced."""
        job = record_of(self.task, self.header.key).read()
        verdict = at_start(job, self.message)
        if job is not None and verdict in (Verdict.SENDING, Verdict.SUPERSEDED, Verdict.STALE):
            self._handle(verdict, job)

    def _is_awaited(self) -> bool:
        """Whether a canvas or a callback waits for this task id, so that the task needs a result even if another
        message replaced this one."""
        task_request = self.task.request
        return bool(
            task_request.chord
            or task_request.group
            or task_request.chain
            or task_request.callbacks
            or task_request.errbacks
        )

    def _merged_message(self, previous: Job | None) -> str:
        """The id of another message of the same job that this run completes too; "" if there is none."""
        task = self.task
        if previous is None:
            return ""
        if previous.id == self.message.id:
            return previous.merged_id
        runs_every_message = task.lock_on_duplicate == "queue" or task.unique_until == "start"
        return previous.id if previous.state in WAITING and not runs_every_message else ""

    def _take(self, previous: Job | None) -> tuple[RunHold | None, Job | None]:
        """Try to take the key from the job that the record has. Returns the hold, or None; and the job that the record
        has now."""
        task, header = self.task, self.header
        merged_id = self._merged_message(previous)
        same_job = (
            previous
            if previous is not None and (merged_id or self.message.id in (previous.id, previous.merged_id))
            else None
        )
        job = Job(
            "running",
            self.message.id,
            run_id=uuid(),
            retries=self.message.retries,
            reserved=header.reserved if same_job is None else max(header.reserved, same_job.reservation),
            first_reserved=0 if same_job is None or (merged_id and not same_job.sent) else same_job.first_reserved,
            merged_id=merged_id,
            last_success=0 if previous is None else previous.last_success,
            awaited=self._is_awaited(),
            until=0.0 if previous is None or previous.id != self.message.id else previous.until,
            late_until=0.0 if previous is None else max(previous.late_until, previous.due),
            fingerprint=header.fingerprint,
            process=process_digest(),
            holder_fields=holder_here(task),
        )
        held = RunHold(task, header, job, self.job_record)
        try:
            # The lease is renewed for as long as the record is referenced, so the callback has only a weak reference
            written, current = self.job_record.put_renewed(
                previous, job, task.lock_expire, max_hold_of(task), LossCallback(ref(held))
            )
            if not written or current is None:
                return None, current
            held.job = current
            if task.unique_until == "start":
                self._leave_queue()
        except BaseException:
            held.abandon()
            raise
        signals.send(signals.lock_acquired, task, "it has its key", task_id=job.id, fence=held.fence)
        return held, current

    def _leave_queue(self) -> None:
        """Delete the queue's record of this job, so that a submission from now on is another job."""
        queue = record_of(self.task, self.header.key)
        job = queue.read()
        while job is not None and job.id == self.message.id and not queue.drop(job):
            job = queue.read()  # its submission was confirmed between read and drop

    def take_result(self) -> bool:
        """Take the result of the job that this one follows.

        Returns:
            True if there is a result, which is then in ``self.result``; False if there will never be one.

        Raises:
            Ignore: there may be a result later, so the message is redelivered.
            Exception: that job's exception, if it failed.
        """
        task, leader = self.task, self.header.follows
        if task.request.is_eager:
            self._ignore(f"it is the same job as {leader}")
        meta = task.backend.get_task_meta(leader)
        revoked = meta["status"] == REVOKED
        if meta["status"] in READY_STATES and not revoked:
            if meta["status"] in EXCEPTION_STATES:
                raise meta["result"]
            self.result = meta["result"]
            return True
        try:
            job = self._leader_job()
        except LockBackendError as failure:
            self._redeliver_after_failure(failure)
        if revoked:
            if job is None or job.id in (leader, self.message.id):
                return self._stop_following()  # only that task was revoked, as when it has expired and this one hasn't
            self.header = replace(self.header, follows=job.id)  # the job that replaced the revoked one
            return self.take_result()
        is_active = job is not None and (
            leader in (job.id, job.merged_id) or (job.run_id and job.run_id == self.header.submitted_by)
        )
        if job is not None and is_active and not (job.state == "done" and job.seconds_since_end > RESULT_DEADLINE):
            self._redeliver(self._backoff(), f"it follows {leader}")
        return self._stop_following()

    def _stop_following(self) -> bool:
        """Let this message be run itself, since there is no result to take. Returns False for ``take_result``."""
        self.may_follow = False
        self.header = replace(self.header, follows="", retry_on_conflict=True)
        return False

    def _leader_job(self) -> Job | None:
        """The job that this one follows, or the one in its record now. With ``unique_until="start"`` a job leaves the
        queue's record when it runs."""
        leader = self.header.follows
        job = record_of(self.task, self.header.key).read()
        if self.task.unique_until == "start" and (job is None or leader not in (job.id, job.merged_id)):
            run = self.job_record.read()
            return run if run is not None and leader in (run.id, run.merged_id) else job
        return job
