"""Writes the figures: into two pages of the docs, their charts, and a file of raw results."""

from __future__ import annotations

import json
from pathlib import Path

from . import charts, page
from .bench import Bench
from .budgets import verdicts
from .machine import describe

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explain" / "performance.md"
PAGES = [PAGE, ROOT / "docs" / "reference" / "benchmarks.md"]
ASSETS = ROOT / "docs" / "assets"
RAW = ROOT / ".cache" / "bench" / "results.json"


def save(bench: Bench) -> None:
    """Save all values of all rounds as JSON."""
    cases = {f"{case.row} {case.name}": [case.placement, case.figures, case.failed] for case in bench.cases}
    RAW.parent.mkdir(parents=True, exist_ok=True)
    facts = describe(bench.server, bench.versions, bench.rounds)
    RAW.write_text(json.dumps({"facts": dict(facts), "cases": cases}, indent=1))


def write(bench: Bench, rows: list[str]) -> None:
    """Write the tables of these rows into the pages. `growth` has a chart and a machine table of its own."""
    parts = {f"row {row}": page.row([case for case in bench.cases if case.row == row]) for row in rows}
    cases = {f"{case.row} {case.name}": case for case in bench.cases}
    facts = describe(bench.server, bench.versions, bench.rounds)
    if rows == ["growth"]:
        parts["growth machine"] = page.machine(facts)
        charts.lines(cases, ASSETS / "growth.svg")
    else:
        parts |= {"budgets": page.budgets(verdicts(cases)), "machine": page.machine(facts)}
        charts.bars(cases, ASSETS / "performance.svg")
    filled = page.fill("\0".join(path.read_text() for path in PAGES), parts)
    for path, text in zip(PAGES, filled.split("\0"), strict=True):
        path.write_text(text)
