"""A program: two beats whose schedule is in a database, stepped by hand. Writes what they published, as JSON.

A program of its own, since it has Django's settings of its own.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta

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
from tests.celery.beats import NOON, Beat, Stage  # noqa: E402


def plan_of(kind: str) -> dict[str, object]:
    if kind == "interval":
        return {"interval": models.IntervalSchedule.objects.create(every=60, period="seconds")}
    if kind == "crontab":
        return {"crontab": models.CrontabSchedule.objects.create(minute="*/5", timezone="Asia/Shanghai")}
    clocked = models.ClockedSchedule.objects.create(clocked_time=NOON + timedelta(seconds=90))
    return {"clocked": clocked, "one_off": True}


def main(kind: str) -> None:
    call_command("migrate", verbosity=0)
    locks.configure({"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": "beats"}})
    with freezegun.freeze_time(NOON) as frozen:
        stage = Stage(frozen)
        stage.app.set_default()
        assert current_app.tasks is stage.app.tasks
        models.PeriodicTask.objects.create(name="hourly", task="report", **plan_of(kind))
        a, b = beats = [Beat(stage, name) for name in "ab"]
        for one in beats:
            one.scheduler = DatabaseScheduler(stage.app, lazy=True)
            beat.attach(one.scheduler)
            one.step()
            frozen.tick(7)
        stage.until(320, beats)
        b.paused = True  # for longer than an interval, and past a slot
        stage.until(650, beats)
        b.paused = False
        stage.until(700, beats)
        a.paused = True
        a.scheduler.sync()
        fresh = Beat(stage, "c")  # a restart, with what the database remembers
        fresh.scheduler = DatabaseScheduler(stage.app, lazy=True)
        beat.attach(fresh.scheduler)
        stage.until(1201, [b, fresh])
        sys.stdout.write(json.dumps([(run.at - datetime.timestamp(NOON), run.by) for run in stage.journal]))


main(sys.argv[1])
