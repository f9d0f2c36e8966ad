"""An app on a real broker that no worker listens to, and what it sent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery

from celery_locks import IdempotentTask, beat, submission
from celery_locks.job import Job
from celery_locks.keys import key_of
from celery_locks.message import HEADER, Header
from celery_locks.place import Place, place_of
from tools.redis_server import RedisServer

DOWN = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0}}


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

        return self.app.task(body or run, base=base, name=next(self.names), shared=False, lazy=False, **options)

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

    def place(self, task: Any, *args: Any) -> Place:
        key = next((message[HEADER]["key"] for message in self.messages if message["task"] == task.name), None)
        return place_of(task, key or submission.key_of(task, args, {}, None)[0])

    def found(self, task: Any, *args: Any) -> Job | None:
        """The record."""
        return self.place(task, *args).look()

    def job(self, task: Any, *args: Any) -> Job:
        job = self.found(task, *args)
        assert job is not None
        return job

    def runs(self, task: Any) -> None:
        """Write what a worker writes at the start of a run,"""
        job = self.job(task)
        self.place(task).put(job, job.turned("running", run="r"), 30)

    def ends(self, task: Any, outcome: str, **about: Any) -> None:
        """and at its end."""
        job = self.job(task)
        self.place(task).put(job, Job("done", job.id, outcome=outcome, keep=60, **about), 60)

    def broken(self, patch: pytest.MonkeyPatch, failure: BaseException, *, after: bool) -> Callable[[], None]:
        """Let the broker fail, before it takes messages or after that, until the function returned is called."""
        plain = self.app.send_task

        def send(*args: Any, **kwargs: Any) -> Any:
            if after:
                plain(*args, **kwargs)
            raise failure

        patch.setattr(self.app, "send_task", send)
        return lambda: patch.setattr(self.app, "send_task", plain)

    def tick(self, task: Any) -> Any:
        """Submit as beat does."""
        token = beat._current.set(beat.Tick(f"entry {uuid.uuid4().hex}", task.name, 60.0, None, uuid.uuid4().hex))
        try:
            return task.apply_async()
        finally:
            beat._current.reset(token)


def run_of(task: Any, *args: Any) -> Any:
    """A run of this job, for ``push_request(lock_run=...)``."""
    return SimpleNamespace(id="r", header=Header(key_of(task, args, {}, None)[0], "id"), heir=None)
