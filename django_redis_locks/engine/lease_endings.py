"""Has the registry forget holds without renewal when their leases end. Uses the renewal schedule as its timer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core import clock
from ..core.registry import registry
from .renewal_schedule import LONGEST_SLOT, no_renewal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.hold import Hold
    from .renewal_schedule import RenewalSchedule


class LeaseEndings:
    """The endings of leases that aren't renewed. ``wake_by`` wakes the maintenance thread at a time, if it would sleep
    longer."""

    def __init__(self, schedule: RenewalSchedule, wake_by: Callable[[float], object]) -> None:
        self._schedule = schedule
        self._wake_by = wake_by

    def schedule(self, hold: Hold, end: float) -> None:
        """Check this hold shortly after ``end``."""
        now = clock.now()
        period = max(0.0, end - now) + LONGEST_SLOT  # together with others, but not earlier
        self._wake_by(self._schedule.add(hold, no_renewal, hold.lease, now, period, replace=False))

    def check(self, hold: Hold, now: float) -> None:
        """Forget a hold whose lease has ended. If its grant is still referenced, check again one lease later."""
        over = now >= hold.deadline or hold.loss_reason is not None
        if not over or not registry.forget_unused(hold):
            self.schedule(hold, now + hold.lease / 1000 if over else hold.deadline)
