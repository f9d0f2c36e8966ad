"""The steps of a fair lock: those of a mutex, but for the acquire.

The state in the store is that of a mutex. Each waiter has a line of its own: it is registered in the store with its own
token and terms, at the place that the arrival of its first request gave it, and whatever frees the lock grants it to the
first in line. ``lock/acquire_fair`` does so too, if it finds a free lock with waiters: a lease has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...core.commands import Command
from ...core.steps.locks import AcquireFair, FairWaiter
from .mutex_steps import MutexSteps, parse_acquire
from .requests import PreparedCommands

if TYPE_CHECKING:
    from ...core.queue_values import Attempt
    from .requests import Busy, ForeignValue, Granted


class FairSteps(MutexSteps):
    """The steps of one fair lock, as in ``LockSteps``."""

    kind = "fair"
    shares_line: ClassVar = False

    __slots__ = ()

    @property
    def _acquire_keys(self) -> tuple[str, ...]:
        """The keys of the lock, the fence counter, the waiters and perhaps the index."""
        lock, waiters, fence, *index = self.release_keys
        return lock, fence, waiters, *index

    def prepare(self) -> PreparedCommands:
        """Prepare the commands of the straight acquire and release, and keep them."""
        prepare = self._performer.prepare
        self.prepared = PreparedCommands(
            prepare("lock/acquire_fair", self._acquire_keys), prepare("lock/release", self.release_keys)
        )
        return self.prepared

    def acquire(self, token: str, holder: str, attempt: Attempt) -> Command[Granted | Busy | ForeignValue]:
        """Acquire the lock with a token, or register the waiter of the attempt."""
        waiter = None
        if attempt.entry is not None:
            waiter = FairWaiter(attempt.address, attempt.enqueued_at, self._performer.tuning.waiter_ttl)
        args = AcquireFair(token, self._options.lease, holder, waiter)
        return Command("lock/acquire_fair", self._acquire_keys, args, parse_acquire)
