"""Writes the figures: into two pages of the docs, their charts, and a file of raw results."""

from __future__ import annotations

import json
from pathlib import Path

from . import charts, page
from .bench import Bench
from .budgets import verdicts
from .machine import describe
from .rows import ROWS

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


def write(bench: Bench) -> None:
    """Write the tables of all rows into the pages, and draw the charts."""
    parts = {f"row {row}": page.row([case for case in bench.cases if case.row == row]) for row in ROWS}
    cases = {f"{case.row} {case.name}": case for case in bench.cases}
    facts = describe(bench.server, bench.versions, bench.rounds)
    parts |= {"budgets": page.budgets(verdicts(cases)), "machine": page.machine(facts)}
    charts.bars(cases, ASSETS / "performance.svg")
    charts.lines(cases, ASSETS / "growth.svg")
    filled = page.fill("\0".join(path.read_text() for path in PAGES), parts)
    for path, text in zip(PAGES, filled.split("\0"), strict=True):
        path.write_text(text)
