"""What projects' own tests use, and what is doubtful about tasks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Ignore
from django.core.checks import run_checks

from celery_locks import IdempotentTask, SingletonTask, counters, signals
from celery_locks.checks import doubts
from celery_locks.job import Job
from celery_locks.keys import key_of
from celery_locks.place import run_place_of
from celery_locks.terms import longest
from celery_locks.testing import locked_eager, running
from django_redis_locks import LockLost, LockNotAcquired, LockNotOwned

# Celery's result backend
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

ran: list[Any] = []


@pytest.fixture
def app() -> Celery:
    ran.clear()
    app = Celery("testing", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.task_default_queue = uuid.uuid4().hex
    return app


def declare(app: Celery, base: type = SingletonTask, **options: Any) -> Any:
    def body(self: Any, x: int = 1) -> int:
        ran.append(self.lock.fence)
        return 2 * x

    task = app.task(body, base=base, bind=True, name=f"t{uuid.uuid4().hex[:6]}", shared=False, **options)
    app.finalize()
    return app.tasks[task.name]


def test_eager_and_locked(app: Celery) -> None:
    task = declare(app)
    with locked_eager(app):
        assert task.delay(3).get() == task.apply((4,)).get() - 2 == 6
        assert ran == sorted(set(ran))
    assert not app.conf.task_always_eager
    assert not task.lock_eager
    assert counters()[task.name, "lock_acquired"] == 2


def test_each_time_all_is_free(app: Celery) -> None:
    task = declare(app, lock_min_hold=60)
    for _ in range(2):
        with locked_eager(app):
            assert task.delay(1).state == "SUCCESS"
            assert task.delay(1).state == "IGNORED"


def test_a_job_that_runs_elsewhere(app: Celery) -> None:
    task = declare(app)
    with locked_eager(app), running(task, 5) as other:
        result = task.delay(5)
        assert (result.state, str(result.result)) == ("IGNORED", f"another job has the key: {other}")
        assert task.delay(6).get() == 12
    with locked_eager(app), running(task, 5), pytest.raises(AssertionError, match="runs already"), running(task, 5):
        pass


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({"unique_until": "start"}, "IGNORED"),
        ({"unique_until": "start", "lock_on_conflict": "retry"}, "FAILURE"),
        ({"lock_on_conflict": "retry"}, "FAILURE"),
    ],
    ids=str,
)
def test_only_who_asks_for_a_bound_is_given_up(app: Celery, options: dict[str, Any], state: str) -> None:
    """[C39] The one that waits for the end of a long run isn't lost: eagerly, what would come again is ignored."""
    task = declare(app, lock_max_retries=0, **options)
    with locked_eager(app), running(task):
        assert task.delay().state == state


def test_what_a_conflict_does(app: Celery) -> None:
    skipped = []
    lazy, stern = declare(app), declare(app, lock_on_conflict="raise")
    patient = declare(app, lock_on_conflict="wait", lock_wait=0.05)
    signals.lock_skipped.connect(
        lambda sender, holder, **_: skipped.append((sender, holder.pid)), weak=False, sender=lazy
    )
    with locked_eager(app):
        with running(lazy), running(stern), running(patient) as holder:
            assert lazy.delay().state == "IGNORED"
            for task, waited in (stern, 0.0), (patient, 0.05):
                error = task.delay().result
                assert isinstance(error, LockNotAcquired)
                assert error.waited >= waited
                assert error.holder is not None
                assert re.search(r"another job has the key: .* is running for \d s, held by .* pid \d+", str(error))
            # [C58] who waited reserved nothing: others aren't held up behind him
            job = run_place_of(patient, key_of(patient, (), {}, None)[0]).look()
            assert job is not None
            assert (job.id, job.state) == (holder, "running")
        assert [sender for sender, _ in skipped] == [lazy]
        assert patient.delay().state == "SUCCESS"


def test_a_wait_for_the_end_of_a_rest(app: Celery) -> None:
    """[C34] A job that is done is known for longer than its key rests."""
    patient = declare(app, lock_on_conflict="wait", lock_wait=30, lock_min_hold=0.3)
    stern = declare(app, lock_on_conflict="raise", lock_min_hold=20)
    with locked_eager(app):
        patient.delay()
        begin = time.monotonic()
        assert patient.delay().state == "SUCCESS"
        assert time.monotonic() - begin < 10
        stern.delay()
        error = stern.delay().result
        assert isinstance(error, LockNotAcquired)
        assert 10 < error.retry_after <= 20


@pytest.mark.parametrize("raised", [ValueError("x"), Ignore("x"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_whatever_a_body_raises_its_key_is_free(app: Celery, raised: BaseException) -> None:
    failures = [raised]

    def body() -> None:
        if failures:
            raise failures.pop()

    task = app.task(body, base=SingletonTask, name=f"t{uuid.uuid4().hex[:6]}", shared=False)
    app.finalize()
    with locked_eager(app):
        try:
            assert app.tasks[task.name].apply().state in ("FAILURE", "IGNORED")
        except (SystemExit, KeyboardInterrupt) as error:
            assert error is raised  # noqa: PT017
        assert not failures
        assert app.tasks[task.name].apply().state == "SUCCESS"


def test_a_job_that_submits_itself_while_it_runs(app: Celery) -> None:
    """[C48] Eagerly it would wait for itself."""

    def body(self: Any, more: int) -> int:
        ran.append(more)
        return 0 if not more else len([self.delay(more).state, self.delay(0).state])

    task = app.task(body, base=SingletonTask, bind=True, name=f"t{uuid.uuid4().hex[:6]}", shared=False)
    app.finalize()
    with locked_eager(app):
        assert app.tasks[task.name].delay(1).get() == 2
    assert ran == [1, 0]


def test_a_run_that_lost_its_key_leaves_the_next_ones_alone(app: Celery) -> None:
    """[C20] Its end frees what is its own, by the run, and nothing else."""
    seen: list[Any] = []

    def body(self: Any) -> None:
        place = self.request.get("lock_run").place
        place.ref.drop(place.ref.get())
        done, other = place.put(None, Job("running", "another", run="another"), 60)
        assert done
        seen.extend([place, other])

    task = app.task(body, base=SingletonTask, bind=True, name=f"t{uuid.uuid4().hex[:6]}", shared=False)
    app.finalize()
    with locked_eager(app):
        assert app.tasks[task.name].apply().state == "SUCCESS"
        place, other = seen
        assert place.look().known.version == other.known.version


@pytest.mark.parametrize(
    ("options", "limit", "expected"),
    [
        ({}, None, -1),
        ({"time_limit": 60}, None, 70),
        ({"time_limit": 60}, 30, 40),
        ({"lock_max_hold": 5, "time_limit": 60}, 30, 5),
    ],
)
def test_for_how_long_a_run_is_renewed(
    app: Celery, options: dict[str, Any], limit: float | None, expected: float
) -> None:
    """[C25] A job that hangs is held for no longer than its limit and a while."""
    task = declare(app, **options)
    task.push_request(timelimit=(limit, None))
    try:
        assert longest(task) == expected
    finally:
        task.pop_request()


def test_a_direct_call_has_no_lock(app: Celery) -> None:
    task = declare(app)
    with pytest.raises(LockNotOwned, match="lock_eager"):
        task(1)
    assert task.request.called_directly


def test_its_lock(app: Celery) -> None:
    """[C27] It is prolonged only while it is one's own."""
    seen: dict[str, Any] = {}

    def body(self: Any) -> None:
        self.lock.ensure_held()
        self.lock.extend(60)
        seen.update(fence=self.lock.fence, key=self.lock.key, holder=self.lock.holder, text=repr(self.lock))
        place = self.request.get("lock_run").place
        place.ref.drop(place.ref.get())
        with pytest.raises(LockLost):
            self.lock.extend(60)

    task = app.task(body, base=SingletonTask, bind=True, name=f"t{uuid.uuid4().hex[:6]}", shared=False)
    app.finalize()
    with locked_eager(app):
        assert app.tasks[task.name].apply().get() is None
    assert seen["key"].startswith(f"job:{task.name}:")
    assert seen["holder"].fence == seen["fence"]
    assert str(seen["fence"]) in seen["text"]


def test_a_real_worker(redis_url: str) -> None:
    """In a thread of the test, as Celery's own documentation has it; here in a program, since it sets up logging for good."""
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
def test_in_a_program_of_its_own(django: bool) -> None:
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
with locked_eager(app):
    assert job.delay(1).get() == 1
    with running(job, 1):
        assert job.delay(1).state == "IGNORED"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


# Doubts

DOUBTS = {
    "celery_locks.W001": ({"idempotency_ttl": 60, "ignore_result": True}, {}),
    "celery_locks.W002": ({"idempotency_ttl": 90_000}, {}),
    "celery_locks.W003": ({"acks_late": True, "time_limit": 4000}, {}),
    "celery_locks.W004": ({"lock_redelivery_window": 60}, {}),
    "celery_locks.W005": ({"lock_min_hold": 60}, {"beat": 60.0}),
}


@pytest.mark.parametrize("id", DOUBTS)
def test_what_is_doubtful(app: Celery, id: str) -> None:
    options, more = DOUBTS[id]
    app.conf.broker_url = "redis://127.0.0.1/0"
    task = declare(app, **options)
    fine = declare(app)
    if "beat" in more:
        app.conf.beat_schedule = {
            name: {"task": name, "schedule": more["beat"]} for name in (task.name, fine.name, "another")
        }
    (found,) = doubts(app)
    assert found.id == id
    assert task.name in found.message


def test_every_doubt_is_on_the_page() -> None:
    page = Path("docs/reference/checks.md").read_text()
    assert set(re.findall(r"celery_locks\.W\d+(?=` \|)", page)) == {*DOUBTS, "celery_locks.W006"}  # of no task


def test_limits_that_fit_are_no_doubt(app: Celery) -> None:
    app.conf.update(broker_url="redis://127.0.0.1/0", broker_transport_options={"visibility_timeout": 5000})
    declare(app, acks_late=True, time_limit=4000)
    declare(app, IdempotentTask, idempotency_ttl=3600)
    assert list(doubts(app)) == []
    app.conf.broker_url = "amqp://"
    declare(app, acks_late=True, time_limit=400_000)
    assert list(doubts(app)) == []


def test_django_tells_them() -> None:
    app = Celery("checked", broker="redis://127.0.0.1/0")
    try:
        declare(app, lock_redelivery_window=60)
        assert [message.id for message in run_checks(tags=["celery_locks"])] == ["celery_locks.W004"]
    finally:
        app.close()
        Celery("default").set_current()
