"""What task options and time limits come to."""

from __future__ import annotations

from typing import Any

from celery import Celery

from celery_locks import SingletonTask
from celery_locks.terms import longest

LONGEST: list[tuple[dict[str, Any], float | None, float]] = [
    ({}, None, -1),
    ({"time_limit": 60}, None, 70),
    ({"time_limit": 60}, 30, 40),
    ({"lock_max_hold": 5, "time_limit": 60}, 30, 5),
]


def body() -> None: ...


def test_longest_hold_is_the_time_limit_and_some_seconds_unless_lock_max_hold_is_set() -> None:
    """[C25] A job that hangs is held for little longer than its limit."""
    app = Celery("terms", broker="memory://", set_as_current=False)
    for number, (options, limit, expected) in enumerate(LONGEST):
        task = app.task(body, base=SingletonTask, name=f"t{number}", shared=False, lazy=False, **options)
        task.push_request(timelimit=(limit, None))
        assert longest(task) == expected
