"""A program with settings of its own: two beats with schedules in a database, stepped by hand. Prints what they published."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta

import django
import freezegun

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.celery.beat_settings"
django.setup()

from celery import current_app  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django_celery_beat import models  # noqa: E402
from django_celery_beat.schedulers import DatabaseScheduler  # noqa: E402

from celery_locks import beat  # noqa: E402
from django_redis_locks import locks  # noqa: E402
from tests.unit.celery_locks.stepped_beats import NOON, Beat, Stage  # noqa: E402


def plan_of(kind: str) -> dict[str, object]:
    if kind == "interval":
        return {"interval": models.IntervalSchedule.objects.create(every=60, period="seconds")}
    if kind == "crontab":
        return {"crontab": models.CrontabSchedule.objects.create(minute="*/5", timezone="Asia/Shanghai")}
    clocked = models.ClockedSchedule.objects.create(clocked_time=NOON + timedelta(seconds=92))
    return {"clocked": clocked, "one_off": True}


def published(kind: str) -> list[tuple[float, str]]:
    with freezegun.freeze_time(NOON) as frozen:
        stage = Stage(frozen)
        stage.app.set_default()
        stage.app.set_current()
        assert current_app.tasks is stage.app.tasks
        models.PeriodicTask.objects.all().delete()
        models.PeriodicTask.objects.create(name=kind, task="report", **plan_of(kind))

        def start(name: str) -> Beat:
            started = Beat(stage, name)
            started.scheduler = DatabaseScheduler(stage.app, lazy=True)
            beat.attach(started.scheduler)
            return started

        a, b = beats = [start(name) for name in "ab"]
        for one in beats:
            one.step()
            frozen.tick(6)
        stage.until(320, beats, 4)
        b.paused = True  # for longer than an interval, and past a slot
        stage.until(650, beats, 4)
        b.paused = False
        stage.until(700, beats, 4)
        a.paused = True
        a.scheduler.sync()
        stage.until(1201, [b, start("c")], 4)  # a restart, with what the database remembers
        return stage.runs


call_command("migrate", verbosity=0)
locks.configure({"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": "beats"}})
sys.stdout.write(json.dumps({kind: published(kind) for kind in ("interval", "crontab", "clocked")}))
