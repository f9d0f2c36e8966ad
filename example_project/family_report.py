"""Evaluates the scenes of the family of locks: their tables, and the failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

GAP = "   "
FIRST_COLUMN = 22


@dataclass(frozen=True)
class Event:
    """A line of the journal."""

    what: str
    of: int  # the caller
    at: float  # monotonic seconds, of a clock that all processes share


@dataclass(frozen=True)
class Table:
    """What a scene shows. A row is a form: those that `wrong` is about are ours."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: str
    wrong: Sequence[str]

    def lines(self) -> list[str]:
        """The heading and the rows, with aligned columns: the first one to the left, numbers to the right."""
        table = [self.columns, *self.rows]
        widths = [max(FIRST_COLUMN, *(len(row[0]) for row in table))]
        widths += [max(len(row[column]) for row in table) for column in range(1, len(self.columns))]
        return [
            GAP.join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in table
        ]


# What the journals say


def overtaken(served: Sequence[int]) -> int:
    """The number of callers that were served after a later one. Callers are numbered in the order of their arrival."""
    return sum(any(later > caller for later in served[:place]) for place, caller in enumerate(served))


Span = tuple[float, float]


def spans(events: Iterable[Event], began: str, ended: str, killed: Mapping[int, float] | None = None) -> list[Span]:
    """The times between two events of each caller. That of a killed caller ends with its kill."""
    found: list[Span] = []
    begun: dict[int, float] = {}
    for event in events:
        if event.what == began:
            begun[event.of] = event.at
        elif event.what == ended and event.of in begun:
            found.append((begun.pop(event.of), event.at))
    found += [(begun[caller], at) for caller, at in (killed or {}).items() if caller in begun]
    return found


def most_at_once(found: Iterable[Span]) -> int:
    """The largest number of spans at a time."""
    steps = sorted([(begin, 1) for begin, _ in found] + [(end, -1) for _, end in found])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


# The scenes


def arrival(served: Mapping[str, Sequence[int]], callers: int, processes: int) -> Table:
    """served: of each form, the callers in the order in which they got the lock."""
    rows, wrong = [], []
    for form, order in served.items():
        letters = " ".join(chr(ord("A") + caller % processes) for caller in order)
        rows.append((form, letters, str(overtaken(order))))
        if sorted(order) != list(range(callers)):
            wrong.append(f"{form} served {len(set(order))} of {callers} callers.")
    if overtaken(served["fair_lock"]):
        wrong.append(f"fair_lock let {overtaken(served['fair_lock'])} callers be overtaken.")
    if not overtaken(served["lock"]):
        wrong.append("lock let no caller be overtaken: the difference didn't show.")
    return Table(
        f"Order of arrival: {callers} threads of the processes A, B, C and D ask for a busy lock, one after the other",
        ("form", "served", "overtaken"),
        rows,
        "lock passes on within a process first, which is fast; fair_lock serves in the order in which the requests arrived "
        "at the server, whichever thread, task or process they come from.",
        wrong,
    )


@dataclass(frozen=True)
class Reads:
    """One form of reading and writing."""

    form: str
    reads: int
    torn: int  # reads that saw one half before a write and the other half after it
    at_once: int
    seconds: float


def readers(outcomes: Sequence[Reads], expected: int) -> Table:
    """outcomes: without a lock, with a mutex, with a read-write lock."""
    free, mutex, ours = outcomes
    wrong = [f"{one.form}: {one.torn} of {one.reads} reads saw half of a write." for one in (mutex, ours) if one.torn]
    wrong += [f"{one.form}: {one.reads} of {expected} reads." for one in outcomes if one.reads != expected]
    if not free.torn:
        wrong.append("Without a lock no read saw half of a write: the race didn't show.")
    if mutex.at_once != 1:
        wrong.append(f"With lock {mutex.at_once} callers read at once.")
    if ours.at_once < 2:
        wrong.append("With rwlock no two callers read at once.")
    return Table(
        "Readers beside readers: 6 processes read two prices that a seventh one changes together",
        ("form", "reads", "half a write seen", "readers at once", "seconds"),
        [(one.form, str(one.reads), str(one.torn), str(one.at_once), f"{one.seconds:.1f}") for one in outcomes],
        f"A read-write lock keeps the writer away from the readers, but not the readers from each other: up to "
        f"{ours.at_once} at a time, and no half-written prices.",
        wrong,
    )


@dataclass(frozen=True)
class Permits:
    """One form of permits, after processes that held some were killed."""

    form: str
    done: int
    at_once: int
    left: int  # permits at the end
    back_after: float | None  # seconds from the last kill until none was missing


def permits(outcomes: Sequence[Permits], limit: int, killed: int, expected: int, lease: float) -> Table:
    """outcomes: of a list of tokens, and of a semaphore. expected: how many jobs the other processes do."""
    tokens, ours = outcomes
    wrong = [f"{one.form}: {one.at_once} at once, {limit} may." for one in outcomes if one.at_once > limit]
    if ours.left != limit:
        wrong.append(f"The semaphore has {ours.left} of {limit} permits at the end.")
    if ours.done != expected:
        wrong.append(f"With the semaphore {ours.done} of {expected} jobs were done.")
    if ours.back_after is None or ours.back_after > 2 * lease:
        wrong.append(f"The permits weren't back within {2 * lease:.0f} s.")
    if tokens.left == limit:
        wrong.append("The list of tokens lost none: the difference didn't show.")
    rows = [
        (
            one.form,
            str(one.done),
            str(one.at_once),
            f"{one.left} of {limit}",
            "never" if one.back_after is None else f"{one.back_after:.1f} s",
        )
        for one in outcomes
    ]
    return Table(
        f"Permits back after a kill: {limit} jobs at a time, and kill -9 for {killed} processes in the middle of theirs",
        ("form", "jobs done", "at once", "permits at the end", "all back after"),
        rows,
        f"A token that a dead process has taken from a list is gone. A permit is leased, here for {lease:g} s, and renewed while "
        f"its process lives.",
        wrong,
    )


@dataclass(frozen=True)
class Openings:
    """One form of waiting for several imports."""

    form: str
    counts: int  # calls of count_down
    missing: Sequence[int]  # for each waiter, the files that weren't imported when it went on
    delays: Sequence[float]  # and the seconds since the last import then


def latch(outcomes: Sequence[Openings], files: int, waiters: int) -> Table:
    """outcomes: of a plain counter, and of a latch."""
    counter, ours = outcomes
    wrong = [
        f"{one.form}: {len(one.missing)} of {waiters} waiters went on."
        for one in outcomes
        if len(one.missing) != waiters
    ]
    if any(ours.missing):
        wrong.append(f"The latch opened with {max(ours.missing)} files missing.")
    if not any(counter.missing):
        wrong.append("The counter opened with no file missing: the difference didn't show.")
    delay = max(ours.delays, default=0.0)
    return Table(
        f"A latch: {waiters} processes wait for the import of {files} files; the task of one file is delivered twice",
        ("form", "calls", "files", "missing when it opened"),
        [(one.form, str(one.counts), str(files), str(max(one.missing, default=0))) for one in outcomes],
        f"count_down(file) counts each file once, and all waiters went on within {1000 * delay:.0f} ms of the last one, "
        f"without polling.",
        wrong,
    )


@dataclass(frozen=True)
class Transfers:
    """One form of transfers between accounts."""

    form: str
    done: int
    given_up: int
    total: int  # money at the end
    seconds: float


def transfers(outcomes: Sequence[Transfers], money: int, expected: int) -> Table:
    """outcomes: of two locks, one inside of the other, and of a multi-lock."""
    nested, ours = outcomes
    wrong = [f"{one.form}: {one.total} of {money} is left." for one in outcomes if one.total != money]
    if ours.given_up or ours.done != expected:
        wrong.append(f"With multi_lock {ours.done} of {expected} transfers were done, {ours.given_up} given up.")
    if not nested.given_up:
        wrong.append("No two nested locks waited for each other: the difference didn't show.")
    return Table(
        "No deadlock: 6 processes transfer money between two accounts, half of them in the opposite direction",
        ("form", "transfers", "given up", "money before", "after", "seconds"),
        [
            (one.form, str(one.done), str(one.given_up), str(money), str(one.total), f"{one.seconds:.1f}")
            for one in outcomes
        ],
        "Two callers that each hold one lock and wait for the other's wait in vain. A multi-lock acquires all of its keys in one "
        "step, or none.",
        wrong,
    )


def in_order(events: Iterable[Event], what: str) -> list[int]:
    """The callers of these events, in the order of the times."""
    return [event.of for event in sorted(events, key=lambda event: event.at) if event.what == what]


def last(events: Iterable[Event], what: str) -> float:
    return max(event.at for event in events if event.what == what)
