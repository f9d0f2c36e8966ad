"""``DeliveredTask``: takes the key of a delivered message in the worker, or decides how its delivery ends without a
run.

``start`` reads the record of the key, gets a verdict on it from ``decisions``, chooses an action by ``_action`` and
performs it, until the message has its key or an action ends the delivery. ``run`` then runs the task, or calls
``end_delivery``. No action raises an error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from celery.states import READY_STATES

from django_redis_locks import LockBackendError, LockNotAcquired, clock

from . import signals
from .actions import Action, Drop, Ending, Follow, Redeliver, Revoke, RunAfter, StopFollowing, Take, Wait
from .call_options import with_options
from .decisions import Verdict, at_start
from .following import result_backoff, take_result
from .header import Header, Message, header_in
from .job_record import record_of, run_record_of
from .keys import key_of
from .on_conflict import on_conflict, on_no_permit, permit_wait
from .options import is_unique_until_start
from .run_lock import LossCallback, RunHold
from .run_permit import release_permit, take_permit
from .take_key import take_key
from .task_settings import MAX_PAUSE, RESULT_DEADLINE, has_results, result_state

if TYPE_CHECKING:
    from django_redis_locks import Grant

    from .job import Job
    from .options import TaskOptions

PREDECESSOR_WAIT: Final = 5.0
"""Seconds for which a message waits for the end of the run that sent it, or for a newer submission to be sent."""


class DeliveredTask:
    """A message that a worker is about to run.

    Attributes:
        task: the task, with the options of this call.
        header: the message's header, or a new one. It changes with what is decided for the message.
        run_record: the record of the job's run.
        waited: seconds that the message has waited for its key in this worker.
        may_follow: whether the message may take the result of another job.
    """

    def __init__(self, task: TaskOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        request = task.request
        id = str(request.id)
        self.id = id
        self.retries = request.retries or 0
        self.redelivered = bool((request.delivery_info or {}).get("redelivered"))
        self.header = header_in(request.headers, id) or Header(key_of(task, args, kwargs, None)[0], id)
        self.task = with_options(task, self.header.options)
        self.run_record = run_record_of(task, self.header.key, id)
        self.permit: Grant | None = None
        self.waited = 0.0
        self.may_follow = True
        self.predecessor_until = 0.0

    def start(self) -> RunHold | Ending:
        """Take the key and return its hold, or return how the delivery ends without a run."""
        try:
            return self._start()
        except LockBackendError as failure:  # a job never runs without its lock
            signals.log_failure(self.task, self.id, "start", failure)
            return Redeliver(min(2.0 ** min(self.header.redeliveries, 5), MAX_PAUSE), "the store of the locks is down")
        finally:
            self._give_permit_back()  # unless a run has it

    def _start(self) -> RunHold | Ending:
        job: Job | None = None  # what the record has; the first attempt to take the key reads it
        action = Follow(self.header.follows) if self.header.follows else self._first_action()
        if self.task.lock_limit > 1 and isinstance(action, Take):  # a copy needs no permit
            job = self.run_record.read()
            action = self._next_action(job)
        while True:
            match action:
                case Take():
                    taken = self._take(job)
                    if isinstance(taken, RunHold):
                        return taken
                    action, job = taken
                case Wait(seconds, for_key):
                    began = clock.now()
                    job = self.run_record.wait_for_change(job, seconds)
                    self.waited += clock.now() - began if for_key else 0.0
                    action = self._next_action(job)
                case RunAfter():
                    self.header = replace(self.header, reserved=0, retry_on_conflict=True)
                    action = self._next_action(job)
                case Follow(leader):
                    self.header = replace(self.header, follows=leader)
                    action = take_result(self.task, self.header)
                case StopFollowing():
                    self.may_follow = False
                    self.header = replace(self.header, follows="", retry_on_conflict=True)
                    job = None
                    action = self._first_action()
                case _:
                    return action

    def _take(self, job: Job | None) -> RunHold | tuple[Action, Job | None]:
        """Take the key, and before it the permit if ``lock_limit`` is above 1. Return the hold, or what to do instead and
        what the record has now."""
        loss = LossCallback()
        if self.task.lock_limit > 1:
            refusal = self._take_permit(loss)
            if refusal is not None:
                return refusal, job
        held, job = take_key(
            self.task,
            self.header,
            self.run_record,
            job,
            retries=self.retries,
            awaited=self._is_awaited(),
            permit=self.permit,
        )
        if held is None:
            self._give_permit_back()
            return self._next_action(job), job
        loss.run, self.permit = ref(held), None
        return held

    def _take_permit(self, loss: LossCallback) -> Action | None:
        """Take a permit, and return None; or what to do without one."""
        wait = permit_wait(self.task, self.header, self.waited)
        try:
            self.permit = take_permit(self.task, self.header.key, self.id, wait, loss)
        except LockNotAcquired as busy:
            self.waited += busy.waited
            return on_no_permit(self.task, self.header, busy, self.waited)
        return None

    def _give_permit_back(self) -> None:
        permit, self.permit = self.permit, None
        if permit is not None:
            release_permit(self.task, self.id, permit)

    def _first_action(self) -> Action:
        """Take the key. With ``unique_until="start"`` the queue has a record of its own, which may say that the message
        was replaced."""
        self.predecessor_until = clock.now() + PREDECESSOR_WAIT
        if is_unique_until_start(self.task):
            queued = record_of(self.task, self.header.key).read()
            verdict = at_start(queued, self._message())
            if queued is not None and verdict is Verdict.SENDING:
                return _redeliver_after_lease(verdict, queued)
            if queued is not None and verdict in (Verdict.SUPERSEDED, Verdict.STALE):
                return self._action(verdict, queued)
        return Take()

    def _next_action(self, job: Job | None) -> Action:
        return Take() if job is None else self._action(at_start(job, self._message()), job)

    def _message(self) -> Message:
        return Message(self.id, self.retries, self.redelivered, self.header)

    def _action(self, verdict: Verdict, job: Job) -> Action:
        """The action for a verdict on the message, given the job in the record."""
        match verdict:
            case Verdict.RUN:
                return Take()
            case Verdict.CONFLICT:
                return on_conflict(self.task, self.header, job, self.waited)
            case Verdict.FOLLOWING | Verdict.SENDING:
                left = self.predecessor_until - clock.now()
                return Wait(left) if left > 0 else _redeliver_after_lease(verdict, job)
            case Verdict.REDELIVER:
                return self._run_elsewhere(job)
            case Verdict.UNSTORED:
                return self._unstored(job)
            case Verdict.ANSWERED:
                return self._answered(job)
            case Verdict.SUPERSEDED | Verdict.OVERTAKEN:
                return self._replaced(verdict, job)
            case Verdict.ENDED:
                return _run_before(job)
            case Verdict.STALE:
                return Drop(verdict.value)

    def _run_elsewhere(self, job: Job) -> Action:
        """Another copy of the message is run, or a run that completes this message too."""
        if job.merged_id == self.id and self._may_take_result(job) and self._can_follow():
            return Follow(job.id)
        return _redeliver_after_lease(Verdict.REDELIVER, job, is_copy=job.id == self.id)

    def _unstored(self, job: Job) -> Action:
        """The job is done without a confirmed result: its process may be storing it, or has died."""
        state = result_state(self.task, self.id)
        if state in READY_STATES:
            return _run_before(job)
        if state and job.seconds_since_end > RESULT_DEADLINE:
            return Take()
        return Redeliver(result_backoff(self.header), "its result isn't known to be stored", is_copy=True)

    def _answered(self, job: Job) -> Action:
        """Another message of the same job was run."""
        if not self._may_take_result(job):
            return Take()
        return Follow(job.id) if self._can_follow() else _run_before(job)

    def _replaced(self, verdict: Verdict, job: Job) -> Action:
        """A later submission replaced the message, or was run before it. ``lock_canvas`` decides for a message that a
        canvas or a callback waits for."""
        task, overtaken, awaited = self.task, verdict is Verdict.OVERTAKEN, self._is_awaited()
        if overtaken and has_results(task) and result_state(task, self.id) in READY_STATES:
            return Drop(Verdict.ENDED.value)  # it is a late copy of a message that was run
        done_by_later = overtaken and task.lock_on_duplicate != "replace"  # not replaced, so its result counts
        if self._can_follow() and (task.lock_canvas == "follow" if awaited else done_by_later):
            return Follow(job.id)
        if awaited and task.lock_canvas != "fail":
            return RunAfter()
        return Revoke("a later submission of the same job was run" if overtaken else f"superseded by {job.id}")

    def _can_follow(self) -> bool:
        return self.may_follow and has_results(self.task)

    def _may_take_result(self, job: Job) -> bool:
        """Whether this message may take that job's result. With ``lock_on_duplicate="replace"`` a message that was
        merged into another run is run anyway: its arguments are the newest."""
        return self.may_follow and not (job.merged_id == self.id and self.task.lock_on_duplicate == "replace")

    def _is_awaited(self) -> bool:
        """Whether a canvas or a callback waits for this task id, so that the task needs a result even if another
        message replaced this one."""
        request = self.task.request
        return bool(request.chord or request.group or request.chain or request.callbacks or request.errbacks)


def _redeliver_after_lease(verdict: Verdict, job: Job, *, is_copy: bool = False) -> Redeliver:
    return Redeliver(min(job.stored_record.lease_left, MAX_PAUSE) + 0.2, verdict.value.partition(":")[0], is_copy)


def _run_before(job: Job) -> Drop:
    return Drop(f"it was run to its end before, as {job.id}")
