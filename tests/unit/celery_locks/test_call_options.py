"""Options of one call and of a whole app, in place of the task's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.signals import before_task_publish

from celery_locks import DuplicateTask, IdempotentTask, SingletonTask, signals
from celery_locks.header import HEADER
from celery_locks.job import Job
from celery_locks.job_record import record_of
from celery_locks.keys import key_of
from django_redis_locks import LockNotAcquired
from tests.unit.celery_locks.conftest import MEMORY


@pytest.fixture
def app(project_app: Celery, settings: Any) -> Iterator[Celery]:
    settings.REDIS_LOCKS = MEMORY
    project_app.conf.update(result_backend="cache+memory://", task_eager_propagates=True)
    return project_app


def double(x: int) -> int:
    return 2 * x


def declare(app: Celery, base: type = SingletonTask, name: str = "", **options: Any) -> Any:
    return app.task(double, base=base, name=name or f"double{len(app.tasks)}", shared=False, lazy=False, **options)


@pytest.fixture
def headers() -> Iterator[list[dict[str, Any]]]:
    """The headers of this package in the messages that are sent."""
    found: list[dict[str, Any]] = []

    def published(headers: Any = None, **_: Any) -> None:
        found.append(headers[HEADER])

    before_task_publish.connect(published)
    yield found
    before_task_publish.disconnect(published)


def test_submission_uses_the_options_of_its_call_and_sends_them(app: Celery, headers: list[dict[str, Any]]) -> None:
    """[K12] A retry keeps them, and may change them. Other calls have the task's own options."""
    task = declare(app)
    task.delay(1)
    assert task.delay(1).deduplicated
    with pytest.raises(DuplicateTask):
        task.apply_async((1,), lock_on_duplicate="raise")
    assert not task.s(1).set(lock_on_duplicate="queue").apply_async().deduplicated
    options = {"lock_wait": -1, "lock_queue_ttl": timedelta(minutes=1)}
    sent = task.apply_async((2,), **options)
    assert record_of(task, key_of(task, (2,), {}, None)[0]).read().stored_record.lease_left <= 60
    task.apply_async((2,), task_id=sent.id, headers={HEADER: headers[-1]}, lock_wait=5)
    assert [header.get("options") for header in headers] == [
        None,
        {"lock_on_duplicate": "queue"},
        {"lock_wait": -1, "lock_queue_ttl": 60.0},
        {"lock_wait": 5, "lock_queue_ttl": 60.0},
    ]


def test_worker_uses_the_options_of_the_call(app: Celery) -> None:
    """[K12] Receivers of signals get the declared task."""
    app.conf.task_always_eager = True
    task, other = declare(app, lock_eager=True), declare(app, lock_eager=True)
    senders: list[Any] = []
    signals.lock_acquired.connect(lambda sender, **_: senders.append(sender), sender=task, weak=False, dispatch_uid="t")
    task.apply_async((1,), idempotency_ttl=60)
    job_record = record_of(task, key_of(task, (1,), {}, None)[0])
    done = job_record.read()
    assert done is not None
    assert done.ttl == 60
    task.apply_async((2,))
    other.apply_async((2,), lock_min_hold=30)
    with pytest.raises(LockNotAcquired):
        other.apply_async((2,), lock_on_conflict="raise")
    assert other.apply_async((2,)).status == "IGNORED"
    assert senders == [task, task]
    signals.lock_acquired.disconnect(sender=task, dispatch_uid="t")


def test_DuplicateTask_has_the_seconds_until_the_job_can_be_submitted_again(app: Celery) -> None:
    """[K12] Unless it is queued, since its start isn't known."""
    task = declare(app, lock_on_duplicate="raise")
    job_record = record_of(task, key_of(task, (1,), {}, None)[0])

    def retry_after() -> float | None:
        with pytest.raises(DuplicateTask) as caught:
            task.delay(1)
        return caught.value.retry_after

    task.delay(1)
    assert retry_after() is None
    for job, least, most in [
        (Job("running", "id", run_id="r"), 50, 60),
        (Job("done", "id", retention=60, ttl=30, min_hold_left=20), 20, 30),
        (Job("done", "id", retention=60, min_hold_left=20), 10, 20),
    ]:
        written, _ = job_record.put(job_record.read(), job, 60)
        assert written
        assert least < (retry_after() or 0) <= most


def test_wrong_option_of_a_call_is_refused(app: Celery) -> None:
    """[K12] Nothing is sent."""
    task = declare(app, unique_until="start")
    for wrong, error, text in [
        ({"lock_exipre": 5}, TypeError, r"no option lock_exipre; did you mean 'lock_expire'\?"),
        ({"lock_using": "other"}, TypeError, "lock_using can only be declared"),
        ({"lock_on_duplicate": "skip"}, ValueError, "lock_on_duplicate is one of .*, not 'skip'"),
        ({"lock_wait": "5"}, ValueError, "lock_wait must be"),
        ({"idempotency_ttl": 5}, ValueError, 'no effect with unique_until="start"'),
    ]:
        with pytest.raises(error, match=rf"apply_async\(\) of task {task.name}: .*{text}"):
            task.apply_async((1,), **wrong)
    assert not task.delay(1).deduplicated


def test_defaults_of_the_app_give_way_to_declared_options(app: Celery) -> None:
    """[K12] Those of a task, of a base class of the project, and of ``task_annotations``."""
    app.conf.redis_locks_defaults = {"lock_expire": 7, "lock_on_backend_error": "open"}
    app.conf.task_annotations = {"annotated": {"lock_expire": 9}}
    base = type("Base", (SingletonTask,), {"abstract": True, "lock_expire": 8})
    found = [
        (task.lock_expire, task.lock_on_backend_error, task.lock_canvas)
        for task in (
            declare(app),
            declare(app, IdempotentTask),
            declare(app, IdempotentTask, lock_expire=5, lock_on_backend_error="closed"),
            declare(app, base),
            declare(app, name="annotated"),
        )
    ]
    assert found == [
        (7, "open", "follow"),
        (7, "open", "follow"),
        (5, "closed", "follow"),
        (8, "open", "follow"),
        (9, "open", "follow"),
    ]


@pytest.mark.parametrize(
    ("defaults", "base", "declared", "found"),
    [
        ({"idempotency_ttl": 60}, SingletonTask, {"lock_limit": 2}, {"idempotency_ttl": 0}),
        ({"idempotency_ttl": 60}, SingletonTask, {"unique_until": "start"}, {"idempotency_ttl": 0}),
        ({"lock_on_conflict": "follow"}, SingletonTask, {"unique_until": "start"}, {"lock_on_conflict": None}),
        ({"lock_limit": 3, "lock_expire": 7}, IdempotentTask, {}, {"lock_limit": 1, "lock_expire": 7}),
        ({"lock_min_hold": 60}, SingletonTask, {"lock_max_hold": 30}, {"lock_min_hold": 0}),
        (
            {"unique_until": "expired", "idempotency_ttl": 60},
            SingletonTask,
            {"lock_limit": 2},
            {"unique_until": "success", "idempotency_ttl": 0},
        ),
        ({"idempotency_ttl": 60}, SingletonTask, {"unique_until": "expired"}, {"idempotency_ttl": 60}),
    ],
)
def test_default_of_the_app_gives_way_to_an_option_that_excludes_it(
    app: Celery, defaults: Any, base: Any, declared: Any, found: Any
) -> None:
    """[K12] The author of the task didn't ask for it."""
    app.conf.redis_locks_defaults = defaults
    task = declare(app, base, **declared)
    assert {name: getattr(task, name) for name in found} == found
    assert all(getattr(task, name) == value for name, value in declared.items())


def test_options_that_exclude_each_other_raise_if_one_source_has_both(app: Celery) -> None:
    """[K12] The task or the app: a default doesn't hide the mistake."""
    both = {"unique_until": "start", "idempotency_ttl": 60}
    for defaults, declared in (both, {}), ({"lock_expire": 7}, both), ({"idempotency_ttl": 5}, both):
        app.conf.redis_locks_defaults = defaults
        with pytest.raises(ValueError, match='idempotency_ttl has no effect with unique_until="start"'):
            declare(app, **declared)


def test_wrong_default_of_the_app_raises_ValueError_at_registration(app: Celery) -> None:
    """[K12]"""
    for wrong, text in [
        ({"lock_exipre": 5}, r"app.conf.redis_locks_defaults: there is no option lock_exipre; did you mean"),
        ([5], r"app.conf.redis_locks_defaults: it must be a dict of options, not \[5\]"),
        ({"lock_canvas": "x"}, "task double.*lock_canvas is one of"),
    ]:
        app.conf.redis_locks_defaults = wrong
        with pytest.raises(ValueError, match=text):
            declare(app)
