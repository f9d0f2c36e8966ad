"""Evaluates the journal of the jobs: the table, and the failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

COLUMNS = ("job", "submitted", "messages", "begun", "killed", "finished", "twice", "at once", "lost")
GAP = "   "
WIDTH = 20

INTERVAL = 2.0
TOO_SOON = 0.7 * INTERVAL
"""Seconds: two messages of a beat's job that are closer belong to one tick."""
TOO_LATE = 15.0
"""Seconds without a run after which a tick counts as lost: long enough for the other beat to take over on a slow
machine."""


@dataclass(frozen=True)
class Event:
    """A line of the journal."""

    what: str  # sent, kept (a submission that another message serves), began, ended, freed (the key of a dead run)
    task: str
    id: str
    key: object
    pid: int
    at: float


@dataclass(frozen=True)
class Kill:
    """A kill of a process that ran a job, or of a beat, then without a job."""

    pid: int
    task: str
    id: str
    at: float


@dataclass(frozen=True)
class JobCounts:
    """The counts of one job."""

    task: str
    submitted: int
    messages: int
    begun: int
    killed: int
    finished: int
    twice: int
    at_once: int
    lost: int

    def row(self) -> tuple[str, ...]:
        numbers = (self.submitted, self.messages, self.begun, self.killed, self.finished)
        return (self.task, *map(str, numbers), str(self.twice), str(self.at_once), str(self.lost))


def confirmations(
    task: str, events: Iterable[Event], kills: Iterable[Kill], orders: Iterable[object], times: int
) -> JobCounts:
    """The counts of confirmations: each order needs one, and was submitted `times` times."""
    mine = [event for event in events if event.task == task]
    ends = Counter(event.key for event in mine if event.what == "ended")
    orders = list(orders)
    return JobCounts(
        task,
        submitted=times * len(orders),
        messages=sum(event.what == "sent" for event in mine),
        begun=sum(event.what == "began" for event in mine),
        killed=sum(kill.task == task for kill in kills),
        finished=ends.total(),
        twice=sum(count - 1 for count in ends.values()),
        at_once=overlaps(mine, kills),
        lost=sum(not ends[order] for order in orders),
    )


def ticks(task: str, events: Iterable[Event], kills: Iterable[Kill], until: float) -> JobCounts:
    """One run per tick, and one at a time."""
    mine = [event for event in events if event.task == task]
    sent = sorted(event.at for event in mine if event.what == "sent")
    begun = sorted(event.at for event in mine if event.what == "began")
    ran = {event.id for event in mine if event.what == "began"}
    return JobCounts(
        task,
        submitted=sum(event.what in ("sent", "kept") for event in mine),
        messages=len(sent),
        begun=len(begun),
        killed=sum(kill.task == task for kill in kills),
        finished=sum(event.what == "ended" for event in mine),
        twice=sum(after - before < TOO_SOON for before, after in pairwise(sent)),
        at_once=overlaps(mine, kills),
        lost=sum(after - before > TOO_LATE for before, after in pairwise([*begun, until]))
        + sum(event.what == "sent" and event.id not in ran and event.at < until - TOO_LATE for event in mine),
    )


def overlaps(events: Iterable[Event], kills: Iterable[Kill]) -> int:
    """The number of runs that began during another run with the same key."""
    dead = {(kill.pid, kill.id): kill.at for kill in kills}
    going: dict[object, dict[tuple[int, str], float]] = {}
    found = 0
    for event in sorted(events, key=lambda event: event.at):
        others = going.setdefault(event.key, {})
        run = event.pid, event.id
        if event.what == "began":
            found += any(event.at < end for end in others.values())
            others[run] = dead.get(run, float("inf"))
        elif event.what == "ended":
            others.pop(run, None)
    return found


def heading() -> str:
    return _line(COLUMNS)


def line(counts: JobCounts) -> str:
    return _line(counts.row())


def _line(cells: Sequence[str]) -> str:
    first, *numbers = cells
    return GAP.join(
        [first.ljust(WIDTH), *(cell.rjust(len(name)) for cell, name in zip(numbers, COLUMNS[1:], strict=True))]
    )


def failures(plain: Sequence[JobCounts], ours: Sequence[JobCounts]) -> list[str]:
    """The deviations from the expected results; empty if there are none."""
    found = [f"{one.task} was never done twice: there was nothing to compare with." for one in plain if not one.twice]
    for one in ours:
        if one.twice:
            found.append(f"{one.task} was done twice {one.twice} times.")
        if one.at_once:
            found.append(f"{one.task} ran {one.at_once} times while it ran already.")
        if one.lost:
            found.append(f"{one.task} was lost {one.lost} times.")
        if not one.killed:
            found.append(f"No run of {one.task} was killed.")
        if one.messages >= one.submitted:
            found.append(f"{one.task} had a message for each submission: no lock was at work.")
    return found


def explanation(plain: Sequence[JobCounts], ours: Sequence[JobCounts], took: float) -> str:
    """The explanation below the tables."""
    (plain_ticks, plain_orders), (ticks_, orders) = plain, ours
    return (
        f"Of plain jobs each beat sends its own, {plain_ticks.messages} messages for {ticks_.messages} ticks, and three "
        f"clicks send three mails, {plain_orders.finished} for {orders.finished} orders. With SingletonTask "
        f"a tick is one message and no run overlaps another; with IdempotentTask an order is one mail. The keys of the "
        f"two runs that were killed were free within {1000 * took:.0f} ms, and the confirmation was sent by another "
        f"process. When the beat that had sent the ticks was killed, the other one went on."
    )
