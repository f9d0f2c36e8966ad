"""The app that beat processes load: its task runs often, records each tick, and publishes the ticks that it claims."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from celery import Celery, Task
from celery.result import AsyncResult
from celery.utils import uuid

from django_redis_locks import locks
from tests.probes.celery import claim_tick, current_tick

URL = os.environ["BEAT_REDIS"]

journal = redis.Redis.from_url(URL)
# a long timeout, because a slow store isn't down: ticks that can't be claimed are published by every beat
locks.configure({"default": {"LOCATION": URL, "KEY_PREFIX": "locks", "OPTIONS": {"socket_timeout": 60}}})
app = Celery("beats", broker=URL)
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = False
app.conf.beat_schedule = {"often": {"task": "often", "schedule": float(os.environ["BEAT_INTERVAL"])}}


class Ticking(Task):
    lock_using = "default"

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        task_id = task_id or uuid()
        tick = current_tick(self.name)
        assert tick is not None
        sent = time.monotonic()
        claim = claim_tick(self.lock_using, tick, task_id)
        journal.rpush("ticks", json.dumps([os.getpid(), claim.won, claim.winner, sent, time.monotonic()]))
        if not claim.won:
            return AsyncResult(claim.winner, app=self.app)
        return super().apply_async(args, kwargs, task_id=task_id, **options)


@app.task(base=Ticking, name="often")
def often() -> None:
    journal.incr("runs")
