"""Commands that the janitor sends for nobody who waits: what unanswered requests may have left is deleted, a place in the
store's line is given up, a wake-up is passed on. Each may be repeated, and is while the store can't be reached."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from ..core import clock
from ..core.effects import NotifyWaiters
from ..core.errors import LockBackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.base import Backend
    from ..core.commands import Command
    from ..core.effects import Cleanup
    from ..core.keys import LockId
    from ..core.tuning import Tuned

BATCH = 500
"""Commands in one write: some 50 kB, and some ms of the server's time."""


class CleanupQueue:
    """What is to be sent to one store, and when. Only the janitor's thread touches it."""

    def __init__(self, backend: Backend, notify_waiters: Callable[[NotifyWaiters], object], engine: Tuned) -> None:
        self._backend = backend
        self._notify_waiters = notify_waiters
        self._engine = engine
        self._due: list[tuple[float, int, Command[int], LockId, float]] = []
        self._count = itertools.count().__next__

    def sweep(self, effect: Cleanup) -> None:
        now = clock.now()
        # It counts as freed for us alone, whoever was told: a late copy of our request took us out of the line with it
        delete = replace(effect.delete, parse=lambda reply: bool(effect.delete.parse(reply)))
        for after in (*self._engine.tuning.cleanup_delays, effect.lease):
            self._schedule(now + after, delete, effect.lock_id, now + effect.lease)

    def send(self, command: Command[int], lock_id: LockId) -> None:
        now = clock.now()
        self._schedule(now, command, lock_id, now + self._engine.tuning.max_poll_interval)

    def _schedule(self, due: float, command: Command[int], lock_id: LockId, end: float) -> None:
        heapq.heappush(self._due, (due, self._count(), command, lock_id, end))

    def next_due(self) -> float:
        """When the next one is due; infinity if there is none."""
        return self._due[0][0] if self._due else inf

    def run(self, now: float, until: float) -> None:
        """Send what is due; a silent server is waited for until then."""
        due: list[tuple[Command[int], LockId, float]] = []
        while self._due and self._due[0][0] <= now and len(due) < BATCH:
            due.append(heapq.heappop(self._due)[2:])
        if not due:
            return
        replies: list[Any]
        try:
            patience = max(0.05, min(self._engine.tuning.maintenance_timeout, until - clock.now()))
            replies = self._backend.call_many([command for command, _, _ in due], patience)
        except Exception as error:  # noqa: BLE001 - whatever it is, these are tried again
            replies = [LockBackendError(repr(error))] * len(due)
        again = clock.now() + 1.0
        for (command, lock_id, end), reply in zip(due, replies, strict=True):
            try:
                if isinstance(reply, LockBackendError):
                    raise reply
                freed = command.read(reply)
            except LockBackendError:
                if again < end:  # the store is down: until the lease is over by itself
                    self._schedule(again, command, lock_id, end)
                continue
            if freed:
                self._notify_waiters(NotifyWaiters(lock_id, freed > 1))
