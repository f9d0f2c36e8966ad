"""[C5.5] A store that is down holds up beat once, and not each of its entries for as long as submissions wait."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler

from celery_locks import SingletonTask, beat
from django_redis_locks import clock


def test_a_store_that_is_down_holds_up_beat_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beat, "_down", {})
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 30}}
    app = Celery("beats", broker="memory://", set_as_current=False)

    @app.task(base=SingletonTask, name="sync", shared=False)
    def sync(tenant: int) -> None: ...

    entries = {f"sync-{tenant}": {"task": "sync", "schedule": 60.0, "args": (tenant,)} for tenant in range(5)}
    app.conf.beat_schedule = entries
    scheduler = Scheduler(app)
    beat.attach(scheduler)
    begin = clock.now()
    ids = {scheduler.apply_async(entry, advance=False).id for entry in list(scheduler.schedule.values())}
    assert clock.now() - begin < 10
    assert len(ids) == len(entries)
