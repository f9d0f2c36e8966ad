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
from typing import TYPE_CHECKING, Any

from .batches import renew
from .core import clock, events
from .core.daemon import Daemon, leave
from .core.endings import Endings
from .core.errors import LockBackendError
from .core.hold import Hold, State
from .core.notices import Notices
from .core.on_lost import react
from .core.owners import alive, registry
from .core.rounds import Lease, Rounds
from .core.timers import Timers
from .core.visible import visible
from .core.wakeup import ThreadEvent, call_and_wait
from .errands import BATCH, Errands

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backends.base import Backend
    from .core.effects import Command, Freed, Place, Sweep
    from .core.tuning import Tuned

_log = logging.getLogger("django_redis_locks.renew")

EXIT_FLUSH = 1.0  # seconds that the end of the interpreter may spend on releases that are still queued


class Janitor:
    """The thread of one backend. It begins with the first thing to do."""

    def __init__(self, backend: Backend, tell: Callable[[Freed], object], engine: Tuned) -> None:
        self._backend = backend
        self._engine = engine
        self._tell_waiters = tell
        self.notices = Notices(engine)
        self._rounds = Rounds()
        self._endings = Endings(self._rounds, self._hasten)
        self.unwatch = self._rounds.remove
        self.after_fork_in_child()
        _janitors.add(self)

    def after_fork_in_child(self) -> None:
        """The parent's thread doesn't exist here, and its holds aren't ours."""
        self._mutex = threading.RLock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._wakeup = ThreadEvent()
        self.notices.after_fork_in_child()
        self._rounds.clear()
        self._timers = Timers()
        self._errands = Errands(self._backend, self._tell_waiters, self._engine)
        self._sleeps_until = -inf
        self._daemon = Daemon(self._work, "django-redis-locks janitor")
        self._pid = os.getpid()
        self._works_in = 0
        """The process in which the thread was started."""

    # Called from any thread.

    def watch(self, hold: Hold, prolong: Callable[[str, int], Command[bool]], lease: int) -> None:
        """Renew a hold, or ring when its fixed lease ends."""
        if hold.pid != self._works_in:
            self._begin_with(hold)
        hold.watched = True
        if hold.renew_until:
            due = self._rounds.enter(hold, prolong, lease, hold.since, lease / 1000 * self._engine.tuning.renew_at)
            if due < self._sleeps_until:
                self._hasten(due)
        else:
            self._ring_at_end(hold, "expired")

    def forget_at_end(self, hold: Hold) -> None:
        """Have the registry forget a hold that isn't renewed when its lease is over."""
        with contextlib.suppress(LockBackendError):  # no thread to be had: it is only memory
            if hold.pid != self._works_in:
                self._begin_with(hold)
            hold.watched = True
            self._endings.enter(hold, hold.deadline)

    def _begin_with(self, hold: Hold) -> None:
        self._settle_in()
        try:
            self._daemon.start()
        except LockBackendError as error:
            error.key, error.name, error.alias = hold.key, hold.name, hold.alias
            raise
        self._works_in = self._pid

    def sweep(self, effect: Sweep) -> None:
        self._settle_in()
        self.put(lambda: self._errands.sweep(effect))
        with contextlib.suppress(LockBackendError):  # the error that is on its way is the one to see
            self._daemon.start()

    def send(self, command: Command[int], place: Place) -> None:
        """Send a command that nobody waits for, soon, and again for a while if the store can't be reached."""
        self._settle_in()
        self.put(lambda: self._errands.send(command, place))
        with contextlib.suppress(LockBackendError):
            self._daemon.start()

    def alarm(self, at: float, ring: Callable[[], object]) -> Callable[[], None]:
        """Call ``ring`` in the janitor's thread at a time of our clock; what is returned takes that back."""
        box: list[Callable[[], object]] = [ring]

        def plan() -> None:
            self._timers.at(at, lambda: [ring() for ring in tuple(box)], lambda: box)

        self._settle_in()
        self.put(plan)
        self._daemon.start()
        return box.clear

    def _settle_in(self) -> None:
        """A fork that didn't run Python's hooks is found out before anything is put or entered, which would be lost."""
        if self._pid != os.getpid():
            with _forked:
                if self._pid != os.getpid():
                    self.after_fork_in_child()

    def put(self, job: Callable[[], object]) -> None:
        """Have the thread call ``job``, if it runs."""
        self._jobs.append(job)
        self._wakeup.set()

    def wake(self) -> None:
        """Have the thread look what is due: the clock may have changed."""
        self._wakeup.set()

    def busy(self, sleeps: Callable[[int], bool]) -> bool:
        """Whether its thread runs, and has something to do or doesn't sleep."""
        thread = self._daemon.ident
        return thread is not None and (bool(self._jobs) or not sleeps(thread) or self.notices.busy(sleeps))

    def settle(self, seconds: float) -> None:
        """Wait until what was put so far is done, and what is due was swept; at most so long."""
        for _ in range(2):  # the second job is done after the turn that the first one was a part of
            self._do(lambda: None, seconds)

    def flush(self, seconds: float) -> None:
        """The process ends: try all that is to be swept once more now, at most so long."""
        self._do(lambda: self._errands.run(inf, inf), seconds)

    def _do(self, job: Callable[[], object], seconds: float) -> None:
        if self._daemon.runs:
            call_and_wait(self.put, job, seconds)

    # The thread.

    def _work(self) -> None:
        events.post_with(self.notices.post)
        while True:
            try:
                self._once()
            except BaseException as error:  # noqa: BLE001 - locks of others depend on this thread
                leave(error)
                text = "The janitor of %r stumbled and goes on"
                self.notices.post(partial(_log.error, text, self._backend, exc_info=error))
                time.sleep(0.1)

    def _once(self) -> None:
        while True:
            until = self._next()
            with self._mutex:
                self._sleeps_until = until
            if self._next() >= until:  # who entered something in between saw that it needn't wake us, or we see it
                break
        if not self._jobs:
            self._wakeup.wait(min(max(0.0, until - clock.now()), self._engine.tuning.longest_sleep))
        while self._jobs:
            self._jobs.popleft()()
        self._renew()
        self._timers.ring()
        self._errands.run(clock.now(), self._next())

    def _next(self) -> float:
        return min(self._rounds.first(), self._timers.first(), self._errands.first())

    # Renewal.

    def _hasten(self, due: float) -> None:
        with self._mutex:
            early = due < self._sleeps_until
            if early:
                self._sleeps_until = due
        if early:
            self._wakeup.set()

    def _renew(self) -> None:
        while True:
            sent = clock.now()
            holds: list[Hold] = []
            entries: list[Lease] = []
            running = set(threading.enumerate())
            for entry in self._rounds.due(sent, BATCH):
                hold = self._reachable(entry.hold, running)
                if hold is None:
                    continue
                try:
                    wanted = self._wanted(hold, sent)
                except Exception:  # noqa: BLE001 - as below
                    self._try_soon(hold, entry)
                    continue
                if wanted:
                    holds.append(hold)
                    entries.append(entry)
            if not holds:
                return
            first_end = min(hold.deadline for hold in holds)
            patience = (first_end - sent) / 3  # silence must leave room for other tries
            replies: list[Any]
            try:
                replies = renew(
                    [entry.prolong(hold.token, entry.lease) for hold, entry in zip(holds, entries, strict=True)],
                    self._backend,
                    max(0.05, min(self._engine.tuning.maintenance_timeout, patience)),
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, these holds must stay in the rounds
                replies = [LockBackendError(repr(error))] * len(holds)
            for hold, entry, reply in zip(holds, entries, replies, strict=True):
                try:
                    self._renewed(hold, entry, sent, reply)
                except Exception:  # noqa: BLE001 - what fails over one hold must not cost the others
                    self._try_soon(hold, entry)

    def _reachable(self, ref: weakref.ref[Hold], running: set[threading.Thread]) -> Hold | None:
        hold = ref()
        if hold is not None and hold.owner() not in running and not alive(hold):
            registry.forget_hold(hold)
            hold = None  # ours must not be the reference that keeps it
            hold = ref()
        return hold

    def _wanted(self, hold: Hold, now: float) -> bool:
        if hold.state is not State.HELD:
            return False
        if hold.lost_why is not None or not hold.renew_until:
            self._endings.look(hold, now)
            return False
        if now >= hold.deadline and self._tell(hold, "expired", now):
            return False
        if now >= hold.renew_until:
            self._warn("Lock %s is held for its MAX_HOLD and isn't renewed any more", hold)
            self._ring_at_end(hold, "max_hold")
            return False
        return True

    def _renewed(self, hold: Hold, entry: Lease, sent: float, reply: Any) -> None:
        if hold.state is not State.HELD:
            return
        if isinstance(reply, LockBackendError):
            self._try_soon(hold, entry)
            self._warn("Lock %s couldn't be renewed: %s", hold, reply)
        elif reply:
            hold.prolong(sent, entry.lease)
            self._rounds.enter(
                hold, entry.prolong, entry.lease, sent, entry.lease / 1000 * self._engine.tuning.renew_at
            )
        else:
            self._tell(hold, "taken")

    def _warn(self, text: str, hold: Hold, *more: object) -> None:
        about = {"lock_name": hold.name, "lock_alias": hold.alias, **events.key_field(hold.key, hold.alias)}
        self.notices.post(partial(_log.warning, text, visible(hold.name), *more, extra=about))

    def _try_soon(self, hold: Hold, entry: Lease) -> None:
        now = clock.now()
        if now >= hold.deadline and self._tell(hold, "expired", now):
            return
        pause = max(0.0, min(entry.lease / 10_000, 1.0, hold.deadline - now))
        self._rounds.enter(hold, entry.prolong, entry.lease, now, pause, exact=True)

    # Loss.

    def _ring_at_end(self, hold: Hold, why: str) -> None:
        ref = weakref.ref(hold)

        def held() -> Hold | None:
            hold = ref()
            return hold if hold is not None and hold.state is State.HELD else None

        def end() -> None:
            hold = held()
            if hold is None:
                return
            now = clock.now()
            if now < hold.deadline or not self._tell(hold, why, now):  # extended meanwhile
                self._timers.at(hold.deadline, end, held)

        self.put(lambda: self._timers.at(hold.deadline, end, held))

    def _tell(self, hold: Hold, why: str, at: float = inf) -> bool:
        """Tell of a loss, if it is one; ``at`` a time at which the lease was over. Whether the hold is done with."""
        if hold.lose(why, at=at) and hold.on_lost is not None:
            react(hold, self.notices.post_first)
        if hold.lost_why is not None and registry.crowded:
            self._endings.enter(hold, at if at < inf else hold.deadline)
        return hold.lost_why is not None or hold.state is not State.HELD


_janitors: weakref.WeakSet[Janitor] = weakref.WeakSet()


def janitors() -> list[Janitor]:
    return list(_janitors)


@clock.on_install
def _wake_all() -> None:
    for janitor in janitors():
        janitor.wake()


_forked = threading.RLock()
"""Taken only in a child that nobody told of its fork, so its parent's threads never had it."""


def _flush_at_exit() -> None:
    end = clock.system_now() + EXIT_FLUSH
    for janitor in janitors():
        janitor.flush(max(0.0, end - clock.system_now()))
        janitor.notices.settle(max(0.0, end - clock.system_now()))


atexit.register(_flush_at_exit)
