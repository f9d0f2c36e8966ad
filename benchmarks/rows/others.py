"""Rows 2, 4, 5, 6 and 8: tasks, many waiters, renewal, memory, Celery."""

from __future__ import annotations

from ..bench import Bench

TASKS = ["raw-tasks", "ours-tasks", "redis-py-tasks", "redlock-ng-tasks", "cashews-tasks", "pottery-tasks"]
THREAD_WAITERS = ["baton", "ours", "python-redis-lock", "python-redis-lock-pool", "redis-py", "redis-py-pool"]
TASK_WAITERS = ["ours-tasks", "redis-py-tasks", "redis-py-tasks-pool", "cashews-tasks"]
RENEWERS = ["raw-renewed", "ours", "one-by-one", "python-redis-lock-pool", "python-redis-lock"]
MANY_RENEWERS = ["raw-renewed", "ours", "one-by-one"]
HOLDERS = ["ours", "ours-bare", "redis-py", "python-redis-lock", "django-redis", "redlock-ng", "pottery"]
SUBMITTERS = ["celery", "celery-guarded", "ours-celery", "celery-singleton", "celery-once"]

LEASE = 6.0  # short: every library renews within WATCHED seconds, after a third or two thirds of it
WATCHED = 4.0
SLOW = 3  # rounds of long scenarios


def tasks(bench: Bench) -> None:
    for number in (1, 50):
        case = bench.case("2", f"{number}", "same")
        bench.run_one_by_one(case, TASKS, "tasks", max_rounds=1, tasks=number)
        bench.run_interleaved(case, TASKS, "tasks", seconds=0.1, tasks=number)


def waiters(bench: Bench) -> None:
    bench.run_one_by_one(bench.case("4", "threads", "none"), THREAD_WAITERS, "waiters", max_rounds=SLOW, workers=500)
    bench.run_one_by_one(bench.case("4", "tasks", "none"), TASK_WAITERS, "waiters", max_rounds=SLOW, workers=500)


def renewals(bench: Bench) -> None:
    for locks, adapters in ((1_000, RENEWERS), (10_000, MANY_RENEWERS)):
        case = bench.case("5", f"{locks}", "none")
        arguments = {"seconds": WATCHED, "locks": locks}
        bench.run_one_by_one(case, adapters, "renewals", arguments=arguments, max_rounds=SLOW, lease=LEASE)


def memory(bench: Bench) -> None:
    bench.run_one_by_one(bench.case("6", "memory", "none"), HOLDERS, "memory", max_rounds=SLOW, locks=2000)


def submissions(bench: Bench) -> None:
    for name, same in (("unique", False), ("duplicate", True)):
        bench.run_interleaved(bench.case("8", name, "same"), SUBMITTERS, "submission", seconds=0.3, same=same)
