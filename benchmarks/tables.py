"""The tables of each case: caption, columns and format of figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .adapters import ADAPTERS
from .bench import Case, label
from .rows.cache import PLAIN
from .rows.growth import TOPICS


class Column(NamedTuple):
    heading: str
    figure: Callable[[Case, str], float]
    digits: int = 0
    unit: str = ""


class View(NamedTuple):
    caption: str
    columns: list[Column]


def metric_column(heading: str, metric: str, digits: int = 0, unit: str = "") -> Column:
    return Column(heading, lambda case, adapter: case.value(adapter, metric), digits, unit)


def ratio_column(heading: str, metric: str, peer: str) -> Column:
    return Column(heading, lambda case, adapter: case.ratio(adapter, peer, metric), 2, " ×")


def plain_column(heading: str) -> Column:
    """Compared with the cache's own method."""
    return Column(heading, lambda case, adapter: case.ratio(adapter, PLAIN[adapter], "cpu"), 2, " ×")


HOT = [
    metric_column("acquisitions/s", "acquisitions"),
    ratio_column("vs. baton", "acquisitions", "baton"),
    metric_column("hand-off p50 µs", "handoff_p50"),
    ratio_column("vs. baton", "handoff_p50", "baton"),
    metric_column("p99 µs", "handoff_p99"),
    metric_column("same worker again", "same", 0, " %"),
    metric_column("max/min per worker", "spread", 2),
    metric_column("longest wait, turns", "longest_turns", 1),
    metric_column("requests per acquisition", "requests", 2),
    metric_column("commands per acquisition", "commands", 1),
    metric_column("overlaps", "overlaps"),
]

TASKS = [
    metric_column("CPU µs", "cpu", 1),
    ratio_column("vs. raw socket", "cpu", "raw-tasks"),
    Column("speed vs. redis-py", lambda case, adapter: 1 / case.ratio(adapter, "redis-py-tasks", "cpu"), 2, " ×"),
    metric_column("pairs/s", "pairs"),
    metric_column("connections", "connections"),
    metric_column("commands", "commands", 1),
]

WAITERS = [
    metric_column("connections", "connections"),
    metric_column("idle requests/s", "idle_requests", 1),
    metric_column("idle client CPU", "idle_cpu", 2, " %"),
    metric_column("acquired", "acquired"),
    metric_column("all acquired, ms", "ms"),
    metric_column("errors", "errors"),
    metric_column("requests per acquisition", "requests", 2),
    metric_column("commands per acquisition", "commands", 1),
    metric_column("overlaps", "overlaps"),
]

RENEWALS = [
    metric_column("threads", "threads"),
    metric_column("connections", "connections"),
    metric_column("client CPU µs per renewal", "cpu_us", 1),
    metric_column("client CPU", "cpu", 1, " %"),
    metric_column("requests/s", "requests"),
    metric_column("renewals per lock", "renewals", 1),
    metric_column("locks lost", "lost"),
]

STORE = [
    metric_column("elapsed µs", "us", 1),
    ratio_column("vs. one server", "us", "ours"),
    metric_column("client CPU µs", "client", 1),
    ratio_column("vs. one server", "client", "ours"),
]

STORE_TASKS = [
    metric_column("elapsed µs", "us", 1),
    ratio_column("vs. one server", "us", "ours-tasks"),
    metric_column("client CPU µs", "client", 1),
    ratio_column("vs. one server", "client", "ours-tasks"),
]

FIVE = [
    metric_column("elapsed µs", "us", 1),
    ratio_column("vs. raw sockets", "us", "raw-round"),
    metric_column("client CPU µs", "client", 1),
]

VIEWS = {
    "uncontended one-core": View(
        "Acquire and release by one thread",
        [
            metric_column("CPU µs", "cpu", 1),
            ratio_column("vs. raw socket", "cpu", "raw"),
            ratio_column("vs. redis-py", "cpu", "redis-py"),
            metric_column("client CPU µs", "client", 1),
            ratio_column("vs. raw socket", "client", "raw"),
            metric_column("server CPU µs", "server", 1),
            metric_column("elapsed µs", "us", 1),
            metric_column("calls", "calls"),
            metric_column("requests", "requests", 1),
            metric_column("commands", "commands", 1),
            metric_column("connections", "connections"),
        ],
    ),
    "uncontended two-cores": View(
        "The same, client and server on different cores",
        [
            metric_column("elapsed µs", "us", 1),
            ratio_column("vs. raw socket", "us", "raw"),
            ratio_column("vs. redis-py", "us", "redis-py"),
        ],
    ),
    "tasks one": View("One task", TASKS),
    "tasks fifty": View("50 tasks with 50 keys", TASKS),
    "hot 8-threads": View("8 threads of one process, empty critical section", HOT),
    "hot 4-processes-1ms": View("4 processes, critical section of 1 ms", HOT),
    "hot 8-processes-1ms": View("8 processes, critical section of 1 ms", HOT),
    "hot 8-processes": View("8 processes, empty critical section", HOT),
    "hot lone-waiter": View(
        "One waiter in another process: time from the release to its acquisition",
        [
            metric_column("p50 ms", "p50", 2),
            ratio_column("vs. baton", "p50", "baton"),
            metric_column("p99 ms", "p99", 2),
            metric_column("requests per acquisition", "requests", 1),
            metric_column("overlaps", "overlaps"),
        ],
    ),
    "family pair": View(
        "Acquire and release by one thread",
        [
            metric_column("CPU µs", "cpu", 1),
            ratio_column("vs. lock", "cpu", "ours"),
            metric_column("client CPU µs", "client", 1),
            ratio_column("vs. lock", "client", "ours"),
            metric_column("server CPU µs", "server", 1),
            ratio_column("vs. lock", "server", "ours"),
            metric_column("calls", "calls"),
            metric_column("requests", "requests", 1),
            metric_column("commands", "commands", 1),
        ],
    ),
    "family 8-processes-1ms": View("8 processes, critical section of 1 ms", HOT),
    "family readers": View(
        "64 threads of 8 processes read a value with redis-py, each read under the lock",
        [
            metric_column("reads/s", "reads"),
            ratio_column("vs. three reads", "reads", "three-reads"),
            metric_column("requests per read", "requests", 2),
            metric_column("connections", "connections"),
            metric_column("errors", "errors"),
        ],
    ),
    "stores pair": View("Acquire and release by one thread", STORE),
    "stores pair-tasks": View("The same by one task", STORE_TASKS),
    "stores pair-of-five": View("Acquire and release by one thread, 5 masters", FIVE),
    "stores pair-of-five-tasks": View("The same by one task, beside a thread on raw sockets", FIVE),
    "stores lone-waiter": View(
        "One waiter in another process: time from the release to its acquisition",
        [
            metric_column("p50 ms", "p50", 2),
            ratio_column("vs. one server", "p50", "ours"),
            metric_column("p99 ms", "p99", 2),
            metric_column("overlaps", "overlaps"),
        ],
    ),
    "waiters threads": View("500 threads wait for one lock", WAITERS),
    "waiters tasks": View("500 tasks wait for one lock", WAITERS),
    "renewals 1000": View("1 000 locks, lease of 6 s", RENEWALS),
    "renewals 10000": View("10 000 locks, lease of 6 s", RENEWALS),
    "memory held": View(
        "Keys of 9 characters, 2 000 locks held at once",
        [
            metric_column("bytes per lock", "bytes"),
            metric_column("keys per lock", "keys", 2),
            metric_column("bytes left after release", "left_bytes"),
            metric_column("keys left", "left_keys", 2),
        ],
    ),
}

SUBMISSIONS = [
    metric_column("elapsed µs", "us", 1),
    ratio_column("vs. plain Celery", "us", "celery"),
    ratio_column("vs. celery-singleton", "us", "celery-singleton"),
    ratio_column("vs. celery-once", "us", "celery-once"),
    metric_column("client CPU µs", "client", 1),
    ratio_column("vs. plain Celery", "client", "celery"),
    metric_column("calls", "calls"),
    metric_column("requests", "requests", 1),
]
VIEWS |= {
    "celery another-job": View("Another job each time", SUBMISSIONS),
    "celery same-job": View("The same job each time", SUBMISSIONS),
}

LOADS = [
    metric_column("loader calls", "loads"),
    metric_column("errors", "errors"),
    metric_column("p50 ms", "p50"),
    metric_column("p99 ms", "p99"),
    metric_column("commands per get", "commands", 2),
    metric_column("requests per get", "requests", 2),
    metric_column("connections", "connections"),
]
MISSES = [
    metric_column("CPU µs", "cpu", 1),
    plain_column("vs. the cache's get_or_set"),
    metric_column("client CPU µs", "client", 1),
    metric_column("elapsed µs", "us", 1),
    metric_column("calls of its functions", "calls"),
    metric_column("in files", "files"),
]
HITS = [
    metric_column("CPU µs", "cpu", 1),
    plain_column("vs. plain get"),
    metric_column("client CPU µs", "client", 1),
    metric_column("elapsed µs", "us", 1),
]
VIEWS |= {
    "cache stampede-1-process": View("200 threads or tasks of one process", LOADS),
    "cache stampede-4-processes": View("4 processes with 50 threads or tasks each", LOADS),
    "cache miss": View("A miss, the loader returns at once", MISSES),
    "cache hit": View("Cache hit, the value is a number", HITS),
    "cache hit-10k": View("Cache hit, the value is 10 KB of text", HITS),
}


def view(case: Case) -> View:
    if case.row == "growth":
        topic = TOPICS[case.name]
        columns = [metric_column(f"{step:,}".replace(",", " "), str(step), 1) for step in topic.steps]
        return View(f"{topic.caption}; columns: {topic.grows}", columns)
    return VIEWS[f"{case.row} {case.name}"]


def shown(value: float, digits: int, unit: str) -> str:
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞"
    return f"{value:,.{digits}f}".replace(",", " ") + unit


def cells(case: Case) -> list[list[str]]:
    """A heading, and a line per adapter; that of an adapter that failed has the error."""
    columns = view(case).columns
    lines = [["", *(column.heading for column in columns)]]
    for adapter in case.figures:
        figures = [shown(column.figure(case, adapter), column.digits, column.unit) for column in columns]
        lines.append([label(adapter), *figures])
    for adapter, reason in case.failed.items():
        if adapter not in case.figures:
            lines.append([label(adapter), f"failed: {reason[:60]}", *[""] * (len(columns) - 1)])
    return lines


def failure_notes(case: Case) -> list[str]:
    """Notes about adapters that failed in one round and have figures of others."""
    return [f"{label(adapter)} failed: {reason}" for adapter, reason in case.failed.items() if adapter in case.figures]


def text(lines: list[list[str]]) -> str:
    """Align the columns, for a terminal."""
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
