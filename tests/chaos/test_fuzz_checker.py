"""The checker of the fuzz, on histories written by hand: correct ones, and each kind of violation."""

from __future__ import annotations

from itertools import chain

from tests.chaos.fuzz.checker import check
from tests.chaos.fuzz.history import (
    BEGIN,
    END,
    KILL,
    LOST,
    RELEASED,
    RESUME,
    STOP,
    UNREACHABLE,
    Entry,
    Exit,
    Failed,
    Line,
    Mark,
    Outcome,
    Record,
    Refused,
    Signal,
    Stall,
    decode,
    encode,
)

Lines = list[Record]

LEASE = 1.0
VALID = 0.99


def visit(
    worker: int,
    fence: int,
    got: float,
    left: float | None,
    *,
    until: float | None = None,
    renewed: float = 0.0,
    lost: bool = False,
    outcome: str | None = RELEASED,
    written: float = 0.0,
    exited: float = 0.0,
    released: float = 0.0,
) -> Lines:
    """A hold by the only caller of a worker. It ends in `left`, or there is no exit; `written`, `exited` and `released`
    are when its lines reach the history, if that isn't at once."""
    until = got + VALID if until is None else until
    lines = [Record(written or got, Entry(worker, 0, 1, fence, got, got, until))]
    if left is not None:
        exited = exited or left
        lines += [Record(exited, Exit(worker, 0, 1, left, max(until, renewed), lost, left))]
        if outcome:
            released = released or exited
            lines += [Record(released + 0.0001, Outcome(worker, 0, 1, outcome, released))]
    return lines


def killed(worker: int, at: float, *, hit: bool = True) -> Lines:
    return [Record(at, Signal(worker, KILL, at, hit))]


def stopped(worker: int, at: float, until: float, *, hit: bool = True) -> Lines:
    return [Record(at, Signal(worker, STOP, at, hit)), Record(until, Signal(worker, RESUME, until))]


def line(time: float, line: Line) -> Lines:
    return [Record(time, line)]


def violations(*parts: Lines, end: float = 3.0) -> list[str]:
    records = sorted(chain(*parts, line(0.0, Mark(BEGIN)), line(end, Mark(END))), key=lambda record: record.time)
    return check(records, LEASE).violations


STALE = {"lost": True, "outcome": LOST}
"""The report to a holder that was stopped for too long."""

CORRECT = {
    "the lease of the dead runs out": [visit(1, 11, 0.1, None), killed(1, 0.2), visit(2, 12, 1.2, 1.3)],
    "stopped, overtaken and notified": [
        visit(1, 11, 0.1, 2.1, **STALE),
        stopped(1, 0.2, 2.0),
        visit(2, 12, 1.2, 1.3),
        visit(3, 13, 1.4, 1.5),
    ],
    "the machine stood still while it was inside": [
        visit(1, 11, 0.1, 2.1, **STALE),
        line(1.9, Stall(0.2, 1.9)),
        visit(2, 12, 2.0, 2.05),
    ],
    "it alone had no turn while it was inside": [
        visit(1, 11, 0.1, 2.1, **STALE),
        line(1.9, Stall(0.2, 1.9, 1)),
        visit(2, 12, 1.2, 1.3),
    ],
    "the next one had no turn": [
        visit(1, 11, 0.1, 0.2),
        line(2.0, Stall(0.3, 2.0, 2)),
        line(2.05, Stall(1.9, 2.05)),
        visit(2, 12, 2.1, 2.2),
    ],
    "its entry is written late": [
        visit(1, 11, 0.1, 2.1, written=2.0, **STALE),
        stopped(1, 0.2, 1.9),
        visit(2, 12, 1.2, 1.3),
    ],
    "its exit is written late": [
        visit(1, 11, 0.1, 0.2, exited=2.0, outcome=LOST),
        stopped(1, 0.3, 1.9),
        visit(2, 12, 1.2, 1.3),
    ],
    "stopped on its way out of acquire": [
        visit(1, 11, 1.8, 1.9, until=0.0, **STALE),
        [Record(0.1, Signal(1, STOP, 0.1, True)), Record(1.81, Signal(1, RESUME, 1.81))],
        visit(2, 12, 1.2, 1.3),
    ],
    "renewed": [visit(1, 11, 0.1, 1.3, renewed=1.9), visit(2, 12, 1.4, 1.5)],
    "the network drops a stopped process": [
        visit(1, 11, 0.1, 0.2, outcome=UNREACHABLE, released=2.3),
        stopped(1, 0.2, 2.2),
        visit(2, 12, 1.2, 1.3),
        line(2.9, Refused(1, 0, 2.0, 2.9, "")),
    ],
}


LATER = visit(9, 99, 2.5, 2.6)
"""So that there is no gap at the end."""


def test_correct_history_has_no_violation() -> None:
    for name, history in CORRECT.items():
        assert violations(*history, LATER) == [], name


WRONG = {
    "two inside": ([visit(1, 11, 0.1, 0.3), visit(2, 12, 0.2, 0.4)], "before the end of hold"),
    "the dead are robbed": (
        [visit(1, 11, 0.1, None), killed(1, 0.2), visit(2, 12, 0.9, 1.1)],
        "before the lease of hold 1 of caller 1.0, fence 11 was over",
    ),
    "robbed before it could write": (
        [visit(1, 11, 0.1, 1.4, written=1.3, **STALE), stopped(1, 0.2, 1.2), visit(2, 12, 0.7, 0.75)],
        "before the lease of hold 1 of caller 1.0, fence 11 was over",
    ),
    "not notified": (
        [visit(1, 11, 0.1, 2.1), stopped(1, 0.2, 2.0), visit(2, 12, 1.2, 1.3)],
        "outlived its lease by 1.010 s without notice",
    ),
    "notified before, not by the release": (
        [visit(1, 11, 0.1, 2.1, lost=True), stopped(1, 0.2, 2.0), visit(2, 12, 1.2, 1.3)],
        "returned 'released' although hold 1 of caller 2.0",
    ),
    "overtaken on the way out without having been stopped": (
        [visit(1, 11, 0.1, 0.2, exited=1.5, outcome=LOST), stopped(1, 1.3, 1.4), visit(2, 12, 1.2, 1.25)],
        "was inside together with",
    ),
    "a loss out of the blue": (
        [visit(1, 11, 0.1, 0.2, lost=True, outcome=RELEASED), stopped(1, 0.2, 0.3)],
        "was reported lost 0.890 s before",
    ),
    "a lease that ends while its process runs": (
        [visit(1, 11, 0.1, 1.2, **STALE)],
        "lost its lock although its process ran on",
    ),
    "a lease that ends although the machine was late for a moment only": (
        [visit(1, 11, 0.1, 1.2, **STALE), line(0.5, Stall(0.3, 0.5))],
        "lost its lock although its process ran on",
    ),
    "a store that is down only for a release": (
        [visit(1, 11, 0.1, 0.2, outcome=UNREACHABLE)],
        "returned 'unreachable' although its process ran on",
    ),
    "a store that is down only for an acquire": ([line(0.3, Refused(1, 0, 0.1, 0.3, "no"))], "ran on: no"),
    "the same fence": ([visit(1, 11, 0.1, 0.2), visit(2, 11, 0.3, 0.4)], "has the fence of"),
    "a lease longer than asked for": ([visit(1, 11, 0.1, 0.2, until=1.2)], "believed in a lease of 1.100 s"),
    "hold without an end": ([visit(1, 11, 0.1, None)], "has no end although its process wasn't killed"),
    "an exception": ([line(0.1, Failed(1, 0, "ValueError"))], "caller 1.0 failed:\nValueError"),
    "a line that is written twice": (
        [visit(1, 11, 0.1, 0.2), line(0.15, Exit(1, 0, 1, 0.15, 1.09, False, 0.15))],
        "doesn't follow",
    ),
    "a lock that stays with the dead": ([visit(1, 11, 0.1, None), killed(1, 0.2)], "no entry for 2.300 s"),
    "a bystander's death is no excuse": (
        [visit(1, 11, 0.1, None), killed(1, 0.2), killed(2, 1.2, hit=False), visit(3, 13, 1.8, 1.9)],
        "no entry for 1.600 s",
    ),
    "nor is that a bystander was stopped": (
        [
            visit(1, 11, 0.1, 0.2),
            stopped(2, 0.3, 1.7, hit=False),
            line(1.7, Stall(0.3, 1.7, 2)),
            visit(3, 13, 1.8, 1.9),
        ],
        "no entry for 1.600 s",
    ),
}


def test_wrong_history_is_a_violation() -> None:
    for name, (history, violation) in WRONG.items():
        found = violations(*history, LATER)
        assert any(violation in one for one in found), (name, found)


def test_gap_after_two_signals_to_holders_is_no_violation() -> None:
    """The second one kills a holder that had no time to write its entry."""
    assert violations(visit(1, 11, 0.1, None), killed(1, 0.2), killed(2, 1.2), LATER) == []


def test_stopped_process_excuses_the_leases_of_grants_to_its_waiters() -> None:
    """Here to one of them."""
    history = [visit(1, 11, 0.1, 0.2), stopped(2, 0.15, 1.7, hit=False)]
    records = sorted(chain(*history, line(0.0, Mark(BEGIN)), line(3.2, Mark(END))), key=lambda record: record.time)
    for late, found in ((2.5, 0), (2.75, 1)):
        ended = sorted([*records, *visit(3, 13, late, late + 0.1)], key=lambda record: record.time)
        assert len(check(ended, LEASE, grants=1).violations) == found
        assert len(check(ended, LEASE).violations) == 1


def test_gap_after_the_end_is_no_violation() -> None:
    """A process that was started late enters when all others have left."""
    assert violations(visit(1, 11, 0.1, 0.2), visit(2, 12, 1.2, 1.3), visit(3, 13, 4.0, 4.1), end=1.1) == []


def test_history_without_entries_is_a_violation() -> None:
    assert violations(end=2.0) == ["no entry for 2.000 s, until end"]


def test_decoded_line_equals_the_encoded_one() -> None:
    lines: list[Line] = [Entry(1, 2, 3, 4, 0.5, 0.6, 0.7), Outcome(1, 2, 3, LOST, 0.5), Mark(BEGIN), Stall(0.5, 0.9)]
    for line in lines:
        assert decode(f"1700000000123456 {encode(line)}") == Record(1700000000.123456, line)
