"""Checks in the store whether this process still has its holds: after a message that a lock was released by force, or that
asks for the fence of a hold. Also opens the inbox that receives these messages. Runs in the maintenance thread."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from ..core.errors import LockBackendError
from ..core.keys import inbox_of
from ..core.registry import registry
from .renewal_schedule import no_renewal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.base import Backend
    from ..core.commands import Command
    from ..core.hold import Hold
    from ..core.keys import LockId
    from ..core.tuning import Tuned
    from .renewal_schedule import RenewalSchedule

MAX_PENDING = 10_000
"""The largest number of locks that wait for a confirmation. The loss of others is detected by their next renewal."""


class HoldChecks:
    """The holds to confirm. ``listen`` opens the inbox of a channel prefix."""

    def __init__(
        self, backend: Backend, engine: Tuned, schedule: RenewalSchedule, listen: Callable[[str], object]
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._schedule = schedule
        self._listen = listen
        self._lock_ids: deque[LockId] = deque()
        self.after = engine.tuning.inbox_open_delay
        self.due = inf
        """When to check that every renewed hold has an inbox."""

    # From any thread.

    def request(self, lock_id: LockId) -> bool:
        """Confirm the holds of a lock in the next pass. Return False if this process has none."""
        if not (self._schedule or lock_id in registry.known) or len(self._lock_ids) >= MAX_PENDING:
            return False
        self._lock_ids.append(lock_id)
        return True

    def plan_inbox(self, hold: Hold) -> float:
        """Plan to open the inbox of a renewed hold later. Short holds don't need one: they have ended by then."""
        self.due = hold.since + self.after
        return self.due

    # In the maintenance thread.

    def open_inboxes(self, now: float) -> None:
        """Open the inboxes of all renewed holds, and plan the next check: an inbox may have been closed, or refused."""
        self.due = inf  # before the schedule is read: a hold added later plans its own inbox
        if self._schedule:
            for channel in {inbox_of(hold.lock_id.lock) for hold, _ in self._schedule.holds() if hold.forcible}:
                self._listen(channel)
            self.due = min(self.due, now + 10 * self.after)

    def find_lost(self, timeout: float) -> list[Hold]:
        """Confirm the requested holds, which also publishes their fences.

        Args:
            timeout: seconds to wait for replies. A hold without a reply doesn't count as lost: its next renewal
                decides.

        Returns:
            The holds that the store doesn't have any more.
        """
        lock_ids = {self._lock_ids.popleft() for _ in range(len(self._lock_ids))}
        if not lock_ids:
            return []
        commands: dict[Hold, Command[bool]] = {}
        for hold, lease in self._schedule.holds():
            if hold.lock_id in lock_ids and lease.make_command is not no_renewal and _needs_confirmation(hold):
                commands[hold] = lease.make_command(hold.token, 1)  # 1 ms: a renewal never shortens the lease
        for grant in [grant for lock_id in lock_ids for grant in registry.at(lock_id)]:
            if grant.lock.performer is self._engine and _needs_confirmation(grant.hold):
                commands[grant.hold] = grant.lock.adopt_command(grant.hold)(grant.hold.token, 1)
        replies = self._backend.call_many(list(commands.values()), timeout) if commands else []
        return [
            hold for (hold, command), reply in zip(commands.items(), replies, strict=True) if _denied(command, reply)
        ]


def _needs_confirmation(hold: Hold) -> bool:
    hold.reserved_fences = 0  # before the state is read, so that from now on the next waiter sends a request
    return hold.live


def _denied(command: Command[bool], reply: object) -> bool:
    """Return whether the reply says that the hold is gone. An error doesn't say so."""
    try:
        return not isinstance(reply, LockBackendError) and not command.read(reply)
    except LockBackendError:
        return False
