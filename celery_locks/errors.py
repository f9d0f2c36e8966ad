"""Errors that a submission raises. They can be pickled, which result backends and worker pools require."""

from __future__ import annotations

from django_redis_locks import LockError


class DuplicateTask(LockError):
    """The same job is queued, runs or is done already, and the task has ``lock_on_duplicate="raise"``.

    Attributes:
        task_id: the id of the existing job.
        state: its state: ``"queued"``, ``"running"`` or ``"done"``.
        retry_after: seconds after which the job can be submitted again: the rest of the lease of a job that runs, which
            is renewed until its end, or of the ``idempotency_ttl`` of one that is done. None if it is queued.
    """

    def __init__(
        self,
        message: str = "",
        *,
        task_id: str = "",
        state: str = "",
        retry_after: float | None = None,
        **context: str | None,
    ) -> None:
        super().__init__(message, **context)
        self.task_id = task_id
        self.state = state
        self.retry_after = retry_after


class IdempotencyKeyReused(LockError, ValueError):
    """The same ``idempotency_key`` was used before with other arguments: each job needs its own key."""
