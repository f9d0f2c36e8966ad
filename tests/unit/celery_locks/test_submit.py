"""Submissions: the sent messages, the job's record, the results of duplicates, and failures.

Real submissions to a broker without workers. tests/simulation covers races and processes that die.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery, chain, chord
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from kombu.exceptions import EncodeError, OperationalError

from celery_locks import DuplicateTask, IdempotencyKeyReused, IdempotentTask, SingletonTask, beat, counters
from celery_locks.header import HEADER, Header
from celery_locks.job import Job
from celery_locks.job_record import JobRecord, record_of
from celery_locks.keys import key_of
from django_redis_locks import LockBackendError, clock
from django_redis_locks.testing import ManualClock
from tests.waiting import BUSY
from tools.processes import free_port
from tools.redis_server import RedisServer

DOWN = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0}}


class Sent:
    """An app on a real broker, with the messages that it sent."""

    def __init__(self, server: RedisServer, settings: Any) -> None:
        settings.REDIS_LOCKS = {"default": {"LOCATION": server.url(2)}}
        self.app = Celery("sent", broker=server.url(0), backend="cache+memory://", set_as_current=False)
        # without a pool, connections are closed at once, and not by the garbage collector during another test
        self.app.conf.update(task_default_queue=uuid.uuid4().hex, broker_pool_limit=0)
        self.redis = redis.Redis.from_url(server.url(0))

    def task(self, base: type = IdempotentTask, body: Any = None, **options: Any) -> Any:
        def run(x=1, y=2): ...

        name = f"task{uuid.uuid4().hex[:6]}"
        return self.app.task(body or run, base=base, name=name, shared=False, lazy=False, **options)

    @property
    def messages(self) -> list[dict[str, Any]]:
        queue = self.app.conf.task_default_queue
        return [json.loads(text)["headers"] for text in reversed(self.redis.lrange(queue, 0, -1))]

    @property
    def ids(self) -> list[str]:
        return [message["id"] for message in self.messages]

    @property
    def headers(self) -> list[dict[str, Any]]:
        return [message[HEADER] for message in self.messages]

    def ids_of(self, task: Any) -> list[str]:
        return [message["id"] for message in self.messages if message["task"] == task.name]

    def job_record(self, task: Any) -> JobRecord:
        """The record of the job with the argument 1."""
        return record_of(task, key_of(task, (1,), {}, None)[0])

    def job(self, task: Any) -> Job:
        job = self.job_record(task).read()
        assert job is not None
        return job

    def fail(self, patch: pytest.MonkeyPatch, failure: BaseException, *, after: bool) -> Callable[[], None]:
        """Let the broker fail, before or after it takes a message, until the returned function is called."""
        plain = self.app.send_task

        def send(*args: Any, **kwargs: Any) -> Any:
            if after:
                plain(*args, **kwargs)
            raise failure

        patch.setattr(self.app, "send_task", send)
        return lambda: patch.setattr(self.app, "send_task", plain)

    def tick(self, task: Any) -> Any:
        """Submit like beat does."""
        token = beat._current.set(beat.Tick(f"entry {uuid.uuid4().hex}", task.name, 60.0, None, uuid.uuid4().hex))
        try:
            return task.apply_async()
        finally:
            beat._current.reset(token)


def run_of(task: Any) -> Any:
    """A run of the job with the argument 1, for ``push_request(lock_run=...)``."""
    return SimpleNamespace(id="r", header=Header(key_of(task, (1,), {}, None)[0], "id"), successor=None)


@pytest.fixture
def sent(redis_server: RedisServer, settings: Any) -> Iterator[Sent]:
    sent = Sent(redis_server, settings)
    yield sent
    beat._down.clear()
    sent.redis.delete(sent.app.conf.task_default_queue)
    sent.redis.close()
    sent.app.close()


# Messages


def test_message_carries_the_key_and_the_callers_headers(sent: Sent) -> None:
    """[C42] A worker takes the key from the message."""
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


def test_queued_job_expires_with_its_message(sent: Sent) -> None:
    """[C3] [C11] [C12] A lost message doesn't block its key for ever."""
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
        assert least < sent.job(task).stored_record.lease_left <= most, (declared, options)


def test_submission_sends_no_command_that_scans_keys(sent: Sent) -> None:
    """[C54] Its cost doesn't depend on the number of jobs."""
    task = sent.task()
    sent.redis.config_resetstat()
    task.delay(1)
    task.delay(1)
    used = {name.removeprefix("cmdstat_") for name in sent.redis.info("commandstats")}
    assert "evalsha" in used
    assert not {"keys", "scan", "zscan", "hscan", "smembers"} & used


# Duplicates


def test_duplicate_is_handled_by_lock_on_duplicate(sent: Sent, caplog: pytest.LogCaptureFixture) -> None:
    """With "replace" the last submission counts. A running job isn't replaced."""
    caplog.set_level("INFO", "celery_locks")
    existing, strict, queueing, replacing = [
        sent.task(lock_on_duplicate=how) for how in ("existing", "raise", "queue", "replace")
    ]
    first, second = existing.delay(1), existing.delay(x=1)
    assert (second.id, first.deduplicated, second.deduplicated) == (first.id, False, True)
    assert counters()[existing.name, "duplicate_suppressed"] == 1
    assert f"a duplicate: {first.id} is queued for " in caplog.text

    first = strict.delay()
    with pytest.raises(DuplicateTask, match="is queued already") as caught:
        strict.delay()
    assert (caught.value.task_id, caught.value.state, caught.value.name) == (first.id, "queued", strict.name)
    assert "job:" not in str(caught.value)

    assert len({queueing.delay().id for _ in range(3)}) == 3 == len(sent.ids_of(queueing))

    results = [replacing.apply_async((1,), countdown=60) for _ in range(3)]
    assert not any(result.deduplicated for result in results)
    job = sent.job(replacing)
    reserved = [header["reserved"] for header in sent.headers[-3:]]
    assert (job.id, job.first_reserved, job.reserved) == (results[2].id, reserved[0], reserved[2])
    sent.job_record(replacing).put(job, job.in_state("running", run_id="r"), 30)  # as a worker does at its start
    assert replacing.delay(1).id == results[2].id


def test_submission_after_a_start_or_a_revocation_is_a_new_job(sent: Sent) -> None:
    """[C16] With ``unique_until="start"`` a running job has a record of its own. [C9] [K5] The message of a revoked job
    may never reach a worker, so each duplicate checks the job's result."""
    task = sent.task(unique_until="start")
    first = task.delay(1)
    assert task.delay(1).id == first.id
    sent.job_record(task).drop(sent.job(task))  # as a worker does at its start
    second = task.delay(1)
    assert task.delay(1).id == second.id
    task.backend.mark_as_revoked(second.id, "by hand")
    third = task.delay(1)
    assert len({first.id, second.id, third.id}) == 3
    assert not third.deduplicated


@pytest.mark.parametrize(
    ("first", "second", "eta", "expires"),
    [
        ({"expires": 60}, {}, None, None),
        ({"countdown": 600}, {}, None, None),
        ({"countdown": 600, "expires": 900}, {"countdown": 60, "expires": 120}, 60, 900),
        ({"countdown": 60, "expires": 120}, {"countdown": 600, "expires": 900}, 60, 900),
        ({"expires": 60}, {"expires": 60}, 0, 0),
        ({}, {"countdown": 60, "expires": 120}, 0, 0),
    ],
)
def test_duplicate_with_a_later_expiry_or_an_earlier_eta_is_sent_again(
    sent: Sent, first: dict[str, Any], second: dict[str, Any], eta: int | None, expires: int | None
) -> None:
    """[K7] With the id of the job: its first message would start later, or expire."""
    task = sent.task()
    begin = datetime.now(UTC)
    one, two = task.apply_async((1,), **first), task.apply_async((1,), **second)
    assert (one.id, two.deduplicated) == (two.id, True)
    assert sent.ids_of(task) == [one.id] * (1 if eta == 0 else 2)
    if eta != 0:
        end = datetime.now(UTC)
        for name, seconds in (("eta", eta), ("expires", expires)):
            moment = sent.messages[-1][name]
            assert (moment is None) == (seconds is None), name
            assert seconds is None or begin <= datetime.fromisoformat(moment) - timedelta(seconds=seconds) <= end, name
        job, (old, new) = sent.job(task), [header["reserved"] for header in sent.headers[-2:]]
        assert (job.state, job.id, job.first_reserved, job.reserved) == ("queued", one.id, old, new)


def test_duplicate_with_other_times_of_a_job_with_callbacks_has_its_own_message(sent: Sent) -> None:
    """[K7] A second message of the job would lack its callbacks; the duplicate's own message follows the job."""
    task = sent.task()
    for first, second, how in [
        ({"link": task.si(3), "expires": 60}, {}, "follow"),
        ({"link": task.si(3), "countdown": 60}, {}, "line"),
        ({"countdown": 60}, {"link": task.si(3)}, "line"),
    ]:
        number = len(sent.ids)
        one, two = task.apply_async((number,), **first), task.apply_async((number,), **second)
        assert one.id != two.id
        assert sent.headers[-1][how] in (one.id, True)


def test_idempotency_key_with_other_arguments_raises_IdempotencyKeyReused(sent: Sent) -> None:
    task = sent.task()
    first = task.apply_async((1,), idempotency_key="order-7")
    assert task.apply_async((1,), idempotency_key="order-7").id == first.id
    assert task.delay(1).id != first.id
    with pytest.raises(IdempotencyKeyReused, match="other arguments") as caught:
        task.apply_async((2,), idempotency_key="order-7")
    assert "order-7" not in str(caught.value)
    assert len(sent.ids) == 2


@pytest.mark.parametrize("how", ["existing", "queue"])
def test_job_that_submits_itself_twice_has_one_successor(sent: Sent, how: str) -> None:
    """[C17] [C47] Unless each submission counts. A message with a given id is sent in any case. [K5] A revoked
    successor doesn't count."""
    task = sent.task(lock_on_duplicate=how)
    run = run_of(task)
    task.push_request(id="id", called_directly=False, lock_run=run)
    first, second = task.delay(1), task.delay(1)
    third = task.apply_async((1,), task_id="promised")
    assert run.successor.id == first.id
    assert second.deduplicated is (how == "existing")
    assert third.id == "promised" == sent.ids[-1]
    assert len(sent.ids) == (2 if how == "existing" else 3)
    assert [header.get("after") for header in sent.headers] == ["r"] * len(sent.ids)
    assert sent.headers[-1].get("follow") == (first.id if how == "existing" else None)
    task.backend.mark_as_revoked(first.id, "by hand")
    assert not task.delay(1).deduplicated
    assert run.successor.id == (sent.ids[-1] if how == "existing" else first.id)


def test_duplicates_wait_for_a_slow_result_backend_one_at_a_time(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """[K5] Once in 30 s; other submissions during the wait, and later ones, return the queued job."""
    task = sent.task()
    first, asked = task.delay(1), []

    def get_state(id: str) -> str:
        asked.append(id)
        clock.advance(took)
        if len(asked) == 1:
            assert task.delay(1).id == first.id
        return "PENDING"

    monkeypatch.setattr("celery_locks.task_settings._unanswered_since", {})
    monkeypatch.setattr(task.backend, "get_state", get_state)
    with ManualClock() as clock:
        for took, after, times in ((5.0, 0, 1), (5.0, 28, 1), (0.9, 2, 2), (0.9, 0, 3)):
            clock.advance(after)
            assert task.delay(1).id == first.id
            assert len(asked) == times, (took, after)


def test_done_job_without_a_stored_result_counts_for_a_minute_only(sent: Sent) -> None:
    """[K2] Its process died before it stored the result."""
    task = sent.task(idempotency_ttl=900)
    for age, pid, answers in ((30, "p", True), (90, "p", False), (90, "", True)):
        done = Job("done", f"{age}{pid}", process=pid, retention=900, ttl=900, outcome="success", last_success=7)
        sent.job_record(task).put(sent.job_record(task).read(), done, 900 - age)
        assert task.delay(1).deduplicated is answers, (age, pid)
        assert sent.job(task).last_success == 7


def test_duplicate_is_no_child_of_its_submitter(sent: Sent) -> None:
    """[C57] The existing job may be an ancestor of the submitter."""
    child = sent.task()
    children: list[str] = []

    def parent(self: Any) -> None:
        child.delay(1)
        child.delay(1)
        children.extend(result.id for result in self.request.children)

    sent.app.task(parent, bind=True, name="parent", shared=False, lazy=False).apply(throw=True)
    assert children == sent.ids
    assert len(children) == 1


def test_duplicate_in_a_canvas_is_handled_by_lock_canvas(sent: Sent) -> None:
    """[C19] Without results it runs after the first job."""
    task, without_results = sent.task(), sent.task(ignore_result=True)
    first = task.delay(1)
    chain(task.s(1), task.si(2)).apply_async()
    task.apply_async((1,), link=task.si(3))
    assert [header.get("follow") for header in sent.headers] == [None, first.id, first.id]
    first = without_results.delay(1)
    assert without_results.apply_async((1,), link=without_results.si(3)).id != first.id
    assert sent.headers[-1].get("line") is True
    assert "follow" not in sent.headers[-1]
    strict = sent.task(lock_canvas="fail")
    strict.delay(1)
    with pytest.raises(DuplicateTask):
        chord([strict.s(1), strict.s(1)], strict.si(9)).apply_async()


# Without a lock


@pytest.mark.django_db(transaction=True)
def test_submission_on_commit_is_sent_after_commit_and_not_after_rollback(sent: Sent) -> None:
    """[C15] [D16] A rollback leaves no record."""
    task = sent.task()
    with transaction.atomic():
        task.delay_on_commit(1)
        transaction.set_rollback(True)
    assert sent.ids == []
    with transaction.atomic():
        task.delay_on_commit(1)
        task.apply_async_on_commit((1,))
        assert sent.ids == []
    assert len(sent.ids) == 1


def test_celerys_own_tasks_are_no_jobs(redis_server: RedisServer, settings: Any) -> None:
    """Although the app's default task class applies to them."""
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
    """[C48] It runs in the caller, without a lock."""
    settings.REDIS_LOCKS = DOWN
    sent.app.conf.task_always_eager = True
    for base in (SingletonTask, IdempotentTask):
        task = sent.task(base, body=double)
        results = [task.delay(4), task.apply_async((4,), idempotency_key="k"), task.s(4).apply_async()]
        assert [result.get() for result in results] == [8, 8, 8]
        assert task.apply((4,)).get() == task(4) == 8


# Failures


@pytest.mark.parametrize("replaces", [False, True])
def test_message_that_cannot_be_encoded_keeps_the_previous_record(sent: Sent, replaces: bool) -> None:
    """[C13] The error doesn't block the key."""
    task = sent.task(lock_key="k", typing=False, lock_on_duplicate="replace")
    first = task.delay(1) if replaces else None
    with pytest.raises(EncodeError):
        task.delay(object())
    job = sent.job_record(task).read()
    assert (job and (job.state, job.id)) == (first and ("queued", first.id))
    assert not task.delay(1).deduplicated


def test_message_that_the_broker_may_have_taken_is_sent_again_with_its_id(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C14] A worker recognizes the copy by its id. [C17] A submission with a given id replaces it."""
    failures = [OperationalError("timeout"), OSError("reset"), KeyboardInterrupt()]
    cases = [(failure, after, promised) for failure in failures for after in (False, True) for promised in (None, "id")]
    for failure, after, promised in cases:
        task = sent.task()
        repair = sent.fail(monkeypatch, failure, after=after)
        with pytest.raises(type(failure)):
            task.delay(1)
        repair()
        first, second = sent.job(task), task.apply_async((1,), task_id=promised)
        assert sent.ids_of(task) == [first.id] * after + [promised or first.id], failure
        job = sent.job(task)
        assert (job.state, job.id, job.first_reserved) == ("queued", second.id, first.reserved), failure
        assert task.delay(1).id == second.id
        assert len(sent.ids_of(task)) == 1 + after, failure


def test_run_keeps_its_key_for_a_successor_only_if_that_was_sent(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C13] Otherwise the key is free when the run ends."""
    task = sent.task()
    run = run_of(task)
    repair = sent.fail(monkeypatch, OperationalError("timeout"), after=False)
    task.push_request(id="id", called_directly=False, lock_run=run)
    with pytest.raises(OperationalError):
        task.delay(1)
    assert run.successor is None
    repair()
    result = task.apply_async((1,), countdown=5)
    assert (run.successor.id, run.successor.retries) == (result.id, 0)
    assert run.successor.times.message_ttl(task) == pytest.approx(86_405, abs=1)


@pytest.mark.parametrize("base", [SingletonTask, IdempotentTask])
def test_store_that_is_down_delays_one_submission_only(sent: Sent, settings: Any, base: type) -> None:
    """[K3] [C55] The first detects it within `BACKEND_WAIT`; the others are sent at once without a record, or raise."""
    backend_wait = 0.3
    settings.REDIS_LOCKS = {"default": {"LOCATION": f"redis://127.0.0.1:{free_port()}/0", "BACKEND_WAIT": backend_wait}}
    task = sent.task(base)
    times = [clock.now()]
    for _ in range(3):
        with suppress(LockBackendError):
            task.delay()
        times.append(clock.now())
    assert backend_wait <= times[1] - times[0] < 2 * backend_wait + BUSY
    assert times[3] - times[1] < 2 * backend_wait
    assert len(sent.ids) == (3 if base is SingletonTask else 0)
    assert not any("reserved" in headers for headers in sent.headers)


def test_store_that_lost_its_scripts_or_its_data_takes_submissions(sent: Sent) -> None:
    """[C53] As after a failover. [C52] The job's message is still in the queue, and a worker adopts it."""
    task = sent.task()
    first = task.delay(1)
    sent.redis.script_flush()
    assert task.delay(1).deduplicated
    with redis.Redis.from_url(sent.app.conf.broker_url.rpartition("/")[0] + "/2") as store:
        store.flushdb()
    second = task.delay(1)
    assert sent.ids == [first.id, second.id]
    assert not second.deduplicated


# Ticks of beat


def test_tick_never_raises(sent: Sent, settings: Any) -> None:
    """[C37] Otherwise beat would log an error, and the tick would be lost."""
    task = sent.task(lock_on_duplicate="raise", lock_on_backend_error="closed")
    first = sent.tick(task)
    assert sent.tick(task).id == first.id
    with pytest.raises(DuplicateTask):
        task.delay()
    settings.REDIS_LOCKS = DOWN
    sent.tick(task)
    assert len(sent.ids) == 2


def test_claim_of_a_tick_that_was_not_sent_is_returned(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[beat.Claim] = []
    monkeypatch.setattr(beat.Claim, "give_back", lambda claim: given.append(claim))  # noqa: PLW0108 - a method
    repair = sent.fail(monkeypatch, OperationalError("timeout"), after=False)
    with pytest.raises(OperationalError):
        sent.tick(sent.task())
    repair()
    assert len(given) == 1
