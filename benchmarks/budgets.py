"""Limits for the figures of this library. A comparison with another library is the median of the ratios of each
round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .bench import Case
from .rows.cache import PLAIN, SIZES
from .scenarios.stampede import LOADER_SECONDS

Cases = Mapping[str, Case]  # by row and name, such as "hot 8-threads"
Figure = Callable[[Cases], float]


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
    def measured(self) -> bool:
        return not math.isnan(self.value)

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
    found = [ratio_to(f"cache {name}", getter, PLAIN[getter], "cpu") for name in SIZES]
    return lambda cases: max(one(cases) for one in found)


def speed(case: str, adapter: str, peer: str, metric: str) -> Figure:
    """How many times as fast as the peer, by a metric of time."""
    return lambda cases: 1 / ratio_to(case, adapter, peer, metric)(cases)


ONE_CORE, TWO_CORES = "uncontended one-core", "uncontended two-cores"
THREADS, FOUR, EIGHT, LONE = "hot 8-threads", "hot 4-processes-1ms", "hot 8-processes-1ms", "hot lone-waiter"
ANOTHER, SAME = "celery another-job", "celery same-job"
LOADER_MS = 1000 * LOADER_SECONDS

UNCONTENDED = [
    Budget("uncontended", "fixed lease: client CPU vs. raw socket", ratio_to(ONE_CORE, "ours", "raw", "client"), 2.5),
    Budget(
        "uncontended", "renewed: client CPU vs. raw socket", ratio_to(ONE_CORE, "ours-renewed", "raw", "client"), 2.7
    ),
    Budget("uncontended", "fixed lease: CPU vs. raw socket", ratio_to(ONE_CORE, "ours", "raw", "cpu"), 2.3),
    Budget("uncontended", "renewed: CPU vs. raw socket", ratio_to(ONE_CORE, "ours-renewed", "raw", "cpu"), 2.5),
    Budget("uncontended", "fixed lease: CPU vs. redis-py's Lock", ratio_to(ONE_CORE, "ours", "redis-py", "cpu"), 0.44),
    Budget(
        "uncontended", "renewed: CPU vs. redis-py's Lock", ratio_to(ONE_CORE, "ours-renewed", "redis-py", "cpu"), 0.46
    ),
    Budget("uncontended", "fixed lease: Python and C calls", figure(ONE_CORE, "ours", "calls"), 60, digits=0),
    Budget("uncontended", "renewed: Python and C calls", figure(ONE_CORE, "ours-renewed", "calls"), 70, digits=0),
    Budget("uncontended", "fixed lease: requests", figure(ONE_CORE, "ours", "requests"), 2),
    Budget("uncontended", "renewed: requests", figure(ONE_CORE, "ours-renewed", "requests"), 2),
    Budget("uncontended", "two cores: elapsed time vs. raw socket", ratio_to(TWO_CORES, "ours", "raw", "us"), 1.7),
]

TASKS = [
    Budget("tasks", "one task: CPU vs. raw connection", ratio_to("tasks one", "ours-tasks", "raw-tasks", "cpu"), 2.1),
    Budget(
        "tasks",
        "50 tasks: speed vs. redis-py's asyncio Lock",
        speed("tasks fifty", "ours-tasks", "redis-py-tasks", "cpu"),
        5,
        at_least=True,
    ),
    Budget("tasks", "50 tasks: connections", figure("tasks fifty", "ours-tasks", "connections"), 3, digits=0),
]

HOT = [
    Budget(
        "hot", "8 threads: acquisitions vs. baton", ratio_to(THREADS, "ours", "baton", "acquisitions"), 1, at_least=True
    ),
    Budget("hot", "8 threads: requests per acquisition", figure(THREADS, "ours", "requests"), 1.3),
    Budget(
        "hot",
        "4 processes, 1 ms: hand-off p50 vs. baton with redis-py",
        ratio_to(FOUR, "ours", "baton-redis-py", "handoff_p50"),
        1,
    ),
    Budget("hot", "8 processes, 1 ms: hand-off p50 vs. baton", ratio_to(EIGHT, "ours", "baton", "handoff_p50"), 4),
    Budget(
        "hot",
        "8 processes, 1 ms: acquisitions vs. baton",
        ratio_to(EIGHT, "ours", "baton", "acquisitions"),
        0.9,
        at_least=True,
    ),
    Budget("hot", "8 processes, 1 ms: requests per acquisition", figure(EIGHT, "ours", "requests"), 2.2),
    Budget("hot", "8 processes, 1 ms: same worker again, %", figure(EIGHT, "ours", "same"), 0, digits=1),
    Budget("hot", "8 processes, 1 ms: longest wait, in turns", figure(EIGHT, "ours", "longest_turns"), 20),
    Budget("hot", "lone waiter: p50 vs. baton", ratio_to(LONE, "ours", "baton", "p50"), 2.7),
    Budget("hot", "overlapping critical sections", worst("overlaps", "hot"), 0, digits=0),
]

PAIR, FAMILY_EIGHT, READERS = "family pair", "family 8-processes-1ms", "family readers"

FAMILY = [
    *(
        Budget("family", f"{what}: CPU of a pair vs. lock", ratio_to(PAIR, adapter, "ours", "cpu"), 1.3)
        for what, adapter in (
            ("fair_lock", "ours-fair"),
            ("semaphore", "ours-semaphore"),
            ("semaphore, 1 000 permits", "ours-semaphore-1000"),
            ("rwlock, read", "ours-read"),
            ("rwlock, write", "ours-write"),
        )
    ),
    *(
        Budget("family", f"{what}, 8 processes, 1 ms: {promise}", found, limit, at_least)
        for what, adapter in (("fair_lock", "ours-fair"), ("semaphore", "ours-semaphore"), ("write", "ours-write"))
        for promise, found, limit, at_least in (
            ("hand-off p50 vs. baton", ratio_to(FAMILY_EIGHT, adapter, "baton", "handoff_p50"), 4, False),
            ("hand-off p50 vs. redis-py's Lock", ratio_to(FAMILY_EIGHT, adapter, "redis-py", "handoff_p50"), 1, False),
            ("acquisitions vs. baton", ratio_to(FAMILY_EIGHT, adapter, "baton", "acquisitions"), 0.9, True),
            ("requests per acquisition", figure(FAMILY_EIGHT, adapter, "requests"), 2.2, False),
        )
    ),
    Budget("family", "fair_lock, 8 processes: max/min per worker", figure(FAMILY_EIGHT, "ours-fair", "spread"), 1.1),
    Budget("family", "overlapping critical sections", worst("overlaps", "family"), 0, digits=0),
    Budget(
        "family", "64 readers: reads vs. three reads", ratio_to(READERS, "ours-read", "three-reads", "reads"), 0.8, True
    ),
]

WAITERS = [
    Budget("waiters", "threads: connections", figure("waiters threads", "ours", "connections"), 3, digits=0),
    Budget("waiters", "threads: idle requests/s", figure("waiters threads", "ours", "idle_requests"), 5),
    Budget("waiters", "threads: idle client CPU, %", figure("waiters threads", "ours", "idle_cpu"), 0.5),
    Budget(
        "waiters",
        "threads: time until all have acquired vs. baton",
        ratio_to("waiters threads", "ours", "baton", "ms"),
        1.5,
    ),
    Budget("waiters", "threads: requests per acquisition", figure("waiters threads", "ours", "requests"), 1.3),
    Budget("waiters", "tasks: connections", figure("waiters tasks", "ours-tasks", "connections"), 3, digits=0),
    Budget("waiters", "tasks: idle requests/s", figure("waiters tasks", "ours-tasks", "idle_requests"), 5),
    Budget("waiters", "tasks: idle client CPU, %", figure("waiters tasks", "ours-tasks", "idle_cpu"), 0.5),
    Budget("waiters", "tasks: ms until all have acquired", figure("waiters tasks", "ours-tasks", "ms"), 200, digits=0),
    Budget("waiters", "tasks: scripts per acquisition", figure("waiters tasks", "ours-tasks", "scripts"), 1.3),
    Budget("waiters", "overlapping critical sections", worst("overlaps", "waiters"), 0, digits=0),
]

RENEWALS = [
    Budget("renewals", f"{number} locks: {what}", figure(f"renewals {number}", "ours", metric), limit, digits=digits)
    for number in (1000, 10000)
    for what, metric, limit, digits in (
        ("threads", "threads", 1, 0),
        ("connections", "connections", 1, 0),
        ("client CPU µs per renewal", "cpu_us", 25, 1),
        ("lost", "lost", 0, 0),
    )
]

MEMORY = [
    Budget("memory", "bytes per lock", figure("memory held", "ours", "bytes"), 420, digits=0),
    Budget(
        "memory",
        "bytes per lock, without index and metadata",
        figure("memory held", "ours-bare", "bytes"),
        200,
        digits=0,
    ),
    Budget("memory", "keys left per released lock", figure("memory held", "ours", "left_keys"), 0),
]

CACHE = [
    *(
        Budget("cache", f"{callers}: {what}", figure, limit, digits=digits)
        for callers, case, max_ms, max_commands in (
            ("1 process, 200 callers", "cache stampede-1-process", LOADER_MS + 12, 0.1),
            ("4 processes, 50 callers each", "cache stampede-4-processes", LOADER_MS + 15, 0.5),
        )
        for what, figure, limit, digits in (
            ("loader calls", worst("loads", "cache", case), 1, 0),
            ("errors", worst("errors", "cache", case), 0, 0),
            ("p99 ms", slowest(case, "p99"), max_ms, 0),
            ("commands per get", slowest(case, "commands"), max_commands, 2),
        )
    ),
    Budget("cache", "miss: calls of our functions", slowest("cache miss", "calls"), 120, digits=0),
    Budget("cache", "miss: files with these functions", slowest("cache miss", "files"), 20, digits=0),
    *(
        Budget("cache", f"hit, {what}: vs. a plain get", hit(getter), limit)
        for getter, what, limit in (
            ("ours-django-get", "Django's RedisCache", 1.15),
            ("ours-django-redis-get", "django-redis", 1.15),
            ("ours-locmem-get", "LocMemCache", 1.5),
            ("ours-guarded-get", "StampedeCache.get", 1.15),
            ("ours-guarded-or-set", "StampedeCache.get_or_set", 1.15),
        )
    ),
]

CELERY = [
    Budget("celery", "another job: vs. plain Celery", ratio_to(ANOTHER, "ours-celery", "celery", "us"), 1.25),
    Budget(
        "celery", "another job: vs. celery-singleton", ratio_to(ANOTHER, "ours-celery", "celery-singleton", "us"), 1
    ),
    Budget("celery", "another job: vs. celery-once", ratio_to(ANOTHER, "ours-celery", "celery-once", "us"), 1),
    Budget(
        "celery", "the same job: vs. celery-singleton", ratio_to(SAME, "ours-celery", "celery-singleton", "us"), 0.4
    ),
]

STORES = [
    *(
        Budget("stores", f"{what} vs. one server", ratio_to(case, adapter, server, metric), limit)
        for what, case, adapter, server, metric, limit in (
            ("Cluster: elapsed time", "stores pair", "ours-cluster", "ours", "us", 1.15),
            ("Cluster, a task: elapsed time", "stores pair-tasks", "ours-cluster-tasks", "ours-tasks", "us", 1.15),
            ("Cluster: hand-off p50", "stores lone-waiter", "ours-cluster", "ours", "p50", 1.15),
            ("Sentinel: elapsed time", "stores pair", "ours-sentinel", "ours-replicated", "us", 1.05),
            (
                "Sentinel, a task: elapsed time",
                "stores pair-tasks",
                "ours-sentinel-tasks",
                "ours-replicated-tasks",
                "us",
                1.05,
            ),
            ("Sentinel: hand-off p50", "stores lone-waiter", "ours-sentinel", "ours-replicated", "p50", 1.05),
        )
    ),
    *(
        Budget("stores", f"Redlock of 5{what}", ratio_to(f"stores pair-of-five{case}", adapter, peer, "us"), limit)
        for what, case, adapter, peer, limit in (
            (": vs. raw sockets", "", "ours-redlock", "raw-round", 2.5),
            (": vs. redlock-ng", "", "ours-redlock", "redlock-ng-five", 1),
            (": vs. pottery", "", "ours-redlock", "pottery-five", 1),
            (", a task: vs. redlock-ng", "-tasks", "ours-redlock-tasks", "redlock-ng-five-tasks", 1),
            (", a task: vs. pottery", "-tasks", "ours-redlock-tasks", "pottery-five-tasks", 1),
        )
    ),
]

BUDGETS = [*UNCONTENDED, *TASKS, *HOT, *FAMILY, *WAITERS, *RENEWALS, *MEMORY, *CACHE, *CELERY, *STORES]


def verdicts(cases: Cases) -> list[Verdict]:
    """The verdicts of all budgets."""
    return [Verdict(budget, budget.figure(cases)) for budget in BUDGETS]
