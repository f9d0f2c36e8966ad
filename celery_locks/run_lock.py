"""The lock of a run: what the worker does with it, and ``self.lock``, which the body of the task sees."""

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
from .task_settings import redelivery_window, stores_result

if TYPE_CHECKING:
    from weakref import ref

    from django_redis_locks import Record

    from .header import Header
    from .job import Outcome
    from .job_record import JobRecord
    from .options import Duration, TaskOptions
    from .times import Times


class LossCallback:
    """What is done when the record of a run is lost."""

    def __init__(self, run: ref[RunHold]) -> None:
        self._run = run

    def at_once(self) -> None:
        """In the thread of the renewal."""
        held = self._run()
        if held is not None:
            held.abort()

    def __call__(self, _: Record) -> None:
        """In that of the notices, where receivers and the user's code may take their time."""
        held = self._run()
        if held is not None:
            held.lost()


class Successor:
    """The message that takes a run's key over when the run ends: its own retry, or the next job of the same key."""

    def __init__(self, id: str, tries: int, times: Times) -> None:
        self.id = id
        self.retries = tries
        self.times = times


class RunHold:
    """A run that has its key."""

    def __init__(self, task: TaskOptions, header: Header, job: Job, job_record: JobRecord) -> None:
        self.task = task
        self.header = header
        self.id = job.run
        self.job = job
        self.job_record = job_record
        self.successor: Successor | None = None
        self.done: Job | None = None
        """As it is recorded at the end, if its result counts and isn't stored yet."""
        self.thread = threading.get_ident()
        self.began = clock.now()
        self.ended = False

    @property
    def fence(self) -> int:
        return self.job.known.version

    def abort(self) -> None:
        """Raise LockLost in the body, if that is wanted and it still runs."""
        if self.task.lock_on_lost == "abort" and not self.ended:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(LockLost))

    def lost(self) -> None:
        task, react = self.task, type(self.task).lock_on_lost  # of an instance, a function would be bound
        signals.send(signals.lock_lost, task, "its lock was lost while it ran", task_id=self.job.id, fence=self.fence)
        if callable(react):
            react(task, RunLock(self))
        task.on_lock_lost()

    def abandon(self) -> None:
        """It is broken off while it takes its key: whether it has it already is found out."""
        with suppress(LockError):
            job = self.job_record.read()
            if job is not None and job.run == self.id:
                self.job_record.drop(job)

    def end(self, outcome: Outcome, *, requeued: bool) -> None:
        """Give the key back, or hand it to the message that comes next."""
        self.ended = True
        try:
            self._end(outcome, requeued)
        except LockError as failure:  # its lease frees the key
            signals.log_failure(self.task, self.job.id, "release", failure)
            return
        except BaseException:  # a time limit struck in between: once more, and then it is raised
            with suppress(LockError):
                self._end(outcome, requeued)
            raise
        signals.send(signals.lock_released, self.task, "its key is free", task_id=self.job.id, outcome=outcome)

    def _end(self, outcome: Outcome, requeued: bool) -> None:
        job, task = self.job, self.task
        if self.successor is not None:
            twin = job.merged_id if self.successor.id == job.id else ""
            times = self.successor.times
            successor = replace(
                job.requeued(), id=self.successor.id, retries=self.successor.retries, merged_id=twin, due=times.due
            )
            own = (
                self.successor.id == job.id
            )  # a retry; another one's message says whom it follows, as no second one would
            successor = replace(successor, until=times.until, awaited=job.awaited or not own)
            self.job_record.put(job, successor, times.message_ttl(task))
            return
        if requeued:
            self.job_record.put(job, job.requeued(), REQUEUED_LEASE)
            return
        ran = clock.now() - self.began
        rest = max(0.0, seconds(task.lock_min_hold) - ran)
        ttl = self._answers_for(outcome, ran)
        late = max(0.0, job.late_until - clock.wall()) + redelivery_window(task) if job.late_until else 0.0
        keep = max(rest, ttl, late, redelivery_window(task) if outcome else 0.0)
        if keep < 0.01:
            self.job_record.drop(job)
            return
        done = Job(
            "done",
            job.id,
            merged_id=job.merged_id,
            last_success=job.reserved or job.last_success if outcome == "success" else job.last_success,
            reserved=job.reserved if job.first else 0,
            first=job.first,
            fingerprint=job.fingerprint,
            late_until=job.late_until,
            process=job.process if outcome and self._result_counts(ttl) else "",
            retention=keep,
            min_hold_left=rest,
            ttl=ttl,
            outcome=outcome,
        )
        written, now = self.job_record.put(job, done, keep)
        if written and done.process:
            self.done = now

    def _result_counts(self, ttl: float) -> bool:
        """Whether the job is done only when its result is stored: its message comes back, or duplicates are answered."""
        task = self.task
        back = task.acks_late or getattr(task, "retry_on_worker_lost", False)  # the latter from Celery 5.7 on
        return bool(back or ttl) and stores_result(task)

    def confirm(self) -> None:
        """Its result is stored."""
        if self.done is None:
            return
        try:
            self.job_record.put(self.done, self.done.in_state("done", process=""), self.done.retention)
        except LockError as failure:  # a copy of its message looks for the result
            signals.log_failure(self.task, self.job.id, "confirmation", failure)

    def _answers_for(self, outcome: Outcome, ran: float) -> float:
        task = self.task
        ttl = seconds(task.idempotency_ttl)
        if task.unique_until == "expired":
            # versions are the store's clock in microseconds
            before = (self.job.known.version - self.job.reserved) / 1_000_000 if self.job.reserved else 0.0
            return max(0.0, ttl - before - ran)
        if outcome == "success" or (task.unique_until == "finish" and outcome):
            return ttl
        return 0.0


class RunLock:
    """The lock of the run that goes on."""

    def __init__(self, run: RunHold) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<RunLock {self._run.task.name} fence={self.fence}{' lost' if self.lost else ''}>"

    @property
    def key(self) -> str:
        return self._run.header.key

    @property
    def fence(self) -> int:
        """Grows with every run of this key: a store that refuses a smaller one is safe from a run that lost its lock."""
        return self._run.fence

    @property
    def lost(self) -> bool:
        """Whether the lease ended or the key was taken away, known without asking the store."""
        return self._run.job.known.lost

    @property
    def holder(self) -> Holder:
        """This run, as operators see it."""
        holder = self._run.job.holder
        assert holder is not None  # noqa: S101 - it runs
        return holder

    def ensure_held(self) -> None:
        """Go on only if the lock is held.

        Raises:
            LockLost: it isn't.
        """
        if self.lost:
            raise LockLost(
                f"task {self._run.task.name} lost its lock while it ran",
                key=self.key,
                name=self._run.task.name,
                alias=self._run.task.lock_using,
            )

    def extend(self, expire: Duration) -> None:
        """Let the lease last ``expire`` seconds from now, if it would end earlier: before a step in which nothing can be
        renewed.

        Raises:
            LockLost: it isn't held any more. LockBackendError: the store can't be reached.
        """
        self.ensure_held()
        run = self._run
        if not run.job_record.ref.touch(run.job.known, expire):
            raise LockLost(f"task {run.task.name} lost its lock while it ran", key=self.key, name=run.task.name)
