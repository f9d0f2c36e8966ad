"""How each case is shown: its caption and its columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .adapters import ADAPTERS
from .bench import Case, label
from .rows.caches import PLAIN
from .rows.growth import TOPICS


class Column(NamedTuple):
    heading: str
    figure: Callable[[Case, str], float]
    digits: int = 0
    unit: str = ""


class View(NamedTuple):
    caption: str
    columns: list[Column]


def plain(heading: str, metric: str, digits: int = 0, unit: str = "") -> Column:
    return Column(heading, lambda case, adapter: case.value(adapter, metric), digits, unit)


def times(heading: str, metric: str, peer: str) -> Column:
    return Column(heading, lambda case, adapter: case.ratio(adapter, peer, metric), 2, " ×")


HOT = [
    plain("passes/s", "passes"),
    plain("hand-off p50 µs", "handoff_p50"),
    plain("p99 µs", "handoff_p99"),
    plain("same again", "same", 0, " %"),
    plain("max/min", "spread", 2),
    plain("longest wait, turns", "longest_turns", 1),
    plain("requests per pass", "requests", 2),
    plain("commands per pass", "commands", 1),
    plain("overlaps", "overlaps"),
]

TASKS = [
    plain("CPU µs", "cpu", 1),
    Column("pace of redis-py", lambda case, adapter: 1 / case.ratio(adapter, "redis-py-tasks", "cpu"), 2, " ×"),
    plain("pairs/s", "pairs"),
    plain("connections", "connections"),
    plain("commands", "commands", 1),
]

CROWD = [
    plain("connections", "connections"),
    plain("idle requests/s", "idle_requests", 1),
    plain("idle client CPU", "idle_cpu", 2, " %"),
    plain("through", "through"),
    plain("in ms", "ms"),
    plain("errors", "errors"),
    plain("requests per pass", "requests", 2),
    plain("commands per pass", "commands", 1),
    plain("overlaps", "overlaps"),
]

RENEWALS = [
    plain("threads", "threads"),
    plain("connections", "connections"),
    plain("client CPU µs per renewal", "cpu_us", 1),
    plain("client CPU", "cpu", 1, " %"),
    plain("requests/s", "requests"),
    plain("renewals of each", "renewals", 1),
    plain("lost", "lost"),
]

VIEWS = {
    "1 same": View(
        "Acquire and release by one thread",
        [
            plain("CPU µs", "cpu", 1),
            times("of raw", "cpu", "raw"),
            times("of redis-py", "cpu", "redis-py"),
            plain("client", "client", 1),
            plain("server", "server", 1),
            plain("clock µs", "us", 1),
            plain("calls", "calls"),
            plain("requests", "requests", 1),
            plain("commands", "commands", 1),
            plain("connections", "connections"),
        ],
    ),
    "1 split": View(
        "The same where a round trip weighs more",
        [plain("clock µs", "us", 1), times("of raw", "us", "raw"), times("of redis-py", "us", "redis-py")],
    ),
    "2 1": View("One task", TASKS),
    "2 50": View("50 tasks with 50 keys", TASKS),
    "3 threads": View("8 threads of one process, empty section", HOT),
    "3 processes-1ms": View("8 processes, section of 1 ms", HOT),
    "3 processes": View("8 processes, empty section", HOT),
    "3 wake": View(
        "A lone waiter in another process: ms from the release to its acquisition",
        [
            plain("p50 ms", "p50", 2),
            plain("p99 ms", "p99", 2),
            plain("requests per pass", "requests", 1),
            plain("overlaps", "overlaps"),
        ],
    ),
    "4 threads": View("500 threads", CROWD),
    "4 tasks": View("500 tasks", CROWD),
    "5 1000": View("1 000 locks, lease of 6 s", RENEWALS),
    "5 10000": View("10 000 locks, lease of 6 s", RENEWALS),
    "6 memory": View(
        "Keys of 9 characters, 2 000 locks held at once",
        [
            plain("bytes per lock", "bytes"),
            plain("keys per lock", "keys", 2),
            plain("bytes left after release", "left_bytes"),
            plain("keys left", "left_keys", 2),
        ],
    ),
}

SUBMISSIONS = [
    plain("clock µs", "us", 1),
    times("of plain Celery", "us", "celery"),
    times("of celery-singleton", "us", "celery-singleton"),
    plain("client CPU", "client", 1),
]
VIEWS |= {
    "8 unique": View("Each another job", SUBMISSIONS),
    "8 duplicate": View("The same job again", SUBMISSIONS),
}

LOADS = [
    plain("loader calls", "loads"),
    plain("errors", "errors"),
    plain("p50 ms", "p50"),
    plain("p99 ms", "p99"),
    plain("commands per get", "commands", 2),
    plain("requests per get", "requests", 2),
    plain("connections", "connections"),
]
HITS = [
    plain("CPU µs", "cpu", 1),
    Column("of the plain get", lambda case, adapter: case.ratio(adapter, PLAIN[adapter], "cpu"), 2, " ×"),
    plain("client CPU µs", "client", 1),
    plain("clock µs", "us", 1),
]
VIEWS |= {
    "7 one-process": View("200 threads or tasks of one process", LOADS),
    "7 four-processes": View("4 processes with 50 each", LOADS),
    "7 hit": View("A hit, the value a number", HITS),
    "7 hit-10k": View("A hit, the value 10 KB of text", HITS),
}


def view(case: Case) -> View:
    if case.row == "growth":
        topic = TOPICS[case.name]
        return View(topic.caption, [plain(f"{step:,}".replace(",", " "), str(step), 1) for step in topic.steps])
    return VIEWS[f"{case.row} {case.name}"]


def shown(value: float, digits: int, unit: str) -> str:
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞"
    return f"{value:,.{digits}f}".replace(",", " ") + unit


def cells(case: Case) -> list[list[str]]:
    """A heading and a line per adapter. What failed says why."""
    columns = view(case).columns
    lines = [["", *(column.heading for column in columns)]]
    for adapter in case.figures:
        figures = [shown(column.figure(case, adapter), column.digits, column.unit) for column in columns]
        lines.append([label(adapter), *figures])
    for adapter, reason in case.failed.items():
        if adapter not in case.figures:
            lines.append([label(adapter), f"failed: {reason[:60]}", *[""] * (len(columns) - 1)])
    return lines


def troubles(case: Case) -> list[str]:
    """Who failed in one round, although there are figures of others."""
    return [f"{label(adapter)} failed: {reason}" for adapter, reason in case.failed.items() if adapter in case.figures]


def text(lines: list[list[str]]) -> str:
    """For a terminal."""
    widths = [
        max(len(line[index]) for line in lines if not line[1].startswith("failed")) for index in range(len(lines[0]))
    ]
    rows = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    return "\n".join(row.rstrip() for row in rows)


def markdown(lines: list[list[str]]) -> str:
    heading, *rest = lines
    own = {peer.label for name, peer in ADAPTERS.items() if name.startswith("ours")}
    rest = [[f"**{line[0]}**" if line[0] in own else line[0], *line[1:]] for line in rest]
    rule = ["---", *["---:"] * (len(heading) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [heading, rule, *rest])
