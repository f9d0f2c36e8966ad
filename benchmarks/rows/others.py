"""Rows 2, 4, 5, 6 and 8: tasks, crowds, renewal, memory, Celery."""

from __future__ import annotations

from ..bench import Bench

TASKS = ["raw-tasks", "ours-tasks", "redis-py-tasks", "redlock-ng-tasks", "cashews-tasks", "pottery-tasks"]
THREAD_CROWD = ["baton", "ours", "python-redis-lock", "python-redis-lock-pool", "redis-py", "redis-py-pool"]
TASK_CROWD = ["ours-tasks", "redis-py-tasks", "redis-py-tasks-pool", "cashews-tasks"]
RENEWERS = ["raw-renewed", "ours", "one-by-one", "python-redis-lock-pool", "python-redis-lock"]
MANY_RENEWERS = ["raw-renewed", "ours", "one-by-one"]
HOLDERS = ["ours", "ours-bare", "redis-py", "python-redis-lock", "django-redis", "redlock-ng", "pottery"]
SUBMITTERS = ["celery", "celery-guarded", "ours-celery", "celery-singleton", "celery-once"]

LEASE = 6.0  # short, so that a few seconds show renewals of everybody: at a third of it, or two thirds
WATCHED = 4.0
SLOW = 3  # rounds of what takes long


def tasks(bench: Bench) -> None:
    for number in (1, 50):
        case = bench.case("2", f"{number}", "same")
        bench.turns(case, TASKS, "tasks", most=1, tasks=number)
        bench.slices(case, TASKS, "tasks", seconds=0.1, tasks=number)


def crowds(bench: Bench) -> None:
    bench.turns(bench.case("4", "threads", "none"), THREAD_CROWD, "crowd", most=SLOW, workers=500)
    bench.turns(bench.case("4", "tasks", "none"), TASK_CROWD, "crowd", most=SLOW, workers=500)


def renewals(bench: Bench) -> None:
    for locks, adapters in ((1_000, RENEWERS), (10_000, MANY_RENEWERS)):
        case = bench.case("5", f"{locks}", "none")
        arguments = {"seconds": WATCHED, "locks": locks}
        bench.turns(case, adapters, "renewals", arguments=arguments, most=SLOW, lease=LEASE)


def memory(bench: Bench) -> None:
    bench.turns(bench.case("6", "memory", "none"), HOLDERS, "memory", most=SLOW, locks=2000)


def submissions(bench: Bench) -> None:
    for name, same in (("unique", False), ("duplicate", True)):
        bench.slices(bench.case("8", name, "same"), SUBMITTERS, "submission", seconds=0.3, same=same)
