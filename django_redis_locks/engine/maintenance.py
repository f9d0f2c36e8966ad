"""The janitor: one daemon thread per server, for everything that must happen while nobody waits for it.

It renews leases, at a third of each, all that are due in one write; deletes what unanswered requests may have left;
tells holders that their lease is lost; and rings the alarms of sleeping tasks. Renewal follows one rule: the hold is
reachable. While its owner lives the registry reaches it; afterwards only the user's own references do.

``put`` is safe anywhere, in a finalizer or a signal handler too.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ..core import clock, events
from ..core.background_thread import BackgroundThread, end_process_on_exit
from ..core.errors import LockBackendError
from ..core.hold import Hold
from ..core.wakeup import ThreadEvent, call_and_wait
from .cleanup import CleanupQueue
from .confirmation import Confirmations
from .lease_endings import LeaseEndings
from .notices import Notices
from .renewal import Renewals
from .renewal_schedule import RenewalSchedule
from .timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.base import Backend
    from ..core.commands import Command
    from ..core.effects import Cleanup, NotifyWaiters
    from ..core.keys import LockId
    from ..core.tuning import Tuned

_log = logging.getLogger("django_redis_locks.renew")

EXIT_FLUSH = 1.0  # seconds that the end of the interpreter may spend on releases that are still queued


class MaintenanceThread:
    """The thread of one backend. It begins with the first thing to do."""

    def __init__(
        self,
        backend: Backend,
        notify_waiters: Callable[[NotifyWaiters], object],
        listen: Callable[[str], object],
        engine: Tuned,
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._listen = listen
        self._notify_waiters = notify_waiters
        self.notices = Notices(engine)
        self._schedule = RenewalSchedule()
        self._lease_endings = LeaseEndings(self._schedule, self._wake_by)
        self.unwatch = self._schedule.remove
        self.after_fork_in_child()
        _threads.add(self)

    def after_fork_in_child(self) -> None:
        """The parent's thread doesn't exist here, and its holds aren't ours."""
        self._mutex = threading.RLock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._wakeup = ThreadEvent()
        self.notices.after_fork_in_child()
        self._schedule.clear()
        self._timers = Timers()
        self._renewals = Renewals(
            self._backend, self._engine, self._schedule, self._lease_endings, self._timers, self.notices, self.put
        )
        self._cleanups = CleanupQueue(self._backend, self._notify_waiters, self._engine)
        self._confirmations = Confirmations(self._backend, self._engine, self._schedule, self._listen)
        self._sleeps_until = -inf
        self._thread = BackgroundThread(self._run, "django-redis-locks maintenance")
        self._pid = os.getpid()
        self._started_in = 0
        """The process in which the thread was started."""

    # Called from any thread.

    def watch(self, hold: Hold, prolong: Callable[[str, int], Command[bool]], lease: int) -> None:
        """Renew a hold, or ring when its fixed lease ends."""
        if hold.pid != self._started_in:
            self._start_for(hold)
        hold.watched = True
        if hold.renew_until:
            due = self._schedule.add(hold, prolong, lease, hold.since, lease / 1000 * self._engine.tuning.renew_at)
            if due < self._sleeps_until:
                self._wake_by(due)
            if self._confirmations.due - hold.since > self._confirmations.after and hold.forcible:
                self._wake_by(self._confirmations.plan_inbox(hold))
        else:
            self._renewals.report_loss_at_end(hold, "expired")

    def forget_at_end(self, hold: Hold) -> None:
        """Have the registry forget a hold that isn't renewed when its lease is over."""
        with contextlib.suppress(LockBackendError):  # no thread to be had: it is only memory
            if hold.pid != self._started_in:
                self._start_for(hold)
            hold.watched = True
            self._lease_endings.schedule(hold, hold.deadline)

    def _start_for(self, hold: Hold) -> None:
        self._reset_if_forked()
        try:
            self._thread.start()
        except LockBackendError as error:
            error.key, error.name, error.alias = hold.key, hold.name, hold.alias
            raise
        self._started_in = self._pid

    def sweep(self, effect: Cleanup) -> None:
        self._reset_if_forked()
        self.put(lambda: self._cleanups.sweep(effect))
        with contextlib.suppress(LockBackendError):  # the error that is on its way is the one to see
            self._thread.start()

    def send(self, command: Command[int], lock_id: LockId) -> None:
        """Send a command that nobody waits for, soon, and again for a while if the store can't be reached."""
        self._reset_if_forked()
        self.put(lambda: self._cleanups.send(command, lock_id))
        with contextlib.suppress(LockBackendError):
            self._thread.start()

    def confirm(self, lock_id: LockId) -> None:
        """Ask the store about the holds there, soon: one may have been freed by force."""
        self._reset_if_forked()
        if self._confirmations.request(lock_id):
            self._wakeup.set()
            with contextlib.suppress(LockBackendError):
                self._thread.start()

    def call_at(self, at: float, ring: Callable[[], object]) -> Callable[[], None]:
        """Call ``ring`` in the janitor's thread at a time of our clock; what is returned takes that back.

        Raises:
            LockBackendError: this process can't start a thread.
        """
        box: list[Callable[[], object]] = [ring]

        def plan() -> None:
            self._timers.at(at, lambda: [ring() for ring in tuple(box)], lambda: box)

        self._reset_if_forked()
        self._thread.start()  # first: nothing is left to ring if that raises
        self.put(plan)
        return box.clear

    def _reset_if_forked(self) -> None:
        """A fork that didn't run Python's hooks is found out before anything is put or entered, which would be lost."""
        if self._pid != os.getpid():
            with _fork_mutex:
                if self._pid != os.getpid():
                    self.after_fork_in_child()

    def put(self, job: Callable[[], object]) -> None:
        """Have the thread call ``job``, if it runs."""
        self._jobs.append(job)
        self._wakeup.set()

    def wake(self) -> None:
        """Have the thread look what is due: the clock may have changed."""
        self._confirmations.due = inf
        self._wakeup.set()

    def busy(self, sleeps: Callable[[int], bool]) -> bool:
        """Whether its thread runs, and has something to do or doesn't sleep."""
        thread = self._thread.ident
        return thread is not None and (bool(self._jobs) or not sleeps(thread) or self.notices.busy(sleeps))

    def settle(self, seconds: float) -> None:
        """Wait until what was put so far is done, and what is due was swept; at most so long."""
        for _ in range(2):  # the second job is done after the turn that the first one was a part of
            self._call_and_wait(lambda: None, seconds)

    def renewed(self) -> list[Hold]:
        """The holds whose leases are renewed, of locks and of records."""
        return [hold for hold, _ in self._schedule.holds()]

    @property
    def renews(self) -> bool:
        """Whether there may be leases to renew."""
        return len(self._schedule) > 0

    def flush(self, seconds: float) -> None:
        """The process ends: try all that is to be swept once more now, at most so long."""
        self._call_and_wait(lambda: self._cleanups.run(inf, inf), seconds)

    def _call_and_wait(self, job: Callable[[], object], seconds: float) -> None:
        if self._thread.runs:
            call_and_wait(self.put, job, seconds)

    # The thread.

    def _run(self) -> None:
        events.post_with(self.notices.post)
        while True:
            try:
                self._run_once()
            except BaseException as error:  # noqa: BLE001 - locks of others depend on this thread
                end_process_on_exit(error)
                text = "The janitor of %r stumbled and goes on"
                self.notices.post(partial(_log.error, text, self._backend, exc_info=error))
                time.sleep(0.1)

    def _run_once(self) -> None:
        while True:
            until = self._next_due()
            with self._mutex:
                self._sleeps_until = until
            if self._next_due() >= until:  # who entered something in between saw that it needn't wake us, or we see it
                break
        if not self._jobs:
            self._wakeup.wait(min(max(0.0, until - clock.now()), self._engine.tuning.longest_sleep))
        while self._jobs:
            self._jobs.popleft()()
        self._renewals.run()
        self._timers.run_due()
        if clock.now() >= self._confirmations.due:
            self._confirmations.open_inboxes(clock.now())
        for hold in self._confirmations.find_lost(self._request_timeout()):
            self._renewals.report_loss(hold, "taken")
        self._cleanups.run(clock.now(), self._next_due())

    def _next_due(self) -> float:
        return min(
            self._schedule.next_due(), self._timers.next_due(), self._cleanups.next_due(), self._confirmations.due
        )

    def _request_timeout(self) -> float:
        """For how long a request that isn't urgent may keep what is due next from being done."""
        return max(0.05, min(self._engine.tuning.maintenance_timeout, self._next_due() - clock.now()))

    def _wake_by(self, due: float) -> None:
        with self._mutex:
            early = due < self._sleeps_until
            if early:
                self._sleeps_until = due
        if early:
            self._wakeup.set()


_threads: weakref.WeakSet[MaintenanceThread] = weakref.WeakSet()


def maintenance_threads() -> list[MaintenanceThread]:
    return list(_threads)


@clock.on_install
def _wake_all() -> None:
    for maintenance in maintenance_threads():
        maintenance.wake()


_fork_mutex = threading.RLock()
"""Taken only in a child that nobody told of its fork, so its parent's threads never had it."""


def _flush_at_exit() -> None:
    end = clock.system_now() + EXIT_FLUSH
    for maintenance in maintenance_threads():
        maintenance.flush(max(0.0, end - clock.system_now()))
        maintenance.notices.settle(max(0.0, end - clock.system_now()))


atexit.register(_flush_at_exit)
