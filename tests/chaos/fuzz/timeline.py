"""The lines of a history, by hold and by worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tests.chaos.fuzz.history import KILL, RESUME, STOP, Entry, Exit, Line, Outcome, Record, Signal, Stall


@dataclass(eq=False)
class Hold:
    """One hold, from its entry to the result of its release. Lines after a kill are missing."""

    number: int
    """By the order of the entries in the history."""
    entry: Entry
    exit: Exit | None = None
    outcome: Outcome | None = None

    def __str__(self) -> str:
        worker, caller, hold, fence, *_ = self.entry
        return f"hold {hold} of caller {worker}.{caller}, fence {fence}"

    @property
    def until(self) -> float:
        """The end of its lease, or before: a renewed one that was killed or stopped may have had a little more."""
        return max(self.entry.until, self.exit.until if self.exit else 0.0)

    @property
    def end(self) -> float:
        """The end of its lease or of its section, whichever came first: until then it had to be alone."""
        return min(self.until, self.exit.left) if self.exit else self.until


@dataclass
class Worker:
    killed: bool = False
    stops: list[list[float]] = field(default_factory=list)
    """When it was stopped, and when it went on."""
    stalls: list[Stall] = field(default_factory=list)
    """Times in which the machine ran no process."""
    own: list[Stall] = field(default_factory=list)
    """Times in which the machine didn't run this process only."""

    def stopped(self, begin: float, end: float) -> bool:
        """Return whether it was stopped at any time in between."""
        times = [*self.stops, *(stall[:2] for stall in (*self.stalls, *self.own) if stall.excuses)]
        return any(stop <= end and resume >= begin for stop, resume in times)

    def was_stopped_during(self, stall: Stall) -> bool:
        """Return whether a stall is explained by a stop signal."""
        return any(stop <= stall.end and resume >= stall.begin for stop, resume in self.stops)


class Event(NamedTuple):
    time: float
    line: Line
    hold: Hold | None
    """The hold of this entry, exit or outcome."""


class Timeline:
    """Everything in the order of the history."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.holds: list[Hold] = []
        self.workers: dict[int, Worker] = {}
        self.malformed: list[str] = []
        """Lines in an impossible order: the fuzz itself is broken."""
        self.stalls: list[Stall] = []
        self.late: list[tuple[float, float]] = []
        """The same, on the clock of the history."""
        self._newest: dict[tuple[int, int], Hold] = {}
        self.events = [Event(time, line, self._apply(line)) for time, line in records]
        for time, line, _ in self.events:
            if isinstance(line, Stall):
                (self.worker(line.worker).own if line.worker else self.stalls).append(line)
                if not (line.worker and self.worker(line.worker).was_stopped_during(line)):
                    self._note(time - (line.end - line.begin), time)

    def _note(self, begin: float, end: float) -> None:
        """Each moment once, although several processes note it."""
        apart = [late for late in self.late if late[1] < begin or late[0] > end]
        met = [(begin, end), *(late for late in self.late if late not in apart)]
        self.late = [*apart, (min(here for here, _ in met), max(there for _, there in met))]

    def running_time(self, begin: float, end: float) -> float:
        """Return the seconds in which the machine ran all processes that weren't stopped, on the clock of the
        history."""
        return end - begin - sum(max(0.0, min(end, there) - max(begin, here)) for here, there in self.late)

    def worker(self, number: int) -> Worker:
        return self.workers.setdefault(number, Worker(stalls=self.stalls))

    def worker_of(self, hold: Hold) -> Worker:
        return self.worker(hold.entry.worker)

    def _apply(self, line: Line) -> Hold | None:
        match line:
            case Entry():
                return self._begin(line)
            case Exit() | Outcome():
                return self._end(line)
            case Signal():
                self._signal(line)
        return None

    def _begin(self, line: Entry) -> Hold:
        before = self._newest.get((line.worker, line.caller))
        if line.hold != (before.entry.hold if before else 0) + 1 or (before and not before.outcome):
            self.malformed.append(f"{line} doesn't follow {before}")
        hold = self._newest[line.worker, line.caller] = Hold(len(self.holds), line)
        self.holds.append(hold)
        return hold

    def _end(self, line: Exit | Outcome) -> Hold | None:
        hold = self._newest.get((line.worker, line.caller))
        if hold is None or hold.entry.hold != line.hold or hold.outcome or bool(hold.exit) is isinstance(line, Exit):
            self.malformed.append(f"{line} doesn't follow {hold}")
            return None
        if isinstance(line, Exit):
            hold.exit = line
        else:
            hold.outcome = line
        return hold

    def _signal(self, line: Signal) -> None:
        worker = self.worker(line.worker)
        if line.what == KILL:
            worker.killed = True
        elif line.what == STOP:
            worker.stops.append([line.at, inf])
        elif line.what == RESUME:
            worker.stops[-1][1] = line.at
