"""The maintenance thread: one daemon thread per backend, for all background work.

It renews each lease after a third of it, all due leases in one write; deletes the tokens of unanswered requests;
reports lost leases to their holders; and runs the timers of sleeping tasks. A lease is renewed while its hold is
referenced: by the registry while the owner lives, afterwards by the user's code only.

``submit`` may be called from anywhere, including finalizers and signal handlers.
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
from ..core.wait_events import ThreadEvent, call_and_wait
from .cleanup import CleanupQueue
from .hold_checks import HoldChecks
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

EXIT_FLUSH = 1.0
"""The seconds for which queued releases may delay the exit of the interpreter."""


class MaintenanceThread:
    """The maintenance thread of one backend. It starts with its first job."""

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
        """Start without a thread and without the parent's holds."""
        self._mutex = threading.RLock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._wakeup = ThreadEvent()
        self.notices.after_fork_in_child()
        self._schedule.clear()
        self._timers = Timers()
        self._renewals = Renewals(
            self._backend, self._engine, self._schedule, self._lease_endings, self._timers, self.notices, self.submit
        )
        self._cleanups = CleanupQueue(self._backend, self._notify_waiters, self._engine)
        self._hold_checks = HoldChecks(self._backend, self._engine, self._schedule, self._listen)
        self._sleeps_until = -inf
        self._thread = BackgroundThread(self._run, "django-redis-locks maintenance")
        self._pid = os.getpid()
        self._started_in = 0
        """The id of the process in which the thread was started."""

    # Called from any thread.

    def watch(
        self, hold: Hold, make_command: Callable[[str, int], Command[bool]], lease: int, granted_for: float = 0.0
    ) -> None:
        """Renew a hold, or report its loss when its fixed lease ends. If the store granted it for ``granted_for``
        seconds, its lease is soon extended, also if it is fixed."""
        if hold.pid != self._started_in:
            self._start_for(hold)
        hold.watched = True
        if hold.renew_until or granted_for:
            tuning, extension = self._engine.tuning, lease
            if granted_for:
                period = min(tuning.grant_confirmation, granted_for / 2)
                if not hold.renew_until:  # a fixed lease counts from the beginning of the hold
                    extension -= round(1000 * period)
            else:
                period = lease / 1000 * tuning.renewal_share
            due = self._schedule.add(hold, make_command, extension, hold.since, period, exact=granted_for > 0)
            if due < self._sleeps_until:
                self._wake_by(due)
        if hold.renew_until:
            if self._hold_checks.due - hold.since > self._hold_checks.after and hold.forcible:
                self._wake_by(self._hold_checks.plan_inbox(hold))
        elif hold.on_lost is not None:
            self._renewals.report_loss_at_end(hold, "expired")

    def forget_at_end(self, hold: Hold) -> None:
        """Have the registry forget a hold that isn't renewed, when its lease ends."""
        with contextlib.suppress(LockBackendError):  # without a thread the registry only needs more memory
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

    def clean_up(self, effect: Cleanup) -> None:
        """Carry out a cleanup in the background."""
        self._reset_if_forked()
        self.submit(lambda: self._cleanups.add(effect))
        with contextlib.suppress(LockBackendError):  # must not mask the error that the caller is handling
            self._thread.start()

    def send(self, command: Command[int], lock_id: LockId) -> None:
        """Send a command in the background, and repeat it for ``max_poll_interval`` while the store can't be
        reached."""
        self._reset_if_forked()
        self.submit(lambda: self._cleanups.send(command, lock_id))
        with contextlib.suppress(LockBackendError):
            self._thread.start()

    def confirm(self, lock_id: LockId) -> None:
        """Check in the background that the store still has this process's holds of a lock: one may have been released
        by force."""
        self._reset_if_forked()
        if self._hold_checks.request(lock_id):
            self._wakeup.set()
            with contextlib.suppress(LockBackendError):
                self._thread.start()

    def call_at(self, at: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback`` in the maintenance thread at a time of the engine's clock. Returns a function that cancels
        the call.

        Raises:
            LockBackendError: this process can't start a thread.
        """
        pending: list[Callable[[], object]] = [callback]  # empty once cancelled

        def plan() -> None:
            self._timers.at(at, lambda: [callback() for callback in tuple(pending)], lambda: pending)

        self._reset_if_forked()
        self._thread.start()  # before put(): if it raises, no job must be left
        self.submit(plan)
        return pending.clear

    def _reset_if_forked(self) -> None:
        """Detect a fork that ran no Python hooks. Called before a job is queued, because a later reset would drop
        it."""
        if self._pid != os.getpid():
            with _fork_mutex:
                if self._pid != os.getpid():
                    self.after_fork_in_child()

    def submit(self, job: Callable[[], object]) -> None:
        """Have the thread call ``job``, if the thread runs. Safe in a finalizer and in a signal handler."""
        self._jobs.append(job)
        self._wakeup.set()

    def wake(self) -> None:
        """Have the thread check its schedules, because another clock was installed."""
        self._hold_checks.due = inf
        self._wakeup.set()

    def busy(self, sleeps: Callable[[int], bool]) -> bool:
        """Return whether the thread runs, and has work to do or doesn't sleep."""
        thread = self._thread.ident
        return thread is not None and (bool(self._jobs) or not sleeps(thread) or self.notices.busy(sleeps))

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until all jobs so far and all cleanup that is due are done, for at most ``seconds``."""
        for _ in range(2):  # the second job runs after the complete pass of the first one
            self._call_and_wait(lambda: None, seconds)

    def renewed(self) -> list[Hold]:
        """Return the renewed holds, of locks and of records."""
        return [hold for hold, _ in self._schedule.holds()]

    @property
    def renews(self) -> bool:
        """Whether there are leases to renew."""
        return len(self._schedule) > 0

    def flush(self, seconds: float) -> None:
        """Run all pending cleanup once more before the process ends, for at most ``seconds``."""
        self._call_and_wait(lambda: self._cleanups.run(inf, inf), seconds)

    def _call_and_wait(self, job: Callable[[], object], seconds: float) -> None:
        if self._thread.runs:
            call_and_wait(self.submit, job, seconds)

    # The thread.

    def _run(self) -> None:
        events.deliver_with(self.notices.submit)
        while True:
            try:
                self._run_once()
            except BaseException as error:  # noqa: BLE001 - other locks depend on this thread
                end_process_on_exit(error)
                text = "The maintenance thread of %r failed and continues"
                self.notices.submit(partial(_log.error, text, self._backend, exc_info=error))
                time.sleep(0.1)

    def _run_once(self) -> None:
        while True:
            until = self._next_due()
            with self._mutex:
                self._sleeps_until = until
            # A caller that adds a job at this moment either has seen _sleeps_until, and wakes the thread, or its job is
            # seen here
            if self._next_due() >= until:
                break
        if not self._jobs:
            self._wakeup.wait(min(max(0.0, until - clock.now()), self._engine.tuning.max_thread_sleep))
        while self._jobs:
            self._jobs.popleft()()
        self._renewals.run()
        self._timers.run_due()
        if clock.now() >= self._hold_checks.due:
            self._hold_checks.open_inboxes(clock.now())
        for hold in self._hold_checks.find_lost(self._request_timeout()):
            self._renewals.report_loss(hold, "taken")
        self._cleanups.run(clock.now(), self._next_due())

    def _next_due(self) -> float:
        return min(self._schedule.next_due(), self._timers.next_due(), self._cleanups.next_due(), self._hold_checks.due)

    def _request_timeout(self) -> float:
        """Return the timeout, in seconds, of a request that must not delay the next job for long."""
        return max(0.05, min(self._engine.tuning.maintenance_timeout, self._next_due() - clock.now()))

    def _wake_by(self, due: float) -> None:
        """Wake the thread at a time, if it would sleep longer."""
        with self._mutex:
            early = due < self._sleeps_until
            if early:
                self._sleeps_until = due
        if early:
            self._wakeup.set()


_threads: weakref.WeakSet[MaintenanceThread] = weakref.WeakSet()


def maintenance_threads() -> list[MaintenanceThread]:
    """Return the maintenance threads of this process."""
    return list(_threads)


@clock.on_install
def _wake_all() -> None:
    for maintenance in maintenance_threads():
        maintenance.wake()


_fork_mutex = threading.RLock()
"""Only used in a child of a fork without hooks, so no thread of the parent can have held it at the fork."""


def _flush_at_exit() -> None:
    end = clock.system_now() + EXIT_FLUSH
    for maintenance in maintenance_threads():
        maintenance.flush(max(0.0, end - clock.system_now()))
        maintenance.notices.wait_until_idle(max(0.0, end - clock.system_now()))


atexit.register(_flush_at_exit)
