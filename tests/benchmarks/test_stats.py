from __future__ import annotations

import math

import pytest

from benchmarks.stats import SECOND, Pass, contention, middle, overlaps, percentile, ratio

MS = SECOND // 1000


def passes(*turns: tuple[int, int, int, int]) -> list[Pass]:
    """Turns in ms."""
    return [Pass(asked * MS, acquired * MS, released * MS, worker) for asked, acquired, released, worker in turns]


def test_percentile_is_a_value_that_occurred() -> None:
    assert [percentile([3, 1, 2], percent) for percent in (50, 99)] == [2, 3]
    assert [percentile(range(1, 101), percent) for percent in (50, 99)] == [50, 99]
    assert percentile([1], 1) == 1


def test_figures_of_no_values_are_nan() -> None:
    assert math.isnan(percentile([], 50))
    assert math.isnan(middle([]))
    assert math.isnan(ratio([], [1.0]))


def test_middle_leaves_out_nan() -> None:
    assert middle([1.0, math.nan, 3.0, 2.0]) == 2.0


def test_ratio_compares_rounds_pairwise() -> None:
    """A machine that is ten times slower in one round slows both: the ratio of the medians would tell otherwise."""
    assert ratio([1.0, 20.0, 3.0], [2.0, 40.0, 6.0]) == 0.5
    assert ratio([1.0, 2.0], [0.0, 4.0]) == 0.5


def test_sections_that_follow_each_other_do_not_overlap() -> None:
    assert overlaps(passes((0, 0, 10, 0), (0, 10, 20, 1), (10, 20, 30, 0))) == 0


def test_section_that_begins_before_the_previous_end_overlaps() -> None:
    assert overlaps(passes((0, 0, 10, 0), (0, 9, 20, 1))) == 1
    assert overlaps(passes((0, 9, 20, 1), (0, 0, 10, 0))) == 1  # in any order of the notes
    assert overlaps(passes((0, 0, 50, 0), (0, 10, 20, 1))) == 1  # one within the other


def test_sections_within_a_long_one_overlap_once_each() -> None:
    assert overlaps(passes((0, 0, 50, 0), (0, 10, 20, 1), (0, 30, 40, 2))) == 2


def test_contention_of_alternating_workers_is_fair() -> None:
    turns = passes((0, 0, 200, 0), (0, 250, 450, 1), (200, 500, 700, 0), (450, 750, 950, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    assert figures["passes"] == 4
    assert figures["handoffs"] == 3
    assert figures["handoff_p50"] == 50_000
    assert figures["same"] == 0
    assert figures["spread"] == 1
    assert figures["longest_ms"] == 300
    assert figures["longest_turns"] == pytest.approx(0.6)  # a turn is 2 workers x 1 s / 4 passes


def test_contention_of_one_greedy_worker_shows_starvation() -> None:
    turns = passes(*((at, at, at + 100, 0) for at in range(0, 1000, 100)), (0, 1000, 1100, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    assert figures["same"] == 100
    assert figures["starved"] == 1
    assert figures["spread"] == math.inf
    assert figures["longest_turns"] == 5  # the other one's wait counts, although it ended after the end


def test_contention_without_passes_is_zero() -> None:
    assert contention([], workers=2, start=0, end=SECOND)["passes"] == 0
