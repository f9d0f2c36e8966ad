"""Submissions on a real broker that no worker listens to: what is sent, and what the record says."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery, chain, chord, group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from kombu.exceptions import EncodeError, OperationalError

from celery_locks import (
    DuplicateTask,
    IdempotencyKeyReused,
    IdempotentTask,
    SingletonTask,
    beat,
    counters,
    place,
    submission,
)
from celery_locks.decisions import Verdict, at_start
from celery_locks.job import Job, read
from celery_locks.keys import key_of
from celery_locks.message import HEADER, Header, Message, header_in
from celery_locks.place import place_of
from django_redis_locks import LockBackendError, LockKeyError, locks
from tools.redis_server import RedisServer

BOTH = pytest.mark.parametrize("base", [SingletonTask, IdempotentTask])


class Sent:
    """An app, and the messages that it sent."""

    def __init__(self, server: RedisServer, settings: Any) -> None:
        settings.REDIS_LOCKS = {"default": {"LOCATION": server.url(2)}}
        self.app = Celery("sent", broker=server.url(0), backend="cache+memory://", set_as_current=False)
        # without a pool each connection is closed, not left to the collector, and so to another test
        self.app.conf.update(task_default_queue=uuid.uuid4().hex, broker_pool_limit=0)
        self.redis = redis.Redis.from_url(server.url(0))
        self.names = (f"task{number}-{uuid.uuid4().hex[:6]}" for number in range(100))

    def task(self, base: type = IdempotentTask, body: Any = None, **options: Any) -> Any:
        def run(x=1, y=2): ...

        name = options.pop("name", None) or next(self.names)
        task = self.app.task(body or run, base=base, name=name, shared=False, **options)
        self.app.finalize()
        return self.app.tasks[task.name]

    @property
    def messages(self) -> list[dict[str, Any]]:
        queue = self.app.conf.task_default_queue
        return [json.loads(text)["headers"] for text in reversed(self.redis.lrange(queue, 0, -1))]

    @property
    def ids(self) -> list[str]:
        return [message["id"] for message in self.messages]

    def job(self, task: Any, *args: Any) -> Job | None:
        header = next((m[HEADER] for m in self.messages if m["task"] == task.name), None)
        key = header["key"] if header else submission.key_of(task, args, {}, None)[0]
        return place_of(task, key).look()


@pytest.fixture
def sent(redis_server: RedisServer, settings: Any) -> Iterator[Sent]:
    sent = Sent(redis_server, settings)
    yield sent
    sent.redis.delete(sent.app.conf.task_default_queue)
    sent.redis.close()
    sent.app.close()


@BOTH
def test_twice_is_one_message(sent: Sent, base: type, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "celery_locks")
    task = sent.task(base)
    first, second, other = task.delay(1), task.delay(x=1), task.delay(2)
    assert sent.ids == [first.id, other.id]
    assert (second.id, first.deduplicated, second.deduplicated, other.deduplicated) == (first.id, False, True, False)
    assert counters()[task.name, "duplicate_suppressed"] == 1
    assert f"a duplicate: {first.id} is queued for " in caplog.text


def test_the_message_carries_the_key(sent: Sent) -> None:
    """[C42] No worker has to compute it; and the record names the task."""
    task = sent.task()
    result = task.apply_async((1,), headers={"mine": 7})
    (message,) = sent.messages
    job = sent.job(task)
    assert job is not None
    assert (job.state, job.id) == ("queued", result.id)
    assert message[HEADER] == {"v": 1, "key": message[HEADER]["key"], "id": result.id, "reserved": job.reserved}
    assert message["mine"] == 7


def test_many_threads_at_once(sent: Sent) -> None:
    task = sent.task()
    barrier = threading.Barrier(20)
    results: list[Any] = []

    def submit() -> None:
        barrier.wait()
        results.append(task.delay(1))

    threads = [threading.Thread(target=submit) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent.ids == [results[0].id]
    assert {result.id for result in results} == {results[0].id}
    assert sum(result.deduplicated for result in results) == 19


def test_from_a_coroutine(sent: Sent) -> None:
    task = sent.task()

    async def main() -> list[Any]:
        with pytest.raises(SynchronousOnlyOperation, match="async context"):
            task.delay(1)
        return await asyncio.gather(*[task.adelay(1) for _ in range(5)], task.aapply_async((1,), {"y": 2}))

    results = asyncio.run(main())
    assert sent.ids == [results[0].id]
    assert {result.id for result in results} == {results[0].id}


# What a duplicate is answered with


def test_raise(sent: Sent) -> None:
    task = sent.task(lock_on_duplicate="raise")
    first = task.delay()
    with pytest.raises(DuplicateTask, match="is queued already") as caught:
        task.delay()
    assert (caught.value.task_id, caught.value.state, caught.value.name) == (first.id, "queued", task.name)
    assert "job:" not in str(caught.value)


def test_queue(sent: Sent) -> None:
    task = sent.task(lock_on_duplicate="queue")
    assert len({task.delay().id for _ in range(3)}) == 3 == len(sent.ids)


def test_replace(sent: Sent) -> None:
    """Debounced: the last one counts. The messages before it find that they are replaced."""
    task = sent.task(lock_on_duplicate="replace")
    results = [task.apply_async((1,), countdown=60) for _ in range(3)]
    assert not any(result.deduplicated for result in results)
    job = sent.job(task)
    assert job is not None
    reserved = [message[HEADER]["reserved"] for message in sent.messages]
    assert (job.id, job.first, job.reserved) == (results[2].id, reserved[0], reserved[2])


def test_a_running_job_is_not_replaced(sent: Sent) -> None:
    task = sent.task(lock_on_duplicate="replace")
    first = task.delay(1)
    runs(sent, task)
    assert task.delay(1).id == first.id


def runs(sent: Sent, task: Any) -> None:
    job = sent.job(task)
    assert job is not None
    place_of(task, sent.messages[0][HEADER]["key"]).put(job, job.turned("running", run="r"), 30)


def ends(sent: Sent, task: Any, outcome: str, **about: Any) -> None:
    job = sent.job(task)
    assert job is not None
    done = Job("done", job.id, outcome=outcome, keep=60, **about)
    place_of(task, sent.messages[0][HEADER]["key"]).put(job, done, 60)


# Until when it is a duplicate


def test_a_failed_job_is_submitted_again(sent: Sent) -> None:
    """[C60]"""
    task = sent.task(idempotency_ttl=30)
    first = task.delay(1)
    ends(sent, task, "failure")
    assert task.delay(1).id != first.id


def test_a_result_is_the_answer_for_a_while(sent: Sent) -> None:
    task = sent.task(idempotency_ttl=30)
    first = task.delay(1)
    ends(sent, task, "success", ttl=30)
    assert task.delay(1).id == first.id
    sent.redis.delete(sent.app.conf.task_default_queue)
    ends_later = sent.task(idempotency_ttl=0)
    second = ends_later.delay(1)
    ends(sent, ends_later, "success")
    assert ends_later.delay(1).id != second.id


def test_until_its_start(sent: Sent) -> None:
    """[C16] What runs has a record of its own: a submission is another job then."""
    task = sent.task(unique_until="start")
    first = task.delay(1)
    assert task.delay(1).id == first.id
    place = place_of(task, sent.messages[0][HEADER]["key"])
    job = place.look()
    assert job is not None
    place.drop(job)  # as a worker does at its start
    assert task.delay(1).id != first.id


def test_at_rest(sent: Sent) -> None:
    """[C34] A job that was short is not run by the next tick of another beat."""
    task = sent.task(SingletonTask, lock_min_hold=30)
    first = task.delay(1)
    ends(sent, task, "success", rest=30)
    assert task.delay(1).id == first.id


# Keys of callers


def test_an_idempotency_key(sent: Sent) -> None:
    task = sent.task()
    first = task.apply_async((1,), idempotency_key="order-7")
    assert task.apply_async((1,), idempotency_key="order-7").id == first.id
    assert task.delay(1).id != first.id
    with pytest.raises(IdempotencyKeyReused, match="other arguments") as caught:
        task.apply_async((2,), idempotency_key="order-7")
    assert "order-7" not in str(caught.value)
    assert len(sent.ids) == 2


def test_another_thing_under_the_key(sent: Sent) -> None:
    task = sent.task(lock_key="{x}")
    with locks.lock(f"job:{task.name}:1"), pytest.raises(LockKeyError):
        task.delay(1)
    assert sent.ids == []


# What goes wrong


def test_what_can_not_be_sent_frees_the_key(sent: Sent) -> None:
    """[C13]"""
    task = sent.task(lock_key="k", typing=False)
    with pytest.raises(EncodeError):
        task.delay(object())
    assert sent.job(task) is None
    assert not task.delay(1).deduplicated


def broken(sent: Sent, monkeypatch: pytest.MonkeyPatch, failure: BaseException, *, after: bool) -> Callable[[], None]:
    """The broker fails, before it took the message or after it did."""
    plain = sent.app.send_task

    def send(*args: Any, **kwargs: Any) -> Any:
        if after:
            plain(*args, **kwargs)
        raise failure

    monkeypatch.setattr(sent.app, "send_task", send)
    return lambda: monkeypatch.setattr(sent.app, "send_task", plain)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("failure", [OperationalError("timeout"), OSError("reset"), KeyboardInterrupt()], ids=repr)
def test_a_broker_that_did_not_say(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, failure: BaseException, after: bool
) -> None:
    """[C14] The next one sends the same message, which a worker tells from another job by its id."""
    task = sent.task()
    repair = broken(sent, monkeypatch, failure, after=after)
    with pytest.raises(type(failure)):
        task.delay(1)
    repair()
    second = task.delay(1)
    assert sent.ids == [second.id] * (1 + after)
    job = sent.job(task)
    assert job is not None
    assert (job.state, job.id) == ("queued", second.id)
    assert task.delay(1).id == second.id
    assert len(sent.ids) == 1 + after


@pytest.mark.parametrize("again", [True, False], ids=["retry", "itself"])
def test_what_was_not_sent_inherits_nothing(sent: Sent, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """[C13] The key of the run that tried to send it is free when that ends."""
    task = sent.task()
    header = Header(key_of(task, (1,), {}, None)[0], "id")
    run = SimpleNamespace(id="r", header=header, heir=None)
    options = {"task_id": "id", "headers": {HEADER: header.written()}, "retries": 1, "countdown": 5} if again else {}
    repair = broken(sent, monkeypatch, OperationalError("timeout"), after=False)
    task.push_request(id="id", called_directly=False, lock_run=run)
    try:
        with pytest.raises(OperationalError):
            task.apply_async((1,), **options)
        assert run.heir is None
        repair()
        result = task.apply_async((1,), **options)
        assert run.heir is not None
        assert (run.heir.id, run.heir.tries, run.heir.patience) == (result.id, int(again), 86_400 + 5.0 * again)
        assert sent.messages[0][HEADER].get("after") == (None if again else "r")
    finally:
        task.pop_request()


@pytest.mark.parametrize("how", ["existing", "queue"])
def test_a_job_that_submits_itself_twice(sent: Sent, how: str) -> None:
    """[C17] [C47] One is enough, unless each counts; and one that is counted on is sent."""
    task = sent.task(lock_on_duplicate=how)
    run = SimpleNamespace(id="r", header=Header(key_of(task, (1,), {}, None)[0], "id"), heir=None)
    task.push_request(id="id", called_directly=False, lock_run=run)
    try:
        first, second = task.delay(1), task.delay(1)
        third = task.apply_async((1,), task_id="promised")
    finally:
        task.pop_request()
    assert run.heir is not None
    assert run.heir.id == first.id
    assert second.deduplicated is (how == "existing")
    assert third.id == "promised" == sent.ids[-1]
    assert len(sent.ids) == (2 if how == "existing" else 3)
    assert [header.get("after") for header in headers(sent)] == ["r"] * len(sent.ids)
    assert headers(sent)[-1].get("follow") == (first.id if how == "existing" else None)


def test_who_is_counted_on_keeps_its_id(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C14] [C17] It doesn't send the message of the one that perhaps was sent, but replaces it."""
    task = sent.task()
    repair = broken(sent, monkeypatch, OperationalError("timeout"), after=True)
    with pytest.raises(OperationalError):
        task.delay(1)
    repair()
    second = task.apply_async((1,), task_id="promised")
    job = sent.job(task)
    assert job is not None
    assert (second.id, job.id, sent.ids[-1]) == ("promised", "promised", "promised")
    first = sent.messages[0]
    assert at_start(job, Message(first["id"], header=header_in(first, first["id"]))) is Verdict.SUPERSEDED


def test_a_replacement_that_can_not_be_sent_leaves_the_first_one(sent: Sent) -> None:
    task = sent.task(lock_on_duplicate="replace", lock_key="k", typing=False)
    first = task.delay(1)
    with pytest.raises(EncodeError):
        task.delay(object())
    job = sent.job(task)
    assert job is not None
    assert (job.state, job.id) == ("queued", first.id)


def test_who_dies_while_he_sends(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C13] Nobody is told of a message that was never sent: the next one waits for the end of the reservation."""
    monkeypatch.setattr(submission, "SENDING", 0.3)
    task = sent.task()
    key = submission.key_of(task, (1,), {}, None)[0]
    place_of(task, key).put(None, Job("reserved", "dead"), 0.3)
    result = task.delay(1)
    assert sent.ids == [result.id]
    assert not result.deduplicated


def test_who_takes_long_to_send(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that had the message before its confirmation keeps the key."""
    task = sent.task()
    plain = sent.app.send_task

    def send(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        runs(sent, task)
        return result

    monkeypatch.setattr(sent.app, "send_task", send)
    first = task.delay(1)
    job = sent.job(task)
    assert job is not None
    assert job.state == "running"
    assert task.delay(1).id == first.id


DOWN = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0}}


def test_the_store_is_down(sent: Sent, settings: Any) -> None:
    """[C55] A tick isn't lost: the worker decides. Who asked for one job only is told that it can't be promised."""
    settings.REDIS_LOCKS = DOWN
    tick, order = sent.task(SingletonTask), sent.task(IdempotentTask)
    result = tick.delay()
    assert sent.ids == [result.id]
    assert "reserved" not in sent.messages[0][HEADER]
    with pytest.raises(LockBackendError):
        order.delay()
    assert len(sent.ids) == 1


def test_a_revoked_message_is_no_job(sent: Sent) -> None:
    """[C9] It may never reach a worker."""
    task = sent.task()
    first = task.delay(1)
    task.backend.mark_as_revoked(first.id, "by hand")
    submission._looked.clear()
    second = task.delay(1)
    assert second.id != first.id
    assert not second.deduplicated


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({}, 86_000, 86_400),
        ({"countdown": 3600}, 89_000, 90_000),
        ({"expires": 60}, 50, 60),
        ({"expires": 60, "countdown": 600}, 50, 60),
        ({"task": 60}, 50, 60),
        ({"task": 60, "expires": 90}, 80, 90),
        ({"task": 60, "expires": None}, 86_000, 86_400),
    ],
    ids=str,
)
def test_for_how_long_it_is_queued(sent: Sent, options: dict[str, float], least: float, most: float) -> None:
    """[C3] [C11] [C12] A message that is lost doesn't block its key for ever."""
    task = sent.task(expires=options.get("task"))
    task.apply_async((1,), **{name: value for name, value in options.items() if name != "task"})
    job = sent.job(task)
    assert job is not None
    assert least < job.known.lease_left <= most


# Ticks


@pytest.fixture
def tick(sent: Sent) -> Iterator[Callable[[Any], Any]]:
    """Submits a task as beat does."""

    def tick(task: Any) -> Any:
        token = beat._current.set(beat.Tick(f"entry {uuid.uuid4().hex}", task.name, 60.0, None, uuid.uuid4().hex))
        try:
            return task.apply_async()
        finally:
            beat._current.reset(token)

    yield tick
    beat._down.clear()


def test_a_tick_never_raises(sent: Sent, tick: Callable[[Any], Any], settings: Any) -> None:
    """[C37] Beat would log an error, and the tick be lost."""
    task = sent.task(lock_on_duplicate="raise", lock_on_backend_error="closed")
    first = tick(task)
    assert tick(task).id == first.id
    with pytest.raises(DuplicateTask):
        task.delay()
    settings.REDIS_LOCKS = DOWN
    tick(task)
    assert len(sent.ids) == 2


def test_a_tick_that_was_not_sent_is_given_back(
    sent: Sent, tick: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = sent.task()
    given: list[beat.Claim] = []
    monkeypatch.setattr(beat.Claim, "give_back", lambda claim: given.append(claim))  # noqa: PLW0108 - a method
    repair = broken(sent, monkeypatch, OperationalError("timeout"), after=False)
    with pytest.raises(OperationalError):
        tick(task)
    repair()
    assert len(given) == 1


# The store


def test_the_store_lost_its_data(sent: Sent) -> None:
    """[C52] The job can be submitted again; its message is in the queue still, and a worker adopts it."""
    task = sent.task()
    first = task.delay(1)
    with redis.Redis.from_url(sent.app.conf.broker_url.rpartition("/")[0] + "/2") as store:
        store.flushdb()
    second = task.delay(1)
    assert sent.ids == [first.id, second.id]
    assert not second.deduplicated


def test_the_store_forgot_its_scripts(sent: Sent) -> None:
    """[C53] As after a failover."""
    task = sent.task()
    task.delay(1)
    sent.redis.script_flush()
    assert task.delay(1).deduplicated
    assert not task.delay(2).deduplicated


def test_nothing_is_searched_for(sent: Sent) -> None:
    """[C54] However many jobs there are."""
    task = sent.task()
    sent.redis.config_resetstat()
    task.delay(1)
    task.delay(1)
    used = {name.removeprefix("cmdstat_") for name in sent.redis.info("commandstats")}
    assert "evalsha" in used
    assert not {"keys", "scan", "zscan", "hscan", "smembers"} & used


def test_a_duplicate_is_no_child_of_its_submitter(sent: Sent) -> None:
    """[C57] It may be its own ancestor."""
    child = sent.task()
    children: list[str] = []

    def parent(self: Any) -> None:
        child.delay(1)
        child.delay(1)
        children.extend(result.id for result in self.request.children)

    submitter = sent.app.task(parent, bind=True, name="parent", shared=False)
    sent.app.tasks[submitter.name].apply(throw=True)
    assert children == sent.ids
    assert len(children) == 1


# Transactions


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_is_rolled_back_leaves_nothing(sent: Sent) -> None:
    """[C15] [D16]"""
    task = sent.task()
    with transaction.atomic():
        task.delay_on_commit(1)
        transaction.set_rollback(True)
    assert sent.ids == []
    assert not connection.in_atomic_block
    assert not task.delay(1).deduplicated


@pytest.mark.django_db(transaction=True)
def test_on_commit(sent: Sent) -> None:
    task = sent.task()
    with transaction.atomic():
        task.delay_on_commit(1)
        task.apply_async_on_commit((1,))
        assert sent.ids == []
    assert len(sent.ids) == 1


# Canvas


def headers(sent: Sent) -> list[dict[str, Any]]:
    return [message[HEADER] for message in sent.messages]


def test_a_member_of_a_group_is_never_dropped(sent: Sent) -> None:
    """[C17] Its id is promised; it follows the first one."""
    task = sent.task()
    result = group(task.s(1) for _ in range(3)).apply_async()
    assert sent.ids == [child.id for child in result.children]
    assert [header.get("follow") for header in headers(sent)] == [None, sent.ids[0], sent.ids[0]]


def test_the_first_step_of_a_chain_and_a_callback(sent: Sent) -> None:
    """[C19]"""
    task = sent.task()
    first = task.delay(1)
    chain(task.s(1), task.si(2)).apply_async()
    task.apply_async((1,), link=task.si(3))
    assert [header.get("follow") for header in headers(sent)] == [None, first.id, first.id]


def test_without_results_it_runs_after_the_first_one(sent: Sent) -> None:
    task = sent.task(ignore_result=True)
    first = task.delay(1)
    second = task.apply_async((1,), link=task.si(3))
    assert second.id != first.id
    assert headers(sent)[1].get("line") is True
    assert "follow" not in headers(sent)[1]


def test_a_canvas_can_fail_instead(sent: Sent) -> None:
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


@BOTH
def test_eager_is_plain(sent: Sent, settings: Any, base: type) -> None:
    """[C48] Tests of a project need no server."""
    settings.REDIS_LOCKS = DOWN
    sent.app.conf.task_always_eager = True
    task = sent.task(base, body=double)
    results = [task.delay(4), task.apply_async((4,), idempotency_key="k"), task.s(4).apply_async()]
    assert [result.get() for result in results] == [8, 8, 8]
    assert task.apply((4,)).get() == task(4) == 8


def double(x: int) -> int:
    return 2 * x


def test_reading_a_place_of_nothing(sent: Sent) -> None:
    assert read(None) is None
    assert place.place_of(sent.task(), "job:nothing").look() is None
