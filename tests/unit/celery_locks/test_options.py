"""Validation of task options when a task is bound, and the maximum hold."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from celery_locks import IdempotentTask, SingletonTask
from celery_locks.task_settings import max_hold_of


def body() -> None: ...


def bind(base: type = SingletonTask, name: str = "bad", **options: object) -> Any:
    app = Celery("options", broker="memory://", set_as_current=False)
    return app.task(body, base=base, name=name, lazy=False, shared=False, **options)


WRONG: dict[str, list[object]] = {
    "lock_on_duplicate": ["existing ", None, "skip"],
    "lock_on_conflict": ["existing", 1],
    "lock_on_backend_error": [None, "proceed"],
    "lock_canvas": [None, "follower"],
    "unique_until": [None, "done"],
    "lock_on_lost": ["cancel", 7],
    "lock_key": ["", 7, b"k"],
    "lock_max_retries": [-1, 1.5, None, True],
    "lock_limit": [0, -1, 2.0, None, True, "2"],
    "lock_expire": [0, 0.5, -1, "60", True, float("inf"), float("nan")],
    "lock_wait": [-2, "1"],
    "lock_min_hold": [-1, None],
    "lock_max_hold": [0, -2],
    "lock_retry_delay": [-1, None],
    "lock_queue_ttl": [0, -1, None],
    "lock_redelivery_window": [-1],
    "idempotency_ttl": [-1, None],
}

CONTRADICTIONS = [
    {"lock_min_hold": 60, "lock_max_hold": 30},
    {"unique_until": "expired"},
    {"unique_until": "start", "idempotency_ttl": 5},
    {"unique_until": "start", "lock_on_conflict": "follow"},
    {"lock_limit": 2, "lock_on_conflict": "follow"},
    {"lock_limit": 2, "idempotency_ttl": 5},
    {"lock_limit": 2, "unique_until": "finish"},
    {"lock_limit": 2, "lock_min_hold": 5},
]

VALID = [
    {},
    {"lock_expire": timedelta(minutes=1), "lock_max_hold": -1, "lock_wait": -1},
    {"lock_on_lost": lambda task, lock: None, "lock_key": lambda task: "k"},
    {"unique_until": "expired", "idempotency_ttl": 60},
    {"unique_until": "start", "lock_on_conflict": "wait"},
    {"unique_until": "start", "lock_limit": 2, "lock_on_conflict": "wait"},
]


@pytest.mark.parametrize("name", WRONG)
def test_option_with_an_invalid_value_raises_ValueError_naming_task_and_option(name: str) -> None:
    """[C50] Modes have names, so that no combination of states is missing."""
    for value in WRONG[name]:
        with pytest.raises(ValueError, match=rf"task bad: {name} (is|must be) .*, not {re.escape(repr(value))}"):
            bind(**{name: value})


def test_option_that_does_not_exist_is_refused_with_a_suggestion() -> None:
    """[K8] On the task, in a base class, and in a call. A misspelled option would have no effect."""
    for name, near in {
        "lock_exipre": "lock_expire",
        "unique_untill": "unique_until",
        "idempotency_tll": "_ttl",
    }.items():
        with pytest.raises(ValueError, match=rf"task bad: there is no option {name}; did you mean '\w*{near}'\?"):
            bind(**{name: 5})
    base = type("Base", (SingletonTask,), {"abstract": True, "unique_nonsense": 1})
    with pytest.raises(ValueError, match=r"there is no option unique_nonsense$"):
        bind(base)
    task = bind(name="good")
    with pytest.raises(TypeError, match=r"no option idempotency_kye; did you mean 'idempotency_key'\?"):
        task.apply_async(idempotency_kye="k")


def test_contradicting_options_raise_ValueError() -> None:
    for options in CONTRADICTIONS:
        with pytest.raises(ValueError, match="task bad: ") as refused:
            bind(**options)
        assert all(name in str(refused.value) for name in options)
    with pytest.raises(ValueError, match="lock_limit is for a SingletonTask: a job of an IdempotentTask is run once"):
        bind(IdempotentTask, lock_limit=2)
    with pytest.raises(ValueError, match=r"lock_canvas.*lock_expire"):  # all errors in one message
        bind(lock_canvas="x", lock_expire="y")


def test_valid_options_are_accepted() -> None:
    for options in VALID:
        bind(name="good", **options)


def test_max_hold_is_the_time_limit_plus_ten_seconds_unless_lock_max_hold_is_set() -> None:
    """[C25] The lock of a hanging job is held for little longer than its time limit."""
    for options, limit, expected in [
        ({}, None, -1),
        ({"time_limit": 60}, None, 70),
        ({"time_limit": 60}, 30, 40),
        ({"lock_max_hold": 5, "time_limit": 60}, 30, 5),
    ]:
        task = bind(name="good", **options)
        task.push_request(timelimit=(limit, None))
        assert max_hold_of(task) == expected
