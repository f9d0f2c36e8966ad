"""The lock of a run: ``RunHold``, which the worker uses, and ``RunLock``, which is ``self.lock`` in a task's body."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from django_redis_locks import Holder, LockError, LockLost, clock

from . import signals
from .job import Job
from .job_record import REQUEUED_LEASE
from .options import seconds
from .run_permit import release_permit
from .task_settings import redelivery_window, stores_result

if TYPE_CHECKING:
    from weakref import ref

    from django_redis_locks import Grant, Record

    from .header import Header
    from .job import Outcome
    from .job_record import JobRecord
    from .options import Duration, TaskOptions
    from .times import Times


class LossCallback:
    """Called when a run loses its record or its permit, and with it the lock.

    Attributes:
        run: the run, when it has both.
    """

    def __init__(self, run: ref[RunHold] | None = None) -> None:
        self.run = run

    def at_once(self) -> None:
        """Interrupt the body, if ``lock_on_lost`` is ``"abort"``. Called in the thread that renews leases."""
        held = self._held()
        if held is not None:
            held.abort()

    def __call__(self, _: Record | Grant) -> None:
        """Send ``lock_lost`` and call the task's callbacks, which may block. Called in the thread for notifications."""
        held = self._held()
        if held is not None:
            held.lost()

    def _held(self) -> RunHold | None:
        return None if self.run is None else self.run()


class Successor:
    """The message that gets a run's key when the run ends: its own retry, or the next job of the same key."""

    def __init__(self, id: str, retries: int, times: Times) -> None:
        self.id = id
        self.retries = retries
        self.times = times


class RunHold:
    """The hold of a run on its key, until the run ends.

    Args:
        task: the task, with the options of this call.
        header: the header of the message.
        job: the job that runs.
        job_record: the record of the run.
        permit: one of the ``lock_limit`` permits of the key, if there are several.
    """

    def __init__(
        self, task: TaskOptions, header: Header, job: Job, job_record: JobRecord, permit: Grant | None
    ) -> None:
        self.task = task
        self.header = header
        self.id = job.run_id
        self.job = job
        self.job_record = job_record
        self.permit = permit
        self.successor: Successor | None = None
        self.done: Job | None = None
        """The job as recorded at the end, if the storing of its result remains to be confirmed."""
        self.thread = threading.get_ident()
        self.began = clock.now()
        self.ended = False
        self._loss_reported = False

    @property
    def is_lost(self) -> bool:
        """Whether the record or the permit is lost, as far as this process knows."""
        return self.job.stored_record.lost or (self.permit is not None and self.permit.lost)

    @property
    def fence(self) -> int:
        """The fencing token of the run: the version of its record."""
        return self.job.stored_record.version

    def abort(self) -> None:
        """Raise LockLost in the body while it runs, if ``lock_on_lost`` is ``"abort"``."""
        if self.task.lock_on_lost == "abort" and not self.ended:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(LockLost))

    def lost(self) -> None:
        """Report the loss of the lock, once: to the signal, to ``lock_on_lost`` and to ``on_lock_lost``."""
        if self._loss_reported:
            return
        self._loss_reported = True
        task, react = self.task, type(self.task).lock_on_lost  # on an instance, a function would be bound
        signals.send(signals.lock_lost, task, "its lock was lost while it ran", task_id=self.job.id, fence=self.fence)
        if callable(react):
            react(task, RunLock(self))
        task.on_lock_lost()

    def abandon(self) -> None:
        """Release the key after taking it was interrupted, if this run has it already."""
        with suppress(LockError):
            job = self.job_record.read()
            if job is not None and job.run_id == self.id:
                self.job_record.drop(job)

    def end(self, outcome: Outcome, *, requeued: bool) -> None:
        """Release the key, or pass it to the next message."""
        self.ended = True
        try:
            if self.permit is not None:  # first: as long as the record names it, the main process can give it back
                release_permit(self.task, self.job.id, self.permit)
        finally:
            self._end_record(outcome, requeued)

    def _end_record(self, outcome: Outcome, requeued: bool) -> None:
        try:
            self._end(outcome, requeued)
        except LockError as failure:  # the key is free when the lease ends
            signals.log_failure(self.task, self.job.id, "release", failure)
            return
        except BaseException:  # interrupted by a time limit: repeat the release, then raise
            with suppress(LockError):
                self._end(outcome, requeued)
            raise
        signals.send(signals.lock_released, self.task, "its key is free", task_id=self.job.id, outcome=outcome)

    def _end(self, outcome: Outcome, requeued: bool) -> None:
        job, task = self.job, self.task
        if self.successor is not None:
            times = self.successor.times
            is_retry = self.successor.id == job.id  # otherwise the message names this run in its header
            successor = replace(
                job.requeued(),
                id=self.successor.id,
                retries=self.successor.retries,
                merged_id=job.merged_id if is_retry else "",
                due=times.due,
                until=times.until,
                awaited=job.awaited or not is_retry,
            )
            self.job_record.put(job, successor, times.message_ttl(task))
            return
        if requeued:
            self.job_record.put(job, job.requeued(), REQUEUED_LEASE)
            return
        run_time = clock.now() - self.began
        min_hold_left = max(0.0, seconds(task.lock_min_hold) - run_time)
        ttl = self._result_ttl(outcome, run_time)
        late = max(0.0, job.late_until - clock.wall()) + redelivery_window(task) if job.late_until else 0.0
        retention = max(min_hold_left, ttl, late, redelivery_window(task) if outcome else 0.0)
        if retention < 0.01:
            self.job_record.drop(job)
            return
        done = Job(
            "done",
            job.id,
            merged_id=job.merged_id,
            last_success=job.reserved or job.last_success if outcome == "success" else job.last_success,
            reserved=job.reserved if job.first_reserved else 0,
            first_reserved=job.first_reserved,
            fingerprint=job.fingerprint,
            late_until=job.late_until,
            process=job.process if outcome and self._needs_stored_result(ttl) else "",
            retention=retention,
            min_hold_left=min_hold_left,
            ttl=ttl,
            outcome=outcome,
        )
        written, recorded = self.job_record.put(job, done, retention)
        if written and done.process:
            self.done = recorded

    def _needs_stored_result(self, ttl: float) -> bool:
        """Whether the job isn't done before its result is stored, since its message may be redelivered, or duplicates
        get that result."""
        task = self.task
        may_return = task.acks_late or getattr(task, "retry_on_worker_lost", False)  # the latter from Celery 5.7 on
        return bool(may_return or ttl) and stores_result(task)

    def confirm(self) -> None:
        """Record that the result is stored."""
        if self.done is None:
            return
        try:
            self.job_record.put(self.done, self.done.in_state("done", process=""), self.done.retention)
        except LockError as failure:  # a copy of its message reads the result backend
            signals.log_failure(self.task, self.job.id, "confirmation", failure)

    def _result_ttl(self, outcome: Outcome, run_time: float) -> float:
        """Seconds for which new submissions get the result of this run."""
        task = self.task
        ttl = seconds(task.idempotency_ttl)
        if task.unique_until == "expired":
            # Versions are times of the store's clock in microseconds
            time_in_queue = (
                (self.job.stored_record.version - self.job.reserved) / 1_000_000 if self.job.reserved else 0.0
            )
            return max(0.0, ttl - time_in_queue - run_time)
        if outcome == "success" or (task.unique_until == "finish" and outcome):
            return ttl
        return 0.0


class RunLock:
    """The lock of the current run: ``self.lock`` in the body of a task.

    ::

        @shared_task(base=SingletonTask, bind=True)
        def charge(self, order_id):
            self.lock.ensure_held()
            save(order_id, fence=self.lock.fence)

    Attributes:
        key: the key of the job.
        fence: the fencing token of the run.
        lost: whether the lock was lost.
        holder: host, process and thread of this run.
    """

    def __init__(self, run: RunHold) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<RunLock {self._run.task.name} fence={self.fence}{' lost' if self.lost else ''}>"

    @property
    def key(self) -> str:
        """The key of the job."""
        return self._run.header.key

    @property
    def fence(self) -> int:
        """The fencing token, which is larger for each later run of this key. A database that refuses smaller tokens
        refuses the writes of a run that has lost its lock."""
        return self._run.fence

    @property
    def lost(self) -> bool:
        """Whether the lease ended or the key was released by force, as far as this process knows. Sends no request."""
        return self._run.is_lost

    @property
    def holder(self) -> Holder:
        """This run, as operators see it."""
        holder = self._run.job.holder
        assert holder is not None  # noqa: S101 - the job runs
        return holder

    def ensure_held(self) -> None:
        """Raise if the lock was lost. Sends no request.

        Raises:
            LockLost: the lock isn't held any more.
        """
        if self.lost:
            raise LockLost(
                f"task {self._run.task.name} lost its lock while it ran",
                key=self.key,
                name=self._run.task.name,
                alias=self._run.task.lock_using,
            )

    def extend(self, expire: Duration) -> None:
        """Extend the lease, before a step during which it can't be renewed, such as a call that blocks the interpreter.

        Args:
            expire: seconds from now for which the lease lasts at least. A lease that already lasts longer isn't
                changed.

        Raises:
            LockLost: the lock isn't held any more.
            LockBackendError: the store can't be reached.
            ValueError: ``expire`` isn't a duration.
        """
        self.ensure_held()
        run = self._run
        if run.permit is not None:
            run.permit.extend(expire)
        if not run.job_record.ref.touch(run.job.stored_record, expire):
            raise LockLost(f"task {run.task.name} lost its lock while it ran", key=self.key, name=run.task.name)
