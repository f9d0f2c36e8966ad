"""`celery_locks.testing`: helpers for the tests of projects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from typing import Any

import pytest
from celery import Celery

from celery_locks import SingletonTask, counters, signals
from celery_locks.testing import locked_eager, running
from django_redis_locks import LockLost, LockNotAcquired, LockNotOwned
from tests.probes import celery as probe

# Celery's result backend
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


@pytest.fixture
def app() -> Celery:
    return Celery("testing", broker="memory://", backend="cache+memory://", set_as_current=False)


def double(self: Any, x: int = 1) -> int:
    return 2 * x


def declare(app: Celery, body: Any = double, **options: Any) -> Any:
    name = f"t{uuid.uuid4().hex[:6]}"
    return app.task(body, base=SingletonTask, bind=True, name=name, shared=False, lazy=False, **options)


def test_locked_eager_runs_tasks_under_their_locks(app: Celery) -> None:
    """Each block starts with free keys."""
    fences: list[int] = []

    def body(self: Any, x: int) -> int:
        fences.append(self.lock.fence)
        return 2 * x

    task = declare(app, body, lock_min_hold=60)
    for _ in range(2):
        with locked_eager(app):
            assert task.delay(3).get() == task.apply((4,)).get() - 2 == 6
            assert task.delay(3).state == "IGNORED"
    assert fences == sorted(set(fences))
    assert not app.conf.task_always_eager
    assert not task.lock_eager
    assert counters()[task.name, "lock_acquired"] == 4


def test_running_holds_the_key_as_another_process_does(app: Celery) -> None:
    task = declare(app)
    with locked_eager(app), running(task, 5) as other:
        result = task.delay(5)
        assert (result.state, str(result.result)) == ("IGNORED", f"another job has the key: {other}")
        assert task.delay(6).get() == 12
        with pytest.raises(AssertionError, match="runs already"), running(task, 5):
            pass


def test_eager_conflict_is_handled_by_lock_on_conflict(app: Celery) -> None:
    """[C39] Without workers nothing is redelivered: a job that would be retried is ignored, or fails if its retries are
    bounded."""
    skipped = []
    skipping, raising = declare(app), declare(app, lock_on_conflict="raise")
    waiting = declare(app, lock_on_conflict="wait", lock_wait=0.05)
    signals.lock_skipped.connect(
        lambda sender, holder, **_: skipped.append((sender, holder.pid)), weak=False, sender=skipping
    )
    with locked_eager(app):
        with running(skipping), running(raising), running(waiting) as holder:
            assert skipping.delay().state == "IGNORED"
            for task, waited in (raising, 0.0), (waiting, 0.05):
                error = task.delay().result
                assert isinstance(error, LockNotAcquired)
                assert error.waited >= waited
                assert re.search(r"another job has the key: .* is running for \d s, held by .* pid \d+", str(error))
            # [C58] the waiting task has reserved nothing: it doesn't block other jobs
            job = probe.running_job(waiting)
            assert job is not None
            assert (job.id, job.state) == (holder, "running")
        assert [sender for sender, _ in skipped] == [skipping]
        assert waiting.delay().state == "SUCCESS"
    for options, state in [
        ({"unique_until": "start"}, "IGNORED"),
        ({"unique_until": "start", "lock_on_conflict": "retry"}, "FAILURE"),
        ({"lock_on_conflict": "retry"}, "FAILURE"),
    ]:
        task = declare(app, lock_max_retries=0, **options)
        with locked_eager(app), running(task):
            assert task.delay().state == state, options


def test_waiting_job_starts_at_the_end_of_the_minimum_hold(app: Celery) -> None:
    """[C34] The record of a finished job lasts longer than its minimum hold; waiters don't wait for the end of the
    record."""
    waiting = declare(app, lock_on_conflict="wait", lock_wait=30, lock_min_hold=0.3)
    raising = declare(app, lock_on_conflict="raise", lock_min_hold=20)
    with locked_eager(app):
        waiting.delay()
        begin = time.monotonic()
        assert waiting.delay().state == "SUCCESS"
        assert time.monotonic() - begin < 10
        raising.delay()
        error = raising.delay().result
        assert isinstance(error, LockNotAcquired)
        assert 10 < error.retry_after <= 20


def test_job_that_submits_itself_runs_the_new_job_after_itself(app: Celery) -> None:
    """[C48] Within itself it would wait for its own end."""
    ran: list[int] = []

    def body(self: Any, more: int) -> int:
        ran.append(more)
        return 0 if not more else len([self.delay(more).state, self.delay(0).state])

    task = declare(app, body)
    with locked_eager(app):
        assert task.delay(1).get() == 2
    assert ran == [1, 0]


def test_run_that_lost_its_key_does_not_free_the_key_of_the_next_job(app: Celery) -> None:
    """[C20] At its end a run frees a key only if it still holds it."""
    task = declare(app, probe.pass_key_on)
    with locked_eager(app):
        assert task.apply().state == "SUCCESS"
        job = probe.running_job(task)
        assert job is not None
        assert (job.id, job.run_id) == ("another", "another")


def test_lock_of_a_run_can_be_extended_until_it_is_lost(app: Celery) -> None:
    """[C27] A direct call of a task has no lock."""
    seen: dict[str, Any] = {}

    def body(self: Any) -> None:
        self.lock.ensure_held()
        self.lock.extend(60)
        seen.update(fence=self.lock.fence, key=self.lock.key, holder=self.lock.holder, text=repr(self.lock))
        probe.drop_record(self)
        with pytest.raises(LockLost):
            self.lock.extend(60)

    task = declare(app, body)
    with locked_eager(app):
        assert task.apply().get() is None
    assert seen["key"].startswith(f"job:{task.name}:")
    assert seen["holder"].fence == seen["fence"]
    assert str(seen["fence"]) in seen["text"]
    with pytest.raises(LockNotOwned, match="lock_eager"):
        task()


def test_start_worker_in_a_thread_runs_our_tasks(redis_url: str) -> None:
    """As in Celery's documentation; in a subprocess, because it changes the logging of the whole process."""
    program = f"""
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery_locks import IdempotentTask
app = Celery("a", broker="{redis_url}", backend="{redis_url}")
app.conf.redis_locks = {{"default": {{"LOCATION": "{redis_url}"}}}}
ran = []
@app.task(base=IdempotentTask, idempotency_ttl=60)
def double(x):
    ran.append(x)
    return 2 * x
with start_worker(app, pool="solo", perform_ping_check=False):
    first, second = double.delay(3), double.delay(3)
    assert first.id == second.id
    assert first.get(timeout=20) == 6
    third = double.delay(3)
    assert (third.get(timeout=20), third.deduplicated, ran) == (6, True, [3])
"""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)


@pytest.mark.parametrize("django", [True, False])
def test_locked_eager_works_with_and_without_django(django: bool) -> None:
    program = f"""
from celery import Celery
from celery_locks import SingletonTask
from celery_locks.testing import locked_eager, running
if {django}:
    from django.conf import settings
    settings.configure()
app = Celery("a", broker="memory://")
@app.task(base=SingletonTask)
def job(x): return x
with locked_eager(app), running(job, 1):
    assert job.delay(2).get() == 2
    assert job.delay(1).state == "IGNORED"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
