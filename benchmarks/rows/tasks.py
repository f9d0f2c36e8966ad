"""asyncio: tasks that acquire and release, each a lock of its own."""

from __future__ import annotations

from ..bench import Bench

ADAPTERS = ["raw-tasks", "ours-tasks", "redis-py-tasks", "redlock-ng-tasks", "cashews-tasks", "pottery-tasks"]


def run(bench: Bench) -> None:
    for name, number in (("one", 1), ("fifty", 50)):
        case = bench.case("tasks", name, "same")
        bench.run_one_by_one(case, ADAPTERS, "tasks", max_rounds=1, tasks=number)  # counts, which are exact
        bench.run_interleaved(case, ADAPTERS, "tasks", seconds=0.1, tasks=number)
