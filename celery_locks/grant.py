"""``self.lock``: what the body of a task knows of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_redis_locks import Holder, LockLost

if TYPE_CHECKING:
    from .options import Duration
    from .run_lock import RunHold


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
        holder = self._run.job.who
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
        if not run.place.ref.touch(run.job.known, expire):
            raise LockLost(f"task {run.task.name} lost its lock while it ran", key=self.key, name=run.task.name)
