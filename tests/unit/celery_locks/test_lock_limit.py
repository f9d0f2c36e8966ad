"""`lock_limit` in one process: conflicts over permits, their loss, and a change of the limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import Celery

from celery_locks import SingletonTask
from celery_locks.testing import locked_eager, running
from django_redis_locks import LockLost, LockNotAcquired, current_grant, locks
from tests.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # Celery's result backend


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("limits", broker="memory://", backend="cache+memory://", set_as_current=False)
    with locked_eager(app):
        yield app


def sync(self: Any, tenant: int) -> Any:
    return self.lock.fence


def declare(app: Celery, body: Any = sync, **options: Any) -> Any:
    made = {"lock_key": "{tenant}", "lock_limit": 2, **options}
    task = app.task(body, base=SingletonTask, bind=True, name="sync", shared=False, lazy=False, **made)
    type(task).lock_eager = True
    return task


def permits(tenant: int, limit: int = 2) -> Any:
    return locks.semaphore(f"job:sync:{tenant}:runs", limit)


def test_runs_of_a_key_share_the_permits_with_other_workers(app: Celery) -> None:
    """The permit is no grant of the body's context, and names the task id as its note."""
    notes = []

    def body(self: Any, tenant: int) -> None:
        notes.append((current_grant(), [holder.note for holder in permits(7).holders()]))
        self.lock.extend(60)
        assert permits(7).holders()[-1].lease_left > 59

    task = declare(app, body)
    with running(task, 7) as other:
        result = task.delay(7)
        assert notes == [(None, [other, result.id])]
        with running(task, 7), pytest.raises(AssertionError, match="2 jobs of task sync"), running(task, 7):
            pass
    assert permits(7).available() == 2


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, "IGNORED"),  # without a worker nothing is redelivered
        ({"lock_on_conflict": "skip"}, "IGNORED"),
        ({"lock_on_conflict": "raise"}, "FAILURE"),
        ({"lock_on_conflict": "retry", "lock_max_retries": 0}, "FAILURE"),
        ({"lock_on_conflict": "wait", "lock_wait": 0.05}, "FAILURE"),
    ],
    ids=lambda value: value.get("lock_on_conflict", "default") if isinstance(value, dict) else value,
)
def test_message_without_a_permit_is_handled_as_lock_on_conflict_says(
    app: Celery, options: Any, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = declare(app, **options)
    skipped = []
    type(task).on_lock_skipped = lambda self, holder: skipped.append(holder.note)
    with ExitStack() as stack:
        ids = [stack.enter_context(running(task, 7)) for _ in range(2)]
        result = task.delay(7)
        assert result.state == state
        assert task.delay(8).state == "SUCCESS"
    if state == "FAILURE":
        assert isinstance(result.result, LockNotAcquired)
        assert "other jobs have all permits of the key, one of them" in str(result.result)
        assert result.result.waited >= options.get("lock_wait", 0)
        assert 0 < result.result.retry_after <= 30
    assert skipped == (ids[:1] if options.get("lock_on_conflict") == "skip" else [])
    assert task.delay(7).state == "SUCCESS"


def test_loss_of_the_permit_is_the_loss_of_the_lock_and_reported_once(app: Celery) -> None:
    reports = []

    def body(self: Any, tenant: int) -> None:
        (holder,) = permits(7).holders()
        assert not self.lock.lost
        permits(7).force_release(fence=holder.fence)
        eventually(lambda: reports)
        self.request.get("lock_run").lost()  # as when its record is lost, too
        self.lock.ensure_held()

    task = declare(app, body, lock_expire=1, lock_on_lost=lambda task, lock: reports.append(lock.lost))
    assert isinstance(task.delay(7).result, LockLost)
    assert reports == [True]
    assert permits(7).available() == 2


def test_body_that_fails_gives_its_permit_back(app: Celery) -> None:
    def body(self: Any, tenant: int) -> None:
        assert permits(7).available() == 1
        raise ValueError(tenant)

    assert declare(app, body).delay(7).state == "FAILURE"
    assert permits(7).available() == 2


def test_workers_with_and_without_a_limit_do_not_see_each_other(app: Celery) -> None:
    """Their locks have different keys: a change of 1 to 2 raises no LockKeyError."""
    single = declare(app, lock_limit=1)
    with running(single, 7):
        assert single.delay(7).state == "IGNORED"
        double = declare(Celery("others", broker="memory://", backend="cache+memory://", set_as_current=False))
        with running(double, 7), running(double, 7):
            assert double.apply((8,)).state == "SUCCESS"
            assert permits(7).available() == 0
    with running(double, 7), running(double, 7):
        assert single.delay(7).state == "SUCCESS"
