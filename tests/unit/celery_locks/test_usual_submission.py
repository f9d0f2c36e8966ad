"""The straight path of a submission without options does the same as the general one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import EncodeError, OperationalError

from celery_locks import IdempotentTask, SingletonTask, submission
from celery_locks import task as task_module
from celery_locks.header import HEADER
from celery_locks.job_record import record_of
from celery_locks.keys import key_of
from celery_locks.submit import submit
from django_redis_locks import LockBackendError, LockError
from tests.probes.engine import sent_commands
from tests.unit.celery_locks.conftest import MEMORY

UNREACHABLE = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "BACKEND_WAIT": 0.01}}


def double(x: int) -> int:
    return 2 * x


class Submitter:
    """Submits one job, and writes down what happens. Ids and versions are numbered in the order of their appearance."""

    def __init__(self, app: Celery, patch: pytest.MonkeyPatch, base: type, **options: Any) -> None:
        self.task = app.task(double, base=base, shared=False, lazy=False, ignore_result=True, name="double", **options)
        self.record = record_of(self.task, key_of(self.task, (1,), {}, None)[0])
        self.failure: Exception | None = None
        self.happened: list[object] = []
        self._names: dict[object, int] = {}
        self._send = app.send_task
        patch.setattr(app, "send_task", self._sent)

    def submit(self) -> None:
        with sent_commands() as commands:
            try:
                result = self.task.delay(1)
                self.happened.append((self._name(result.id), result.deduplicated))
            except (LockError, EncodeError, OperationalError) as failure:
                self.happened.append(type(failure))
        self.happened.append(commands)

    def look(self) -> None:
        job = self.record.read()
        assert job is not None
        fields = {name: self._named(value) for name, value in job.stored_record.fields.items()}
        self.happened.append((fields, round(job.stored_record.lease_left, -1)))

    def change(self, lease: float, **changes: Any) -> None:
        """Change the record as another process does."""
        job = self.record.read()
        assert job is not None
        assert self.record.put(job, job.in_state(**changes), lease)[0]

    def _sent(self, *args: Any, task_id: str, headers: Any, **options: Any) -> Any:
        sent = {name: self._named(value) for name, value in headers[HEADER].items()}
        self.happened.append((args, self._name(task_id), sent, sorted(options)))
        if self.failure is not None:
            raise self.failure
        return self._send(*args, task_id=task_id, headers=headers, **options)

    def _named(self, value: object) -> object:
        unique = (isinstance(value, int) and value > 10**9) or (isinstance(value, str) and len(value) == 36)
        return self._name(value) if unique else value

    def _name(self, value: object) -> int:
        return self._names.setdefault(value, len(self._names))


def first_and_duplicates(submitter: Submitter) -> None:
    for _ in range(3):
        submitter.submit()
        submitter.look()


def not_sent(submitter: Submitter) -> None:
    submitter.failure = EncodeError("no JSON")
    submitter.submit()
    submitter.failure = None
    submitter.submit()
    submitter.look()


def perhaps_sent(submitter: Submitter) -> None:
    submitter.failure = OperationalError("no answer")
    submitter.submit()
    submitter.look()
    submitter.failure = None
    submitter.submit()
    submitter.look()


def done(submitter: Submitter) -> None:
    submitter.submit()
    submitter.change(60, state="done", ttl=60.0, retention=60.0)
    submitter.submit()


HISTORIES = [first_and_duplicates, not_sent, perhaps_sent, done]
OPTIONS: list[dict[str, Any]] = [{}, {"lock_on_duplicate": "raise"}, {"lock_on_duplicate": "replace"}]


def both(patch: pytest.MonkeyPatch, play: Callable[[], list[object]]) -> tuple[list[object], list[object]]:
    usual = play()
    patch.setattr(
        task_module,
        "submit_usual",
        lambda task, args, kwargs, send: submit(task, args, kwargs, None, None, {}, send, {}),
    )
    return usual, play()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("history", HISTORIES)
def test_both_paths_do_the_same(
    project_app: Celery,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    history: Callable[[Submitter], None],
    options: dict[str, Any],
) -> None:
    def play() -> list[object]:
        submission._duplicated.clear()
        settings.REDIS_LOCKS = {"default": {**MEMORY["default"], "LOCATION": f"usual{next(stores)}"}}
        with monkeypatch.context() as patch:
            submitter = Submitter(project_app, patch, SingletonTask, **options)
            history(submitter)
        return submitter.happened

    stores = iter(range(2))
    usual, general = both(monkeypatch, play)
    assert usual == general


@pytest.mark.parametrize("base", [SingletonTask, IdempotentTask])
def test_both_paths_fail_alike_without_the_store(
    project_app: Celery, settings: Any, monkeypatch: pytest.MonkeyPatch, base: type
) -> None:
    """A singleton is sent, an idempotent task raises."""
    settings.REDIS_LOCKS = UNREACHABLE

    def play() -> list[object]:
        with monkeypatch.context() as patch:
            submitter = Submitter(project_app, patch, base)
            submitter.submit()
        return submitter.happened

    usual, general = both(monkeypatch, play)
    assert usual[:-1] == general[:-1]
    assert (LockBackendError in usual) is (base is IdempotentTask)
