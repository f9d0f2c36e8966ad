"""Injects faults that the seed chooses, and records disturbances, in which the rules allow delays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.simulation.network import Request, SimulatedSubscriber
    from tests.simulation.process import Process
    from tests.simulation.scheduler import Scheduler

TIMEOUT = 2.0
"""Seconds that a client waits for a reply."""

RETRY = 1.1
"""Seconds between two attempts of the engine, at most."""


class Disturbance(NamedTuple):
    """A period of true time in which one process, or all, may be late."""

    begin: float
    end: float
    process: Process | None
    kind: str


class Faults:
    """The faults of one simulation.

    Attributes:
        chances: the probability of each kind of fault for a request.
        left: how many more faults of requests may be injected.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.chances: dict[str, float] = {}
        self.left = 0
        self.slowness = 3e-4
        self.forced: list[tuple[str, str, Process]] = []
        """Faults of the next requests with these commands of these processes."""
        self._slow: dict[str, float] = {}
        self.disturbances: list[Disturbance] = []
        self.counts: Counter[str] = Counter()

    def count(self, kind: str) -> None:
        self.counts[kind] += 1

    def disturb(self, seconds: float, process: Process | None, kind: str) -> None:
        now = self.scheduler.now
        self.disturbances.append(Disturbance(now, now + seconds, process, kind))

    def between(self, begin: float, end: float, process: Process | None = None) -> float:
        """The total length of the disturbances that overlap this period, of all processes or of one."""
        return sum(
            found.end - found.begin
            for found in self.disturbances
            if found.begin <= end and found.end >= begin and (process is None or found.process in (None, process))
        )

    # Network

    def trip(self) -> float:
        return 5e-5 + self.scheduler.random.expovariate(1.0) * self.slowness

    def reconnect(self) -> float:
        return self.scheduler.random.uniform(0.001, 0.5)

    def lateness(self) -> float:
        return self.scheduler.random.uniform(TIMEOUT, TIMEOUT + 2.5)

    def force(self, kind: str, command: str, process: Process) -> None:
        """Inject a fault into the next request of a process with this command."""
        self.forced.append((kind, command, process))

    def slow(self, command: str, seconds: float) -> None:
        """Delay the next reply to this command."""
        self._slow[command] = seconds

    def trip_back(self, request: Request) -> float:
        return self.trip() + (self._slow.pop(request.commands[0].name, 0.0) if self._slow else 0.0)

    def of_request(self, request: Request) -> str:
        """The fault of a request: "", "request lost", "reply lost" or "late"."""
        for forced in self.forced:
            if forced[1:] == (request.commands[0].name, request.process):
                self.forced.remove(forced)
                return forced[0]
        if self.left > 0 and self.chances:
            drawn = self.scheduler.random.random()
            for kind, chance in self.chances.items():
                if drawn < chance:
                    self.left -= 1
                    self.count(kind)
                    self.scheduler.log("    %s: %s", kind, request.commands[0].name)
                    self.disturb(TIMEOUT + RETRY, request.process, kind)
                    return kind
                drawn -= chance
        return ""

    def note_reset(self, request: Request) -> None:
        self.disturb(RETRY, request.process, "reset")
        if self.scheduler.random.random() < 0.3:
            request.lose()

    def loses_subscription(self) -> bool:
        return False

    def loses_message(self, inbox: SimulatedSubscriber) -> bool:
        return False
