"""``lock_on_conflict``: what becomes of a message if another job has its key."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_locks import IdempotentTask, SingletonTask
from celery_locks.actions import Action, Fail, Follow, Redeliver, Skip, Wait
from celery_locks.header import Header
from celery_locks.job import Job
from celery_locks.on_conflict import on_conflict
from django_redis_locks import LockNotAcquired, Record
from tests.unit.celery_locks.conftest import MEMORY

RUNNING = Job("running", "other", run_id="r", record=Record(7, {}, 20.0))
MIN_HOLD = Job("done", "other", min_hold_left=30, retention=30, record=Record(7, {}, 20.0))
IN_LINE = {"retry_on_conflict": True}
RETRY: dict[str, Any] = {"lock_on_conflict": "retry", "lock_retry_delay": 3, "lock_max_retries": 2}
START: dict[str, Any] = {"unique_until": "start", "lock_retry_delay": 3}
AGAIN = Redeliver(3, "another job has its key")

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Job, float, Action | type[Fail | Skip]]] = {
    "a singleton": (
        {},
        {},
        RUNNING,
        0,
        Skip,
    ),
    "an idempotent task": ({"base": IdempotentTask}, {}, RUNNING, 0, Follow("other")),
    "an idempotent task without results": (
        {"base": IdempotentTask, "ignore_result": True, "lock_retry_delay": 3},
        {},
        RUNNING,
        0,
        AGAIN,
    ),
    "raise": ({"lock_on_conflict": "raise"}, {}, RUNNING, 0, Fail),
    "wait, as long as the alias says": ({"lock_on_conflict": "wait"}, {}, RUNNING, 4, Wait(6, for_key=True)),
    "wait for ever": ({"lock_on_conflict": "wait", "lock_wait": -1}, {}, RUNNING, 99, Wait(-1, for_key=True)),
    "wait, which is over": ({"lock_on_conflict": "wait", "lock_wait": 4}, {}, RUNNING, 4, Fail),
    "wait for the end of lock_min_hold": (
        {"lock_on_conflict": "wait", "lock_wait": -1},
        {},
        MIN_HOLD,
        0,
        Wait(20, True),
    ),
    "retry": (RETRY, {"redeliveries": 1}, RUNNING, 0, AGAIN),
    "retry, the last time": (RETRY, {"redeliveries": 2}, RUNNING, 0, Fail),
    "retry, since a canvas waits": (RETRY, {"redeliveries": 2, **IN_LINE}, RUNNING, 0, AGAIN),
    "skip, but a canvas waits": ({"lock_retry_delay": 3}, IN_LINE, RUNNING, 0, AGAIN),
    "until the start": (START, {"redeliveries": 99}, RUNNING, 0, AGAIN),
    "[K12] until the start, waiting in the worker": ({**START, "lock_wait": 60}, {}, RUNNING, 20, Wait(40, True)),
    "[K12] until the start, after that": ({**START, "lock_wait": 60}, {}, RUNNING, 60, AGAIN),
    "[K12] retry, waiting in the worker": ({**RETRY, "lock_wait": 60}, {"redeliveries": 2}, RUNNING, 0, Wait(60, True)),
}


@pytest.mark.parametrize("case", CASES)
def test_message_whose_key_is_taken_is_handled_as_lock_on_conflict_says(case: str, settings: Any) -> None:
    settings.REDIS_LOCKS = MEMORY
    declared, header, job, waited, expected = CASES[case]
    app = Celery("conflicts", broker="memory://", backend="cache+memory://", set_as_current=False)
    task = app.task(body, name="t", shared=False, lazy=False, **{"base": SingletonTask, **declared})
    action = on_conflict(task, Header("k", "id", **header), job, waited)
    if isinstance(action, Fail):
        assert isinstance(action.error, LockNotAcquired)
        assert (action.error.waited, action.error.retry_after, action.error.key) == (waited, 20.0, "k")
    if isinstance(action, Skip):
        assert action.holder == job.holder
        assert action.why == "another job has the key: other"
        assert action.described.startswith("other is running for")
    assert (type(action) if expected in (Fail, Skip) else action) == expected


def body() -> None: ...
