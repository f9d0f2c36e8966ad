"""The judgement of the demo of the family of locks: it must fail for what it is meant to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from example_project.family_report import (
    Event,
    Openings,
    Permits,
    Reads,
    Table,
    Transfers,
    arrival,
    latch,
    most_at_once,
    overtaken,
    permits,
    readers,
    spans,
    transfers,
)

READS = [Reads("no lock", 30, 7, 6, 0.2), Reads("lock", 30, 0, 1, 1.6), Reads("rwlock", 30, 0, 6, 0.5)]
PERMITS = [Permits("list of tokens", 18, 3, 1, None), Permits("semaphore", 18, 3, 3, 2.02)]
OPENINGS = [Openings("counter", 6, [1, 1, 1], [-0.4] * 3), Openings("latch", 6, [0, 0, 0], [0.004] * 3)]

TRANSFERS = [Transfers("two locks", 4, 26, 2000, 2.6), Transfers("multi_lock", 30, 0, 2000, 0.5)]


def judge_reads(outcomes: Sequence[Any]) -> Table:
    return readers(outcomes, 30)


def judge_permits(outcomes: Sequence[Any]) -> Table:
    return permits(outcomes, limit=3, killed=2, expected=18, lease=2)


def judge_openings(outcomes: Sequence[Any]) -> Table:
    return latch(outcomes, files=5, waiters=3)


def judge_transfers(outcomes: Sequence[Any]) -> Table:
    return transfers(outcomes, money=2000, expected=30)


@pytest.mark.parametrize(
    ("judge", "outcomes", "at", "changes", "message"),
    [
        (judge_reads, READS, 0, {"torn": 0}, "Without a lock no read saw half of a write: the race didn't show."),
        (judge_reads, READS, 1, {"at_once": 2}, "With lock 2 callers read at once."),
        (judge_reads, READS, 2, {"torn": 1}, "rwlock: 1 of 30 reads saw half of a write."),
        (judge_reads, READS, 2, {"reads": 29}, "rwlock: 29 of 30 reads."),
        (judge_reads, READS, 2, {"at_once": 1}, "With rwlock no two callers read at once."),
        (judge_permits, PERMITS, 0, {"left": 3}, "The list of tokens lost none: the difference didn't show."),
        (judge_permits, PERMITS, 1, {"left": 2}, "The semaphore has 2 of 3 permits at the end."),
        (judge_permits, PERMITS, 1, {"done": 17}, "With the semaphore 17 of 18 jobs were done."),
        (judge_permits, PERMITS, 1, {"at_once": 4}, "semaphore: 4 at once, 3 may."),
        (judge_permits, PERMITS, 1, {"back_after": 4.1}, "The permits weren't back within 4 s."),
        (judge_permits, PERMITS, 1, {"back_after": None}, "The permits weren't back within 4 s."),
        (judge_openings, OPENINGS, 0, {"missing": [0] * 3}, "The counter opened with no file missing: the difference"),
        (judge_openings, OPENINGS, 1, {"missing": [0, 1, 0]}, "The latch opened with 1 files missing."),
        (judge_openings, OPENINGS, 1, {"missing": [0, 0]}, "latch: 2 of 3 waiters went on."),
        (judge_transfers, TRANSFERS, 0, {"given_up": 0}, "No two nested locks waited for each other: the difference"),
        (judge_transfers, TRANSFERS, 0, {"total": 1999}, "two locks: 1999 of 2000 is left."),
        (judge_transfers, TRANSFERS, 1, {"total": 2001}, "multi_lock: 2001 of 2000 is left."),
        (judge_transfers, TRANSFERS, 1, {"given_up": 1}, "With multi_lock 30 of 30 transfers were done, 1 given up."),
        (judge_transfers, TRANSFERS, 1, {"done": 29}, "With multi_lock 29 of 30 transfers were done, 0 given up."),
    ],
)
def test_outcome_that_shows_no_difference_or_breaks_a_promise_fails(
    judge: Callable[[Sequence[Any]], Table], outcomes: list[Any], at: int, changes: dict[str, Any], message: str
) -> None:
    assert judge(outcomes).wrong == []
    changed = [*outcomes[:at], replace(outcomes[at], **changes), *outcomes[at + 1 :]]
    (found,) = judge(changed).wrong
    assert found.startswith(message)


def test_order_of_arrival_fails_with_an_overtaken_or_missing_caller() -> None:
    by_process, in_order = [0, 2, 1, 3], [0, 1, 2, 3]
    table = arrival({"lock": by_process, "fair_lock": in_order}, callers=4, processes=2)
    assert table.wrong == []
    assert [line.split() for line in table.lines()[1:]] == [
        ["lock", "A", "A", "B", "B", "1"],
        ["fair_lock", "A", "B", "A", "B", "0"],
    ]
    assert len({len(line) for line in table.lines()}) == 1
    for served, message in (
        ({"lock": by_process, "fair_lock": [0, 1, 3, 2]}, "fair_lock let 1 callers be overtaken."),
        ({"lock": by_process, "fair_lock": [0, 1, 2, 2]}, "fair_lock served 3 of 4 callers."),
        ({"lock": in_order, "fair_lock": in_order}, "lock let no caller be overtaken: the difference didn't show."),
    ):
        assert arrival(served, callers=4, processes=2).wrong == [message]


def test_overtaken_callers_are_those_served_after_a_later_one() -> None:
    assert overtaken([0, 1, 2, 3]) == overtaken([]) == 0
    assert overtaken([3, 0, 1, 2]) == 3
    assert overtaken([0, 2, 1, 3]) == 1


def test_span_ends_with_the_end_or_the_kill_of_its_caller() -> None:
    events = [Event("began", 1, 1.0), Event("began", 2, 2.0), Event("ended", 1, 3.0), Event("began", 1, 3.0)]
    assert spans(events, "began", "ended") == [(1.0, 3.0)]
    assert spans(events, "began", "ended", {2: 2.5, 3: 9.0}) == [(1.0, 3.0), (2.0, 2.5)]
    assert most_at_once([(1.0, 3.0), (2.0, 2.5), (2.5, 4.0)]) == 2  # one ends when the other begins
    assert most_at_once([]) == 0
