from __future__ import annotations

import math

import pytest

from benchmarks.stats import SECOND, Pass, contention, middle, overlaps, percentile, ratio

MS = SECOND // 1000


def passes(*turns: tuple[int, int, int, int]) -> list[Pass]:
    """Turns in ms."""
    return [Pass(asked * MS, acquired * MS, released * MS, worker) for asked, acquired, released, worker in turns]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3, 1, 2], 50, 2), ([3, 1, 2], 99, 3), ([1], 1, 1), (range(1, 101), 99, 99), (range(1, 101), 50, 50)],
)
def test_a_percentile_is_a_value_that_occurred(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_of_nothing_there_is_no_figure() -> None:
    assert math.isnan(percentile([], 50))
    assert math.isnan(middle([]))
    assert math.isnan(ratio([], [1.0]))


def test_the_middle_leaves_out_what_is_no_number() -> None:
    assert middle([1.0, math.nan, 3.0, 2.0]) == 2.0


def test_a_ratio_compares_round_with_round() -> None:
    """A machine that is ten times slower in one round slows both: the ratio of the medians would tell otherwise."""
    assert ratio([1.0, 20.0, 3.0], [2.0, 40.0, 6.0]) == 0.5
    assert ratio([1.0, 2.0], [0.0, 4.0]) == 0.5


def test_sections_that_follow_each_other_do_not_overlap() -> None:
    assert overlaps(passes((0, 0, 10, 0), (0, 10, 20, 1), (10, 20, 30, 0))) == 0


@pytest.mark.parametrize(
    "turns",
    [
        [(0, 0, 10, 0), (0, 9, 20, 1)],
        [(0, 9, 20, 1), (0, 0, 10, 0)],
        [(0, 0, 50, 0), (0, 10, 20, 1)],
    ],
    ids=["a little", "whatever the order of the notes", "one within the other"],
)
def test_a_section_that_begins_too_early_is_an_overlap(turns: list[tuple[int, int, int, int]]) -> None:
    assert overlaps(passes(*turns)) == 1


def test_each_of_those_who_come_in_while_one_stays_long_overlaps() -> None:
    assert overlaps(passes((0, 0, 50, 0), (0, 10, 20, 1), (0, 30, 40, 2))) == 2


def test_one_lock_that_goes_round() -> None:
    turns = passes((0, 0, 200, 0), (0, 250, 450, 1), (200, 500, 700, 0), (450, 750, 950, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    assert figures["passes"] == 4
    assert figures["handoffs"] == 3
    assert figures["handoff_p50"] == 50_000
    assert figures["same"] == 0
    assert figures["spread"] == 1
    assert figures["longest_ms"] == 300
    assert figures["longest_turns"] == pytest.approx(0.6)  # a turn is 2 workers x 1 s / 4 passes


def test_one_worker_that_keeps_the_lock_for_itself() -> None:
    turns = passes(*((at, at, at + 100, 0) for at in range(0, 1000, 100)), (0, 1000, 1100, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    assert figures["same"] == 100
    assert figures["starved"] == 1
    assert figures["spread"] == math.inf
    assert figures["longest_turns"] == 5  # the other one's wait counts, although it ended after the end


def test_nobody_got_it() -> None:
    assert contention([], workers=2, start=0, end=SECOND)["passes"] == 0
