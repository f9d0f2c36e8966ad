"""Virtual time: an agenda of events, and greenlets that stand for threads. One real thread runs all of them, in an order that
depends on the seed alone."""

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
"""Seconds of virtual time after which no simulation runs any more."""

MOST_EVENTS = 100_000
"""A simulation has some hundreds; one with more goes round in circles."""

SWITCH = 1e-4
"""Seconds that a thread takes to run once it is woken, at most."""


class Died(BaseException):
    """The process was killed: what its threads do afterwards has no effect."""


class Struck(BaseException):
    """What a signal handler raises in the middle of a call."""


class Actor(greenlet):
    """A thread of a simulated process. It runs until it sleeps or waits, and then another one does."""

    def __init__(self, process: Process, name: str, act: Callable[[], object]) -> None:
        super().__init__(self._live, process.scheduler.hub)
        self.process = process
        self.scheduler = process.scheduler
        self.name = name
        self.ident = id(self)
        self.owner = self
        """As owners of locks know this thread: in a forked child the thread that forked lives on."""
        self.over = False
        self.strikes = 0
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
            if not isinstance(failure, Struck):
                self.scheduler.broken(f"{self.name} of {self.process.name} raises {failure!r}")
        finally:
            self.over = True

    def done(self) -> bool:
        """As a task has it: owners of locks are asked."""
        return self.over if self._heir is None else self._heir.done()

    def inherit(self, forked: Actor) -> None:
        """In a forked child, be the thread that forked."""
        self.owner, forked.owner._heir = forked.owner, self
        if forked.gr_context is not None:
            self.gr_context = forked.gr_context.copy()

    def sleep(self, seconds: float) -> None:
        """Seconds of the process's own clock."""
        self.scheduler.at(self.scheduler.now + seconds / self.process.rate, self._turn(), self.process)
        self._pause()

    def wait(self, lock: Any, seconds: float) -> None:
        """Acquire a lock, or return after so many seconds."""
        if not lock.acquire(blocking=False):
            parked = self.scheduler.parked
            parked.append((self, lock.locked))
            try:
                self.wait_for_wake(seconds)
            finally:
                parked[:] = [entry for entry in parked if entry[0] is not self]
            lock.acquire(blocking=False)

    def wake(self) -> None:
        """End the sleep of this thread."""
        scheduler = self.scheduler
        scheduler.at(scheduler.now + SWITCH * scheduler.random.random(), self._turn(), self.process)

    def go_on(self) -> None:
        """Let this thread run now."""
        self._turn()()

    def wait_for_wake(self, seconds: float) -> None:
        if seconds < FOREVER:
            self.sleep(max(seconds, 0.0))
        else:
            self._turn()
            self._pause()

    def _turn(self) -> Callable[[], None]:
        """The event that lets this thread go on; an earlier one has no effect any more."""
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
        if loop is not None:  # asyncio keeps it per real thread
            _set_running_loop(None)
        try:
            self.parent.switch()
        finally:
            if loop is not None:
                _set_running_loop(loop)
        if self.process.dead:
            raise Died
        if self.strikes:
            self.strikes -= 1
            raise Struck

    def end(self) -> None:
        """The process is dead: unwind the stack."""
        if not self:
            self.over = True  # it never began
        while not self.over:
            self.throw(Died)


class Scheduler:
    """What happens next, and when.

    Attributes:
        now: seconds of true time; processes have clocks of their own.
        process: whose code runs at this moment; None for the network, the store and the faults.
        story: what happened, one line each.
        problems: the rules that were broken.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.hub = getcurrent()
        self.now = 0.0
        self.process: Process | None = None
        self.processes: list[Process] = []
        self.parked: list[tuple[Actor, Callable[[], bool]]] = []
        """Who waits for a lock, and whether that is locked."""
        self.story: list[str] = []
        self.problems: list[str] = []
        self.verbose = False
        self._agenda: list[tuple[float, float, int, Process | None, Callable[[], object]]] = []
        self._count = count().__next__

    def at(self, moment: float, act: Callable[[], object], process: Process | None = None) -> None:
        """Have something happen at a moment of true time; what belongs to a process doesn't once that is dead, and waits
        while it is stopped."""
        heapq.heappush(self._agenda, (moment, self.random.random(), self._count(), process, act))

    def run(self, end: float = FOREVER) -> None:
        agenda, parked = self._agenda, self.parked
        while agenda and agenda[0][0] <= end and not self.problems:
            moment, _, number, process, act = heapq.heappop(agenda)
            if number > MOST_EVENTS:
                self.broken("it never ends")
            if process is not None:
                if process.dead:
                    continue
                if process.stopped_until > moment:
                    self.at(process.stopped_until, act, process)
                    continue
            self.now = max(self.now, moment)
            self.enter(process)
            act()
            for _, locked in parked:
                if not locked():
                    self._unpark()
                    break
        self.enter(None)
        if end < FOREVER:
            self.now = max(self.now, end)

    def _unpark(self) -> None:
        for actor, locked in self.parked[:]:
            if not locked():
                self.parked.remove((actor, locked))
                actor.wake()

    def run_until(self, reached: Callable[[], bool], latest: float, step: float = 5.0) -> None:
        """Go on until something is true, which is looked at now and then."""
        while not reached() and self.now < latest and not self.problems:
            self.run(self.now + step)

    def enter(self, process: Process | None) -> None:
        self.process = process

    def say(self, what: str, *arguments: object) -> None:
        """A line of the story; ``%s`` are filled in only if it is told."""
        if self.verbose:
            text = what % arguments if arguments else what
            self.story.append(f"{self.now:10.4f}  {self.process.name if self.process else '':4}  {text}")

    def broken(self, what: str) -> None:
        """A rule is broken: the simulation ends."""
        self.problems.append(what)
        self.say("BROKEN: " + what.replace("%", "%%"))


def current() -> Actor:
    """The thread that runs."""
    actor = getcurrent()
    assert isinstance(actor, Actor)
    return actor
