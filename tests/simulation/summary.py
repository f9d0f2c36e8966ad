"""Adds the sizes of the simulations to pytest's summary."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

NAMES = ("effects", "processes", "faults")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: dict[str, list[list[Any]]] = defaultdict(list)
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "simulation":
                found[value[0]].append(value[1:])
    for world, chunks in sorted(found.items()):
        seeds = sum(chunk[0] for chunk in chunks)
        medians = [median(chunk[number] for chunk in chunks) for number in (1, 2, 3)]
        sizes = ", ".join(f"{value:g} {name}" for value, name in zip(medians, NAMES, strict=True))
        terminalreporter.write_line(f"{seeds} simulations of the {world} world; in the median: {sizes}")
