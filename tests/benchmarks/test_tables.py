from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks import page
from benchmarks.adapters import ADAPTERS
from benchmarks.bench import Bench, Case
from benchmarks.budgets import BUDGETS, Budget, Verdict, verdicts
from benchmarks.charts import BARS
from benchmarks.publish import PAGES
from benchmarks.rows import ROWS
from benchmarks.stats import SECOND, Acquisition, contention, nanmedian, overlaps, percentile, ratio
from benchmarks.tables import VIEWS, cells, failure_notes, markdown, shown, text


@pytest.fixture
def case() -> Case:
    case = Case("uncontended", "one-core", "same")
    for ours, raw in ((30.0, 10.0), (80.0, 20.0), (40.0, 10.0)):
        case.add("ours", "cpu", ours)
        case.add("raw", "cpu", raw)
    return case


def test_table_has_a_line_per_adapter_with_failures(case: Case) -> None:
    assert [shown(1234567.8, 0, ""), shown(0.456, 2, " ×"), shown(math.nan, 0, " %")] == ["1 234 568", "0.46 ×", ""]
    case.failed["pottery"] = "no answer within 60 s"
    heading, ours, raw, pottery = cells(case)
    assert heading[1:3] == ["CPU µs", "vs. raw socket"]
    assert ours[:3] == ["django-redis-locks", "40.0", "4.00 ×"]
    assert raw[1] == "10.0"
    assert pottery[:2] == ["pottery", "failed: no answer within 60 s"]
    assert {len(line) for line in cells(case)} == {len(heading)}
    assert "| **django-redis-locks** | 40.0 | 4.00 × |" in markdown(cells(case))
    assert text(cells(case)).count("\n") == 3
    case.failed = {"ours": "no answer within 60 s"}  # in a later round
    assert failure_notes(case) == ["django-redis-locks failed: no answer within 60 s"]


def test_budget_is_met_up_to_its_limit_and_judged_if_measured(case: Case) -> None:
    def passed(value: float, *, at_least: bool) -> bool:
        return Verdict(Budget("1", "a promise", lambda cases: value, 2.0, at_least), value).passed

    assert [passed(value, at_least=False) for value in (2.0, 2.01, math.inf)] == [True, False, False]
    assert [passed(value, at_least=True) for value in (2.0, 1.99)] == [True, False]
    (verdict,) = (verdict for verdict in verdicts({"uncontended one-core": case}) if verdict.measured)
    assert (verdict.budget.promise, verdict.value, verdict.passed) == ("fixed lease: CPU vs. raw socket", 4, False)


class Recorder(Bench):
    """Notes the cases and adapters of a run, and starts nothing."""

    def __init__(self) -> None:
        self.cases, self.adapters = [], set()

    def run_one_by_one(self, case: Case, adapters: Iterable[str], scenario: str, **_: object) -> None:
        self.adapters.update(adapters)
        importlib.import_module(f"benchmarks.scenarios.{scenario}")

    run_interleaved = run_steps = run_one_by_one

    @contextmanager
    def stores(self) -> Iterator[None]:
        yield


def test_every_case_has_a_view_and_every_name_an_adapter() -> None:
    """A slip would show only at the end of a long run."""
    bench = Recorder()
    for row in ROWS.values():
        row.run(bench)
    assert bench.adapters == set(ADAPTERS)  # and none is left over
    names = [f"{case.row} {case.name}" for case in bench.cases]
    assert {case.row for case in bench.cases} == set(ROWS)
    assert {name for name in names if not name.startswith("growth ")} == set(VIEWS)
    assert {panel.case for panel in BARS} <= set(names)
    asked = Asked()
    for budget in BUDGETS:
        budget.figure(asked)
    assert asked.names <= set(names)


class Asked(dict[str, Case]):
    """Notes the names of cases that a budget looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return False


PAGE = "Prose.\n<!-- benchmark: row hot -->\nold\n<!-- benchmark: end -->\nMore.\n<!-- benchmark: machine -->\nkept\n<!-- benchmark: end -->\n"


def test_fill_replaces_parts_and_keeps_the_rest() -> None:
    filled = page.fill(PAGE, {"row hot": "new\n"})
    assert filled == PAGE.replace("old", "new")
    assert page.fill(filled, {"row hot": "new\n"}) == filled
    with pytest.raises(ValueError, match="no place for: row 9"):
        page.fill(PAGE, {"row 9": ""})
    text = "".join(path.read_text() for path in PAGES)
    page.fill(text, {**{f"row {row}": "" for row in ROWS}, "budgets": "", "machine": ""})


# Figures


MS = SECOND // 1000


def acquisitions(*turns: tuple[int, int, int, int]) -> list[Acquisition]:
    """Turns in ms."""
    return [
        Acquisition(requested * MS, acquired * MS, released * MS, worker)
        for requested, acquired, released, worker in turns
    ]


def test_figures_are_medians_and_nan_without_values() -> None:
    """A percentile is a value that occurred; ratios compare rounds pairwise: a machine that is ten times slower in one
    round slows both."""
    assert [percentile([3, 1, 2], percent) for percent in (50, 99)] == [2, 3]
    assert [percentile(range(1, 101), percent) for percent in (1, 50, 99)] == [1, 50, 99]
    assert nanmedian([1.0, math.nan, 3.0, 2.0]) == 2.0
    assert ratio([1.0, 20.0, 3.0], [2.0, 40.0, 6.0]) == 0.5
    assert ratio([1.0, 2.0], [0.0, 4.0]) == 0.5
    assert all(math.isnan(figure) for figure in (percentile([], 50), nanmedian([]), ratio([], [1.0])))


def test_section_that_begins_before_the_previous_end_overlaps() -> None:
    """In any order of the notes; within a long one each overlaps once."""
    for expected, turns in (
        (0, ((0, 0, 10, 0), (0, 10, 20, 1), (10, 20, 30, 0))),
        (1, ((0, 0, 10, 0), (0, 9, 20, 1))),
        (1, ((0, 9, 20, 1), (0, 0, 10, 0))),
        (2, ((0, 0, 50, 0), (0, 10, 20, 1), (0, 30, 40, 2))),
    ):
        assert overlaps(acquisitions(*turns)) == expected, turns


def test_contention_of_alternating_workers_is_fair() -> None:
    turns = acquisitions((0, 0, 200, 0), (0, 250, 450, 1), (200, 500, 700, 0), (450, 750, 950, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    expected = {"acquisitions": 4, "handoffs": 3, "handoff_p50": 50_000, "same": 0, "spread": 1, "longest_ms": 300}
    assert {name: figures[name] for name in expected} == expected
    assert figures["longest_turns"] == pytest.approx(0.6)  # a turn is 2 workers x 1 s / 4 passes


def test_contention_of_one_greedy_worker_shows_starvation() -> None:
    turns = acquisitions(*((at, at, at + 100, 0) for at in range(0, 1000, 100)), (0, 1000, 1100, 1))
    figures = contention(turns, workers=2, start=0, end=SECOND)
    assert figures["same"] == 100
    assert figures["starved"] == 1
    assert figures["spread"] == math.inf
    assert figures["longest_turns"] == 5  # the other one's wait counts, although it ended after the end
    assert contention([], workers=2, start=0, end=SECOND)["acquisitions"] == 0
