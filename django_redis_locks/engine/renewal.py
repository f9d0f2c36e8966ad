"""Renews leases and reports lost ones. Runs in the maintenance thread."""

from __future__ import annotations

import logging
import threading
import weakref
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ..core import clock, events
from ..core.errors import LockBackendError
from ..core.hold import Hold, State
from ..core.owners import is_alive
from ..core.registry import registry
from ..core.text import escape_unprintable
from .cleanup import BATCH
from .on_lost import call_on_lost
from .renewal_batch import renew
from .renewal_schedule import no_renewal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.base import Backend
    from ..core.tuning import Tuned
    from .lease_endings import LeaseEndings
    from .notices import Notices
    from .renewal_schedule import RenewalSchedule, ScheduledRenewal
    from .timers import Timers

_log = logging.getLogger("django_redis_locks.renew")


class Renewals:
    """Renews the leases of one backend. ``submit`` queues a job for the maintenance thread."""

    def __init__(
        self,
        backend: Backend,
        engine: Tuned,
        schedule: RenewalSchedule,
        endings: LeaseEndings,
        timers: Timers,
        notices: Notices,
        submit: Callable[[Callable[[], object]], None],
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._schedule = schedule
        self._lease_endings = endings
        self._timers = timers
        self._notices = notices
        self._submit = submit

    def run(self) -> None:
        """Renew the leases that are due."""
        while True:
            sent = clock.now()
            holds: list[Hold] = []
            entries: list[ScheduledRenewal] = []
            running = set(threading.enumerate())
            for entry in self._schedule.due(sent, BATCH):
                hold = self._reachable(entry.hold, running)
                if hold is None:
                    continue
                try:
                    needs_renewal = self._needs_renewal(hold, entry, sent)
                except Exception:  # noqa: BLE001 - a failure with one hold must not affect the others
                    self._retry_soon(hold, entry)
                    continue
                if needs_renewal:
                    holds.append(hold)
                    entries.append(entry)
            if not holds:
                return
            first_end = min(hold.deadline for hold in holds)
            timeout = (first_end - sent) / 3  # leaves time for further attempts if the server doesn't reply
            replies: list[Any]
            try:
                replies = renew(
                    [entry.make_command(hold.token, entry.lease) for hold, entry in zip(holds, entries, strict=True)],
                    self._backend,
                    max(0.05, min(self._engine.tuning.maintenance_timeout, timeout)),
                )
            except Exception as error:  # noqa: BLE001 - after any error these holds must stay scheduled
                replies = [LockBackendError(repr(error))] * len(holds)
            for hold, entry, reply in zip(holds, entries, replies, strict=True):
                try:
                    self._record_reply(hold, entry, sent, reply)
                except Exception:  # noqa: BLE001 - a failure with one hold must not affect the others
                    self._retry_soon(hold, entry)

    def _reachable(self, ref: weakref.ref[Hold], running: set[threading.Thread]) -> Hold | None:
        """Return the hold, or None if its owner has ended and nothing else references it."""
        hold = ref()
        if hold is not None and hold.owner() not in running and not is_alive(hold):
            registry.forget_hold(hold)
            hold = None  # drops the reference of this frame, so that the next line sees other references only
            hold = ref()
        return hold

    def _needs_renewal(self, hold: Hold, entry: ScheduledRenewal, now: float) -> bool:
        hold.reserved_fences = 0  # before the state is read, so that from now on the next waiter sends a request
        if hold.state is not State.HELD:
            return False
        extends = entry.make_command is not no_renewal
        if hold.loss_reason is not None or not (hold.renew_until or (extends and hold.unconfirmed)):
            self._lease_endings.check(hold, now)
            return False
        if not extends:  # of the fixed lease that it was: the renewal has an entry of its own
            return False
        if now >= hold.deadline and self.report_loss(hold, "expired", now):
            return False
        if hold.renew_until and now >= hold.renew_until:
            self._warn("Lock %s is held for its MAX_HOLD and isn't renewed any more", hold)
            self.report_loss_at_end(hold, "max_hold")
            return False
        return True

    def _record_reply(self, hold: Hold, entry: ScheduledRenewal, sent: float, reply: Any) -> None:
        if hold.state is not State.HELD:
            return
        if isinstance(reply, LockBackendError):
            self._retry_soon(hold, entry)
            self._warn("Lock %s couldn't be renewed: %s", hold, reply)
        elif reply:
            hold.extend_deadline(sent, entry.lease)
            if hold.renew_until:
                period = entry.lease / 1000 * self._engine.tuning.renewal_share
                self._schedule.add(hold, entry.make_command, entry.lease, sent, period)
            elif registry.crowded:
                self._lease_endings.schedule(hold, hold.deadline)
        else:
            self.report_loss(hold, "taken")

    def _warn(self, text: str, hold: Hold, *more: object) -> None:
        log_fields = {"lock_name": hold.name, "lock_alias": hold.alias, **events.key_field(hold.key, hold.alias)}
        self._notices.submit(partial(_log.warning, text, escape_unprintable(hold.name), *more, extra=log_fields))

    def _retry_soon(self, hold: Hold, entry: ScheduledRenewal) -> None:
        now = clock.now()
        if now >= hold.deadline and self.report_loss(hold, "expired", now):
            return
        pause = max(0.0, min(entry.lease / 10_000, 1.0, hold.deadline - now))
        self._schedule.add(hold, entry.make_command, entry.lease, now, pause, exact=True)

    def report_loss_at_end(self, hold: Hold, why: str) -> None:
        """Schedule the report of a loss for the end of a lease that isn't renewed."""
        ref = weakref.ref(hold)

        def held() -> Hold | None:
            hold = ref()
            return hold if hold is not None and hold.state is State.HELD else None

        def end() -> None:
            hold = held()
            if hold is None:
                return
            now = clock.now()
            if now < hold.deadline or not self.report_loss(hold, why, now):  # the lease was extended
                self._timers.at(hold.deadline, end, held)

        self._submit(lambda: self._timers.at(hold.deadline, end, held))

    def report_loss(self, hold: Hold, why: str, at: float = inf) -> bool:
        """Mark a hold as lost and report it, unless it was released, or its lease was extended beyond the time ``at``.

        Returns:
            Whether the hold has ended.
        """
        if hold.mark_lost(why, at=at) and hold.on_lost is not None:
            call_on_lost(hold, self._notices.submit_first)
        if hold.loss_reason is not None and registry.crowded:
            self._lease_endings.schedule(hold, at if at < inf else hold.deadline)
        return hold.loss_reason is not None or hold.state is not State.HELD
