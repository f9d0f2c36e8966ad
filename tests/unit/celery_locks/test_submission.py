"""Submissions: what is sent, what the record says, and what a duplicate is answered with."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

from celery_locks import DuplicateTask, IdempotencyKeyReused, IdempotentTask, SingletonTask, counters, submission
from celery_locks.message import HEADER
from django_redis_locks import LockKeyError, locks
from tests.unit.celery_locks.sent_messages import DOWN, Sent, run_of
from tools.redis_server import RedisServer

BASES = (SingletonTask, IdempotentTask)


def test_duplicate_submission_returns_the_first_result_and_sends_nothing(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "celery_locks")
    for base in BASES:
        task = sent.task(base)
        first, second, other = task.delay(1), task.delay(x=1), task.delay(2)
        assert sent.ids_of(task) == [first.id, other.id]
        found = second.id, first.deduplicated, second.deduplicated, other.deduplicated
        assert found == (first.id, False, True, False)
        assert counters()[task.name, "duplicate_suppressed"] == 1
        assert f"a duplicate: {first.id} is queued for " in caplog.text


def test_message_carries_the_key_and_the_callers_headers(sent: Sent) -> None:
    """[C42] No worker has to compute the key."""
    task = sent.task()
    result = task.apply_async((1,), headers={"mine": 7})
    (message,) = sent.messages
    job = sent.job(task)
    assert (job.state, job.id) == ("queued", result.id)
    assert message[HEADER] == {"v": 1, "key": message[HEADER]["key"], "id": result.id, "reserved": job.reserved}
    assert message["mine"] == 7


def test_adelay_sends_one_message_and_delay_in_a_loop_raises(sent: Sent) -> None:
    task = sent.task()

    async def main() -> list[Any]:
        with pytest.raises(SynchronousOnlyOperation, match="async context"):
            task.delay(1)
        return await asyncio.gather(*[task.adelay(1) for _ in range(5)], task.aapply_async((1,), {"y": 2}))

    results = asyncio.run(main())
    assert sent.ids == [results[0].id]
    assert {result.id for result in results} == {results[0].id}


# lock_on_duplicate


def test_duplicate_with_raise_raises_DuplicateTask_and_with_queue_is_sent(sent: Sent) -> None:
    task = sent.task(lock_on_duplicate="raise")
    first = task.delay()
    with pytest.raises(DuplicateTask, match="is queued already") as caught:
        task.delay()
    assert (caught.value.task_id, caught.value.state, caught.value.name) == (first.id, "queued", task.name)
    assert "job:" not in str(caught.value)
    queued = sent.task(lock_on_duplicate="queue")
    assert len({queued.delay().id for _ in range(3)}) == 3 == len(sent.ids_of(queued))


def test_duplicate_with_replace_takes_the_place_of_a_queued_job(sent: Sent) -> None:
    """The last one counts, and messages before it find themselves replaced. A job that runs isn't replaced."""
    task = sent.task(lock_on_duplicate="replace")
    results = [task.apply_async((1,), countdown=60) for _ in range(3)]
    assert not any(result.deduplicated for result in results)
    job = sent.job(task)
    reserved = [header["reserved"] for header in sent.headers]
    assert (job.id, job.first, job.reserved) == (results[2].id, reserved[0], reserved[2])
    sent.runs(task)
    assert task.delay(1).id == results[2].id


# Until when a submission is a duplicate


@pytest.mark.parametrize(
    ("options", "outcome", "about", "duplicate"),
    [
        pytest.param({"idempotency_ttl": 30}, "failure", {}, False, id="[C60] failed"),
        pytest.param({"idempotency_ttl": 30}, "success", {"ttl": 30}, True, id="answered"),
        pytest.param({"idempotency_ttl": 0}, "success", {}, False, id="done"),
        pytest.param({"base": SingletonTask, "lock_min_hold": 30}, "success", {"rest": 30}, True, id="[C34] min hold"),
    ],
)
def test_submission_after_the_end_of_a_job(
    sent: Sent, options: dict[str, Any], outcome: str, about: dict[str, Any], duplicate: bool
) -> None:
    task = sent.task(**options)
    first = task.delay(1)
    sent.ends(task, outcome, **about)
    assert (task.delay(1).id == first.id) is duplicate


def test_submission_after_a_start_or_a_revocation_is_a_new_job(sent: Sent) -> None:
    """[C16] With ``unique_until="start"`` what runs has a record of its own. [C9] The message of a revoked job may never
    reach a worker."""
    task = sent.task(unique_until="start")
    first = task.delay(1)
    assert task.delay(1).id == first.id
    sent.place(task).drop(sent.job(task))  # as a worker does at its start
    second = task.delay(1)
    task.backend.mark_as_revoked(second.id, "by hand")
    submission._looked.clear()
    third = task.delay(1)
    assert len({first.id, second.id, third.id}) == 3
    assert not third.deduplicated


def test_queued_job_expires_with_its_message(sent: Sent) -> None:
    """[C3] [C11] [C12] A message that is lost doesn't block its key for ever."""
    for declared, options, least, most in [
        (None, {}, 86_000, 86_400),
        (None, {"countdown": 3600}, 89_000, 90_000),
        (None, {"expires": 60}, 50, 60),
        (None, {"expires": 60, "countdown": 600}, 50, 60),
        (60, {}, 50, 60),
        (60, {"expires": 90}, 80, 90),
        (60, {"expires": None}, 86_000, 86_400),
    ]:
        task = sent.task(expires=declared)
        task.apply_async((1,), **options)
        assert least < sent.job(task).known.lease_left <= most, (declared, options)


# Keys


def test_idempotency_key_with_other_arguments_raises_IdempotencyKeyReused(sent: Sent) -> None:
    task = sent.task()
    first = task.apply_async((1,), idempotency_key="order-7")
    assert task.apply_async((1,), idempotency_key="order-7").id == first.id
    assert task.delay(1).id != first.id
    with pytest.raises(IdempotencyKeyReused, match="other arguments") as caught:
        task.apply_async((2,), idempotency_key="order-7")
    assert "order-7" not in str(caught.value)
    assert len(sent.ids) == 2


def test_foreign_value_under_the_key_raises_LockKeyError(sent: Sent) -> None:
    task = sent.task(lock_key="{x}")
    with locks.lock(f"job:{task.name}:1"), pytest.raises(LockKeyError):
        task.delay(1)
    assert sent.ids == []


# Submissions from a run of the same job


@pytest.mark.parametrize("how", ["existing", "queue"])
def test_job_that_submits_itself_twice_has_one_successor(sent: Sent, how: str) -> None:
    """[C17] [C47] One is enough, unless each counts; a message whose id is promised is sent."""
    task = sent.task(lock_on_duplicate=how)
    run = run_of(task, 1)
    task.push_request(id="id", called_directly=False, lock_run=run)
    first, second = task.delay(1), task.delay(1)
    third = task.apply_async((1,), task_id="promised")
    assert run.heir is not None
    assert run.heir.id == first.id
    assert second.deduplicated is (how == "existing")
    assert third.id == "promised" == sent.ids[-1]
    assert len(sent.ids) == (2 if how == "existing" else 3)
    assert [header.get("after") for header in sent.headers] == ["r"] * len(sent.ids)
    assert sent.headers[-1].get("follow") == (first.id if how == "existing" else None)


def test_duplicate_is_no_child_of_its_submitter(sent: Sent) -> None:
    """[C57] It may be its own ancestor."""
    child = sent.task()
    children: list[str] = []

    def parent(self: Any) -> None:
        child.delay(1)
        child.delay(1)
        children.extend(result.id for result in self.request.children)

    sent.app.task(parent, bind=True, name="parent", shared=False, lazy=False).apply(throw=True)
    assert children == sent.ids
    assert len(children) == 1


# Transactions


@pytest.mark.django_db(transaction=True)
def test_submission_on_commit_is_sent_after_commit_and_not_after_rollback(sent: Sent) -> None:
    """[C15] [D16] A rollback leaves no record."""
    task = sent.task()
    with transaction.atomic():
        task.delay_on_commit(1)
        transaction.set_rollback(True)
    assert sent.ids == []
    assert not connection.in_atomic_block
    with transaction.atomic():
        task.delay_on_commit(1)
        task.apply_async_on_commit((1,))
        assert sent.ids == []
    assert len(sent.ids) == 1


# Canvas


def test_duplicates_in_a_group_are_sent_and_follow_the_first(sent: Sent) -> None:
    """[C17] Their ids are promised."""
    task = sent.task()
    result = group(task.s(1) for _ in range(3)).apply_async()
    assert sent.ids == [child.id for child in result.children]
    assert [header.get("follow") for header in sent.headers] == [None, sent.ids[0], sent.ids[0]]


def test_duplicate_in_a_chain_or_with_a_callback_follows_the_first(sent: Sent) -> None:
    """[C19] Without results it runs after the first."""
    task, forgetful = sent.task(), sent.task(ignore_result=True)
    first = task.delay(1)
    chain(task.s(1), task.si(2)).apply_async()
    task.apply_async((1,), link=task.si(3))
    assert [header.get("follow") for header in sent.headers] == [None, first.id, first.id]
    first = forgetful.delay(1)
    assert forgetful.apply_async((1,), link=forgetful.si(3)).id != first.id
    assert sent.headers[-1].get("line") is True
    assert "follow" not in sent.headers[-1]


def test_duplicate_in_a_canvas_with_lock_canvas_fail_raises_DuplicateTask(sent: Sent) -> None:
    task = sent.task(lock_canvas="fail")
    task.delay(1)
    with pytest.raises(DuplicateTask):
        chord([task.s(1), task.s(1)], task.si(9)).apply_async()


# Plain Celery


def test_celerys_own_tasks_are_no_jobs(redis_server: RedisServer, settings: Any) -> None:
    """An app's default base class reaches them too."""
    app = Celery("all", broker=redis_server.url(0), task_cls=SingletonTask, set_as_current=False)
    app.conf.task_default_queue = uuid.uuid4().hex
    settings.REDIS_LOCKS = DOWN
    backup = app.tasks["celery.backend_cleanup"]
    assert isinstance(backup, SingletonTask)
    assert backup.delay().id != backup.delay().id
    app.close()


def double(x: int) -> int:
    return 2 * x


def test_eager_task_needs_no_server(sent: Sent, settings: Any) -> None:
    """[C48]"""
    settings.REDIS_LOCKS = DOWN
    sent.app.conf.task_always_eager = True
    for base in BASES:
        task = sent.task(base, body=double)
        results = [task.delay(4), task.apply_async((4,), idempotency_key="k"), task.s(4).apply_async()]
        assert [result.get() for result in results] == [8, 8, 8]
        assert task.apply((4,)).get() == task(4) == 8
