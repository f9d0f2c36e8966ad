"""Virtual time: an agenda of events, and greenlets in place of threads. One real thread runs all of them, in an order
that depends on the seed only."""

from __future__ import annotations

import heapq
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from tests.simulation.process import Process

FOREVER = 1e6
"""Seconds of virtual time that no simulation reaches."""

MOST_EVENTS = 100_000
"""A simulation has some hundreds of events; one with more doesn't end."""

SWITCH = 1e-4
"""Maximum seconds until a woken thread runs."""


class Died(BaseException):
    """Raised in the threads of a killed process; their further actions have no effect."""


class Interrupted(BaseException):
    """Raised by a signal handler at any point of a call."""


class Actor(greenlet):
    """A thread of a simulated process. It runs until it sleeps or waits; then another one runs."""

    def __init__(self, process: Process, name: str, act: Callable[[], object]) -> None:
        super().__init__(self._live, process.scheduler.hub)
        self.process = process
        self.scheduler = process.scheduler
        self.name = name
        self.ident = id(self)
        self.owner = self
        """The identity of this thread as an owner of locks: the thread that forks continues in the child."""
        self.over = False
        self.interruptions = 0
        """How many times the next wait of this thread is interrupted."""
        self.doing = "begins"
        self._heir: Actor | None = None
        self._act = act
        self._alarm = 0

    def _live(self) -> None:
        try:
            self._act()
        except Died:
            pass
        except BaseException as failure:  # noqa: BLE001 - reported with the story
            if not isinstance(failure, Interrupted):
                self.scheduler.violation(f"{self.name} of {self.process.name} raises {failure!r}")
        finally:
            self.over = True

    def done(self) -> bool:
        """Whether it has ended, like a task's method, for the liveness check of owners."""
        return self.over if self._heir is None else self._heir.done()

    def inherit(self, forked: Actor) -> None:
        """Continue the thread that forked, in the child."""
        self.owner, forked.owner._heir = forked.owner, self
        if forked.gr_context is not None:
            self.gr_context = forked.gr_context.copy()

    def sleep(self, seconds: float) -> None:
        """Sleep for seconds of the process's own clock."""
        self.scheduler.at(self.scheduler.now + seconds / self.process.rate, self._turn(), self.process)
        self._pause()

    def wait(self, lock: Any, seconds: float) -> None:
        """Acquire a lock, or return after a timeout in seconds."""
        if not lock.acquire(blocking=False):
            waiting = self.scheduler.waiting
            waiting.append((self, lock.locked))
            try:
                self.wait_for_wake(seconds)
            finally:
                waiting[:] = [entry for entry in waiting if entry[0] is not self]
            lock.acquire(blocking=False)

    def wake(self) -> None:
        """End the sleep of this thread."""
        scheduler = self.scheduler
        scheduler.at(scheduler.now + SWITCH * scheduler.random.random(), self._turn(), self.process)

    def run_now(self) -> None:
        """Let this thread run now."""
        self._turn()()

    def wait_for_wake(self, seconds: float) -> None:
        if seconds < FOREVER:
            self.sleep(max(seconds, 0.0))
        else:
            self._turn()
            self._pause()

    def _turn(self) -> Callable[[], None]:
        """The event that resumes this thread; earlier ones lose their effect."""
        self._alarm += 1
        number = self._alarm

        def go() -> None:
            if number == self._alarm and not self.over:
                self.switch()

        return go

    def _pause(self) -> None:
        if self.process.dead:
            raise Died
        loop = _get_running_loop()
        if loop is not None:  # asyncio stores it per real thread
            _set_running_loop(None)
        try:
            self.parent.switch()
        finally:
            if loop is not None:
                _set_running_loop(loop)
        if self.process.dead:
            raise Died
        if self.interruptions:
            self.interruptions -= 1
            raise Interrupted

    def end(self) -> None:
        """Unwind the stack of a dead process's thread."""
        if not self:
            self.over = True  # it was never started
        while not self.over:
            self.throw(Died)


class Scheduler:
    """The agenda of events in virtual time.

    Attributes:
        now: seconds of true time; processes have clocks of their own.
        process: the process whose code runs; None for the network, the store and the faults.
        story: what happened, one line each.
        problems: the violated rules.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.hub = getcurrent()
        self.now = 0.0
        self.process: Process | None = None
        self.processes: list[Process] = []
        self.waiting: list[tuple[Actor, Callable[[], bool]]] = []
        """Threads that wait for a mutex, each with a function that returns whether it is locked."""
        self.trace: list[str] = []
        self.problems: list[str] = []
        self.verbose = False
        self._agenda: list[tuple[float, float, int, Process | None, Callable[[], object]]] = []
        self._count = count().__next__

    def at(self, moment: float, act: Callable[[], object], process: Process | None = None) -> None:
        """Schedule a call at a time of true time. A call of a process is skipped once that is dead, and delayed while
        it is stopped."""
        heapq.heappush(self._agenda, (moment, self.random.random(), self._count(), process, act))

    def run(self, end: float = FOREVER) -> None:
        agenda, waiting = self._agenda, self.waiting
        while agenda and agenda[0][0] <= end and not self.problems:
            moment, _, number, process, act = heapq.heappop(agenda)
            if number > MOST_EVENTS:
                self.violation("it never ends")
            if process is not None:
                if process.dead:
                    continue
                if process.stopped_until > moment:
                    self.at(process.stopped_until, act, process)
                    continue
            self.now = max(self.now, moment)
            self.enter(process)
            act()
            for _, locked in waiting:
                if not locked():
                    self._wake_waiting()
                    break
        self.enter(None)
        if end < FOREVER:
            self.now = max(self.now, end)

    def _wake_waiting(self) -> None:
        for actor, locked in self.waiting[:]:
            if not locked():
                self.waiting.remove((actor, locked))
                actor.wake()

    def run_until(self, reached: Callable[[], bool], latest: float, step: float = 5.0) -> None:
        """Run until a condition holds, which is checked at intervals."""
        while not reached() and self.now < latest and not self.problems:
            self.run(self.now + step)

    def enter(self, process: Process | None) -> None:
        self.process = process

    def log(self, what: str, *arguments: object) -> None:
        """Add a line to the trace; ``%s`` are only formatted if it is verbose."""
        if self.verbose:
            text = what % arguments if arguments else what
            self.trace.append(f"{self.now:10.4f}  {self.process.name if self.process else '':4}  {text}")

    def violation(self, what: str) -> None:
        """Record a violated rule, which ends the simulation."""
        self.problems.append(what)
        self.log("BROKEN: " + what.replace("%", "%%"))


def current() -> Actor:
    """The running thread."""
    actor = getcurrent()
    assert isinstance(actor, Actor)
    return actor
