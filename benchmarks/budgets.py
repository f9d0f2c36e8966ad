"""Limits for the figures of this library. A comparison with another library is the median of the ratios of each
round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .bench import Case
from .rows.caches import PLAIN, SIZES

Cases = Mapping[str, Case]  # by row and name, such as "1 same"
Figure = Callable[[Cases], float]

LOADER_MS = 100
"""The duration of the loader in row 7."""


class Budget(NamedTuple):
    row: str
    promise: str
    figure: Figure
    limit: float
    at_least: bool = False
    digits: int = 2

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


class Verdict(NamedTuple):
    budget: Budget
    value: float

    @property
    def passed(self) -> bool:
        return self.budget.met(self.value)


def figure(case: str, adapter: str, metric: str) -> Figure:
    return lambda cases: cases[case].value(adapter, metric) if case in cases else math.nan


def ratio_to(case: str, adapter: str, peer: str, metric: str) -> Figure:
    return lambda cases: cases[case].ratio(adapter, peer, metric) if case in cases else math.nan


def worst(metric: str, row: str, case: str = "") -> Figure:
    """The largest value of our adapters in any round of a case, or of all cases of a row."""
    return lambda cases: max(
        (
            value
            for name, one in cases.items()
            if one.row == row and case in ("", name)
            for adapter in one.figures
            if adapter.startswith("ours")
            for value in one.series(adapter, metric)
        ),
        default=math.nan,
    )


def slowest(case: str, metric: str) -> Figure:
    """The largest figure of our adapters in a case."""
    return lambda cases: max(
        (cases[case].value(adapter, metric) for adapter in cases[case].figures if adapter.startswith("ours"))
        if case in cases
        else (),
        default=math.nan,
    )


def hit(getter: str) -> Figure:
    """The ratio to the plain get of the same cache: the worse one of the two value sizes."""
    found = [ratio_to(f"7 {name}", getter, PLAIN[getter], "cpu") for name in SIZES]
    return lambda cases: max(one(cases) for one in found)


BUDGETS = [
    Budget("1", "fixed lease: time vs. raw socket", ratio_to("1 same", "ours", "raw", "cpu"), 2.0),
    Budget("1", "renewed: time vs. raw socket", ratio_to("1 same", "ours-renewed", "raw", "cpu"), 2.0),
    Budget("1", "fixed lease: time vs. redis-py's Lock", ratio_to("1 same", "ours", "redis-py", "cpu"), 0.45),
    Budget("1", "renewed: time vs. redis-py's Lock", ratio_to("1 same", "ours-renewed", "redis-py", "cpu"), 0.45),
    Budget("1", "Python and C calls, fixed lease", figure("1 same", "ours", "calls"), 120, digits=0),
    Budget("1", "Python and C calls, renewed", figure("1 same", "ours-renewed", "calls"), 120, digits=0),
    Budget("1", "requests, fixed lease", figure("1 same", "ours", "requests"), 2),
    Budget("1", "requests, renewed", figure("1 same", "ours-renewed", "requests"), 2),
    Budget(
        "2",
        "50 tasks: speed vs. redis-py's asyncio Lock",
        lambda cases: 1 / ratio_to("2 50", "ours-tasks", "redis-py-tasks", "cpu")(cases),
        3.0,
        at_least=True,
    ),
    Budget("2", "50 tasks: connections", figure("2 50", "ours-tasks", "connections"), 3, digits=0),
    Budget(
        "3",
        "threads: acquisitions vs. baton",
        ratio_to("3 threads", "ours", "baton", "acquisitions"),
        0.8,
        at_least=True,
    ),
    Budget("3", "threads: requests per acquisition", figure("3 threads", "ours", "requests"), 1.3),
    Budget(
        "3",
        "processes, 1 ms: acquisitions vs. baton",
        ratio_to("3 processes-1ms", "ours", "baton", "acquisitions"),
        0.93,
        at_least=True,
    ),
    Budget(
        "3",
        "processes, 1 ms: hand-off p50 vs. baton",
        ratio_to("3 processes-1ms", "ours", "baton", "handoff_p50"),
        2.0,
    ),
    Budget("3", "processes, 1 ms: requests per acquisition", figure("3 processes-1ms", "ours", "requests"), 3.2),
    Budget("3", "processes, 1 ms: longest wait, in turns", figure("3 processes-1ms", "ours", "longest_turns"), 20),
    Budget("3", "one waiter: p50 vs. baton", ratio_to("3 wake", "ours", "baton", "p50"), 2.0),
    Budget("3", "overlapping critical sections", worst("overlaps", "3"), 0, digits=0),
    Budget("4", "threads: connections", figure("4 threads", "ours", "connections"), 3, digits=0),
    Budget("4", "threads: idle requests/s", figure("4 threads", "ours", "idle_requests"), 5),
    Budget("4", "threads: idle client CPU, %", figure("4 threads", "ours", "idle_cpu"), 0.5),
    Budget("4", "threads: time until all have acquired vs. baton", ratio_to("4 threads", "ours", "baton", "ms"), 1.5),
    Budget("4", "threads: requests per acquisition", figure("4 threads", "ours", "requests"), 1.3),
    Budget("4", "tasks: connections", figure("4 tasks", "ours-tasks", "connections"), 3, digits=0),
    Budget("4", "tasks: idle requests/s", figure("4 tasks", "ours-tasks", "idle_requests"), 5),
    Budget("4", "tasks: idle client CPU, %", figure("4 tasks", "ours-tasks", "idle_cpu"), 0.5),
    Budget("4", "tasks: ms until all have acquired", figure("4 tasks", "ours-tasks", "ms"), 200, digits=0),
    Budget("4", "tasks: scripts per acquisition", figure("4 tasks", "ours-tasks", "scripts"), 1.3),
    Budget("4", "overlapping critical sections", worst("overlaps", "4"), 0, digits=0),
    *(
        Budget("5", f"{number} locks: {what}", figure(f"5 {number}", "ours", metric), limit, digits=digits)
        for number in (1000, 10000)
        for what, metric, limit, digits in (
            ("threads", "threads", 1, 0),
            ("connections", "connections", 1, 0),
            ("client CPU µs per renewal", "cpu_us", 25, 1),
            ("lost", "lost", 0, 0),
        )
    ),
    Budget("6", "bytes per lock", figure("6 memory", "ours", "bytes"), 420, digits=0),
    Budget("6", "bytes per lock, without index and metadata", figure("6 memory", "ours-bare", "bytes"), 200, digits=0),
    Budget("6", "keys left per released lock", figure("6 memory", "ours", "left_keys"), 0),
    *(
        Budget("7", f"{callers}: {what}", figure, limit, digits=digits)
        for callers, case, max_ms, max_commands in (
            ("1 process, 200 callers", "7 one-process", LOADER_MS + 12, 0.1),
            ("4 processes, 50 callers each", "7 four-processes", LOADER_MS + 15, 0.5),
        )
        for what, figure, limit, digits in (
            ("loader calls", worst("loads", "7", case), 1, 0),
            ("errors", worst("errors", "7", case), 0, 0),
            ("p99 ms", slowest(case, "p99"), max_ms, 0),
            ("commands per get", slowest(case, "commands"), max_commands, 2),
        )
    ),
    *(
        Budget("7", f"hit, {what}: vs. a plain get", hit(getter), 1.15)
        for getter, what in (
            ("ours-django-get", "Django's RedisCache"),
            ("ours-django-redis-get", "django-redis"),
            ("ours-locmem-get", "LocMemCache"),
            ("ours-guarded-get", "StampedeCache.get"),
            ("ours-guarded-or-set", "StampedeCache.get_or_set"),
        )
    ),
    Budget("8", "different jobs: vs. plain Celery", ratio_to("8 unique", "ours-celery", "celery", "us"), 1.2),
    Budget(
        "8", "the same job: vs. celery-singleton", ratio_to("8 duplicate", "ours-celery", "celery-singleton", "us"), 0.5
    ),
]


def verdicts(cases: Cases) -> list[Verdict]:
    """The verdicts of all budgets with a measured figure."""
    found = [Verdict(budget, budget.figure(cases)) for budget in BUDGETS]
    return [verdict for verdict in found if not math.isnan(verdict.value)]
