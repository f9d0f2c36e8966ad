"""Submissions when the broker, the store or the submitting process fails."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from kombu.exceptions import EncodeError, OperationalError

from celery_locks import DuplicateTask, IdempotentTask, SingletonTask, beat, submission
from celery_locks.decisions import Verdict, at_start
from celery_locks.job import Job
from celery_locks.message import HEADER, Message, header_in
from django_redis_locks import LockBackendError
from tests.unit.celery_locks.sent_messages import DOWN, Sent, run_of

# The message


@pytest.mark.parametrize("replaces", [False, True])
def test_message_that_cannot_be_encoded_leaves_the_record_as_it_was(sent: Sent, replaces: bool) -> None:
    """[C13]"""
    task = sent.task(lock_key="k", typing=False, lock_on_duplicate="replace")
    first = task.delay(1) if replaces else None
    with pytest.raises(EncodeError):
        task.delay(object())
    job = sent.found(task)
    assert (job and (job.state, job.id)) == (first and ("queued", first.id))
    assert not task.delay(1).deduplicated


def test_message_that_the_broker_may_have_taken_is_sent_again_with_its_id(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C14] A worker tells it from another job by its id."""
    failures = [OperationalError("timeout"), OSError("reset"), KeyboardInterrupt()]
    for failure, after in [(failure, after) for failure in failures for after in (False, True)]:
        task = sent.task()
        repair = sent.broken(monkeypatch, failure, after=after)
        with pytest.raises(type(failure)):
            task.delay(1)
        repair()
        second = task.delay(1)
        assert sent.ids_of(task) == [second.id] * (1 + after), failure
        assert (sent.job(task).state, sent.job(task).id) == ("queued", second.id), failure
        assert task.delay(1).id == second.id
        assert len(sent.ids_of(task)) == 1 + after, failure


def test_promised_id_replaces_the_message_that_the_broker_may_have_taken(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C14] [C17]"""
    task = sent.task()
    repair = sent.broken(monkeypatch, OperationalError("timeout"), after=True)
    with pytest.raises(OperationalError):
        task.delay(1)
    repair()
    second = task.apply_async((1,), task_id="promised")
    job = sent.job(task)
    assert (second.id, job.id, sent.ids[-1]) == ("promised", "promised", "promised")
    first = sent.messages[0]
    assert at_start(job, Message(first["id"], header=header_in(first, first["id"]))) is Verdict.SUPERSEDED


@pytest.mark.parametrize("again", [True, False], ids=["retry", "itself"])
def test_run_keeps_its_key_for_a_successor_only_if_that_was_sent(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """[C13] Otherwise the key is free when the run ends."""
    task = sent.task()
    run = run_of(task, 1)
    headers = {HEADER: run.header.written()}
    options = {"task_id": "id", "headers": headers, "retries": 1, "countdown": 5} if again else {}
    repair = sent.broken(monkeypatch, OperationalError("timeout"), after=False)
    task.push_request(id="id", called_directly=False, lock_run=run)
    with pytest.raises(OperationalError):
        task.apply_async((1,), **options)
    assert run.heir is None
    repair()
    result = task.apply_async((1,), **options)
    assert run.heir is not None
    assert (run.heir.id, run.heir.tries, run.heir.patience) == (result.id, int(again), 86_400 + 5.0 * again)
    assert sent.headers[0].get("after") == (None if again else "r")


# The submitting process


def test_submission_waits_for_the_end_of_a_dead_submitters_reservation(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C13] No result is returned whose message was never sent."""
    monkeypatch.setattr(submission, "SENDING", 0.3)
    task = sent.task()
    sent.place(task, 1).put(None, Job("reserved", "dead"), 0.3)
    result = task.delay(1)
    assert sent.ids == [result.id]
    assert not result.deduplicated


def test_confirmation_after_the_start_leaves_the_key_to_the_worker(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    task = sent.task()
    plain = sent.app.send_task

    def send(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        sent.runs(task)
        return result

    monkeypatch.setattr(sent.app, "send_task", send)
    first = task.delay(1)
    assert sent.job(task).state == "running"
    assert task.delay(1).id == first.id


# The store


def test_store_that_is_down_lets_a_singleton_be_sent_and_an_idempotent_task_raise(sent: Sent, settings: Any) -> None:
    """[C55] The worker decides about a singleton; that a job runs once can't be promised."""
    settings.REDIS_LOCKS = DOWN
    result = sent.task(SingletonTask).delay()
    assert sent.ids == [result.id]
    assert "reserved" not in sent.headers[0]
    with pytest.raises(LockBackendError):
        sent.task(IdempotentTask).delay()
    assert len(sent.ids) == 1


def test_store_that_lost_its_scripts_or_its_data_takes_submissions(sent: Sent) -> None:
    """[C53] As after a failover. [C52] The job's message is in the queue still, and a worker adopts it."""
    task = sent.task()
    first = task.delay(1)
    sent.redis.script_flush()
    assert task.delay(1).deduplicated
    with redis.Redis.from_url(sent.app.conf.broker_url.rpartition("/")[0] + "/2") as store:
        store.flushdb()
    second = task.delay(1)
    assert sent.ids == [first.id, second.id]
    assert not second.deduplicated


def test_submission_sends_no_command_that_searches(sent: Sent) -> None:
    """[C54] However many jobs there are."""
    task = sent.task()
    sent.redis.config_resetstat()
    task.delay(1)
    task.delay(1)
    used = {name.removeprefix("cmdstat_") for name in sent.redis.info("commandstats")}
    assert "evalsha" in used
    assert not {"keys", "scan", "zscan", "hscan", "smembers"} & used


# Ticks of beat


def test_tick_never_raises(sent: Sent, settings: Any) -> None:
    """[C37] Beat would log an error, and the tick be lost."""
    task = sent.task(lock_on_duplicate="raise", lock_on_backend_error="closed")
    first = sent.tick(task)
    assert sent.tick(task).id == first.id
    with pytest.raises(DuplicateTask):
        task.delay()
    settings.REDIS_LOCKS = DOWN
    sent.tick(task)
    assert len(sent.ids) == 2


def test_tick_that_was_not_sent_is_given_back(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[beat.Claim] = []
    monkeypatch.setattr(beat.Claim, "give_back", lambda claim: given.append(claim))  # noqa: PLW0108 - a method
    repair = sent.broken(monkeypatch, OperationalError("timeout"), after=False)
    with pytest.raises(OperationalError):
        sent.tick(sent.task())
    repair()
    assert len(given) == 1
