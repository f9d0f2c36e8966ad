"""Hundreds of waiters for one held lock."""

from __future__ import annotations

from ..bench import Bench

THREADS = ["baton", "ours", "python-redis-lock", "python-redis-lock-pool", "redis-py", "redis-py-pool"]
TASKS = ["ours-tasks", "redis-py-tasks", "redis-py-tasks-pool", "cashews-tasks"]
ROUNDS = 3


def run(bench: Bench) -> None:
    for name, adapters in (("threads", THREADS), ("tasks", TASKS)):
        bench.run_one_by_one(bench.case("waiters", name, "none"), adapters, "waiters", max_rounds=ROUNDS, workers=500)
