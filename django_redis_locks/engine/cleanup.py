"""The cleanup queue: commands that the maintenance thread sends in the background. They delete the tokens of unanswered
requests, unregister waiters and pass wake-ups on. Each command is idempotent, and is repeated while the store can't be
reached."""

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
"""The largest number of commands in one write: about 50 kB, and a few milliseconds of the server's time."""


class CleanupQueue:
    """The commands to send to one store, each at a time. Used by the maintenance thread only."""

    def __init__(self, backend: Backend, notify_waiters: Callable[[NotifyWaiters], object], engine: Tuned) -> None:
        self._backend = backend
        self._notify_waiters = notify_waiters
        self._engine = engine
        self._due: list[tuple[float, int, Command[int], LockId, float]] = []
        self._count = itertools.count().__next__

    def add(self, effect: Cleanup) -> None:
        """Schedule the command of a cleanup at each of the ``cleanup_delays``, and after the lease."""
        now = clock.now()
        # bool: a freed lock counts as freed without waking another process, so that this process's waiters try at once.
        # A late copy of the request may have unregistered them
        delete = replace(effect.delete, parse=lambda reply: bool(effect.delete.parse(reply)))
        for after in (*self._engine.tuning.cleanup_delays, effect.lease):
            self._schedule(now + after, delete, effect.lock_id, now + effect.lease)

    def send(self, command: Command[int], lock_id: LockId) -> None:
        """Schedule a command now, to be repeated for ``max_poll_interval`` while the store can't be reached."""
        now = clock.now()
        self._schedule(now, command, lock_id, now + self._engine.tuning.max_poll_interval)

    def _schedule(self, due: float, command: Command[int], lock_id: LockId, end: float) -> None:
        heapq.heappush(self._due, (due, self._count(), command, lock_id, end))

    def next_due(self) -> float:
        """Return when the next command is due; infinity if there is none."""
        return self._due[0][0] if self._due else inf

    def run(self, now: float, until: float) -> None:
        """Send the commands that are due, and wait for replies until ``until`` at most."""
        due: list[tuple[Command[int], LockId, float]] = []
        while self._due and self._due[0][0] <= now and len(due) < BATCH:
            due.append(heapq.heappop(self._due)[2:])
        if not due:
            return
        replies: list[Any]
        try:
            timeout = max(0.05, min(self._engine.tuning.maintenance_timeout, until - clock.now()))
            replies = self._backend.call_many([command for command, _, _ in due], timeout)
        except Exception as error:  # noqa: BLE001 - after any error the commands are sent again
            replies = [LockBackendError(repr(error))] * len(due)
        next_try = clock.now() + 1.0
        for (command, lock_id, end), reply in zip(due, replies, strict=True):
            try:
                if isinstance(reply, LockBackendError):
                    raise reply
                freed = command.read(reply)
            except LockBackendError:
                if next_try < end:  # repeat until the lease has ended
                    self._schedule(next_try, command, lock_id, end)
                continue
            if freed:
                self._notify_waiters(NotifyWaiters(lock_id, freed > 1))
