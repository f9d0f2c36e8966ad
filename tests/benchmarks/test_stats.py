from __future__ import annotations

import math

import pytest

from benchmarks.stats import SECOND, Pass, contention, middle, overlaps, percentile, ratio

MS = SECOND // 1000


def passes(*turns: tuple[int, int, int, int]) -> list[Pass]:
    """Turns in ms."""
    return [Pass(asked * MS, acquired * MS, released * MS, worker) for asked, acquired, released, worker in turns]


def test_figures_are_medians_and_nan_without_values() -> None:
    """A percentile is a value that occurred; ratios compare rounds pairwise: a machine that is ten times slower in one
    round slows both."""
    assert [percentile([3, 1, 2], percent) for percent in (50, 99)] == [2, 3]
    assert [percentile(range(1, 101), percent) for percent in (1, 50, 99)] == [1, 50, 99]
    assert middle([1.0, math.nan, 3.0, 2.0]) == 2.0
    assert ratio([1.0, 20.0, 3.0], [2.0, 40.0, 6.0]) == 0.5
    assert ratio([1.0, 2.0], [0.0, 4.0]) == 0.5
    assert all(math.isnan(figure) for figure in (percentile([], 50), middle([]), ratio([], [1.0])))


def test_section_that_begins_before_the_previous_end_overlaps() -> None:
    """In any order of the notes; within a long one each overlaps once."""
    for expected, turns in (
        (0, ((0, 0, 10, 0), (0, 10, 20, 1), (10, 20, 30, 0))),
        (1, ((0, 0, 10, 0), (0, 9, 20, 1))),
        (1, ((0, 9, 20, 1), (0, 0, 10, 0))),
        (2, ((0, 0, 50, 0), (0, 10, 20, 1), (0, 30, 40, 2))),
    ):
        assert overlaps(passes(*turns)) == expected, turns


def test_contention_of_alternating_workers_is_fair() -> None:
    turns = passes((0, 0, 200, 0), (0, 250, 450, 1), (200, 500, 700, 0), (450, 750, 950, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    expected = {"passes": 4, "handoffs": 3, "handoff_p50": 50_000, "same": 0, "spread": 1, "longest_ms": 300}
    assert {name: figures[name] for name in expected} == expected
    assert figures["longest_turns"] == pytest.approx(0.6)  # a turn is 2 workers x 1 s / 4 passes


def test_contention_of_one_greedy_worker_shows_starvation() -> None:
    turns = passes(*((at, at, at + 100, 0) for at in range(0, 1000, 100)), (0, 1000, 1100, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    assert figures["same"] == 100
    assert figures["starved"] == 1
    assert figures["spread"] == math.inf
    assert figures["longest_turns"] == 5  # the other one's wait counts, although it ended after the end
    assert contention([], workers=2, start=0, end=SECOND)["passes"] == 0
