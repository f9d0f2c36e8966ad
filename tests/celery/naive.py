"""How a lock for jobs is often made, to show that these tests can fail: taken at submission, given back by hooks.

CELERY_TESTS_BASE=naive make test ARGS="tests/celery"     most of them fail: stuck, lost, never answered
CELERY_TESTS_BASE=plain make test ARGS="tests/celery"     Celery's own task: two bodies at once, jobs that run twice
"""

from __future__ import annotations

import json
from typing import Any

import redis
from celery import Task
from celery.result import AsyncResult
from celery.utils import uuid


class NaiveTask(Task):
    abstract = True

    def _key(self, args: Any, kwargs: Any) -> str:
        return f"naive:{self.name}:{json.dumps([list(args or ()), kwargs or {}], sort_keys=True)}"

    @property
    def _redis(self) -> redis.Redis:
        return self.app.journal.redis

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        task_id = task_id or uuid()
        if self._redis.set(self._key(args, kwargs), task_id, nx=True, ex=600):
            return super().apply_async(args, kwargs, task_id=task_id, **options)
        return AsyncResult(self._redis.get(self._key(args, kwargs)), app=self.app)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        self._redis.delete(self._key(args, kwargs))

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._redis.delete(self._key(args, kwargs))
