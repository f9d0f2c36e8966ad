"""What a submission may be refused with. Both pickle, as every error here: a result backend or a pool may have to."""

from __future__ import annotations

from django_redis_locks import LockError


class DuplicateTask(LockError):
    """The same job is queued or runs already, and the task says ``lock_on_duplicate="raise"``.

    Attributes:
        task_id: of the job that is there.
        state: of it: ``"queued"``, ``"running"`` or ``"done"``.
    """

    def __init__(self, message: str = "", *, task_id: str = "", state: str = "", **about: str | None) -> None:
        super().__init__(message, **about)
        self.task_id = task_id
        self.state = state


class IdempotencyKeyReused(LockError, ValueError):
    """The same ``idempotency_key`` came with other arguments: two different jobs were given one key."""
