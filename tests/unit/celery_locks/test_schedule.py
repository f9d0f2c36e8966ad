"""[C5.5] The ticks of a crontab, and of other schedules due at the same moments everywhere, by beats stepped by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.schedules import BaseSchedule, solar
from django_celery_beat.clockedschedule import clocked

from celery_locks import schedule as slots
from tests.unit.celery_locks.stepped_beats import NOON, Stage, stage_seconds


def test_beat_that_is_late_to_a_slot_does_not_repeat_it(stage: Stage) -> None:
    """Half a minute and more: another beat has done it, and the next slot is done."""
    a, b = stage.beats(stage.cron)
    b.paused = True
    stage.until(61, [a])
    a.paused, b.paused = True, False
    stage.frozen.tick(110)
    b.step()
    stage.until(241, [b])
    assert stage.times == [60.0, 171.0, 180.0, 240.0]


def test_restarted_beat_does_not_repeat_a_slot_done_meanwhile(stage: Stage) -> None:
    """[C36] A beat that wasn't there for three hours finds itself overdue: another one did it, forty minutes ago."""
    (a,) = stage.beats(lambda: stage.cron("0"), "a")
    stage.until(3 * 3600 + 2400, [a], 10)
    (b,) = stage.beats(lambda: stage.cron("0"), "b", last_run_at=NOON)
    stage.until(5 * 3600 + 1, [a, b], 10)
    assert stage.times == [3600.0, 7200.0, 10800.0, 14400.0, 18000.0]


def test_slots_of_the_hour_that_comes_twice_are_not_repeated(stage: Stage) -> None:
    """[C5.5] In autumn, with a zone of one's own."""
    stage.app.conf.timezone = "Europe/Berlin"
    stage.frozen.move_to(datetime(2026, 10, 24, 22, 30, tzinfo=UTC))
    begin = stage_seconds()
    beats = [stage.beat(name, off).starts(stage.cron("15")) for name, off in (("a", 0.0), ("b", 20.0))]
    for _ in range(5 * 120):
        stage.frozen.tick(30)
        for one in beats:
            one.step()
    hours = [round((at - begin - 2700) / 3600) for at in stage.times]
    assert hours == sorted(set(hours))  # the hour that comes twice is Celery's business; nothing is done twice in it
    assert {0, 1, 3, 4} <= set(hours)


SPECS = [("*",), ("0,1,59", "0,23"), ("*/20", "22-1")]


@pytest.mark.parametrize("spec", SPECS, ids=" ".join)
def test_each_slot_is_done_once_by_beats_that_differ_and_sleep(stage: Stage, spec: tuple[str, ...]) -> None:
    """For six hours, across midnight, by three beats whose clocks differ, at least one of which is awake."""
    chance = random.Random(str(spec))
    stage.frozen.move_to(NOON + timedelta(hours=8, seconds=30))
    beats = [stage.beat(str(off), off).starts(stage.cron(*spec)) for off in (-20.0, 0.0, 15.0)]

    def stumble() -> None:
        for one in beats:
            one.paused = chance.random() < 0.4
        chance.choice(beats).paused = False

    begin, end = stage_seconds(), stage_seconds() + 6 * 3600
    stage.until(end, beats, 10, stumble)
    plan = stage.cron(*spec)
    minutes = (NOON + timedelta(seconds=60 * n) for n in range(int(begin) // 60 + 1, int(end) // 60 + 1))
    expected = sum(at.minute in plan.minute and at.hour in plan.hour for at in minutes)
    assert len(stage.runs) == expected


class Sunset(solar):
    """Without ephem: every day a little later, and never on the microsecond; early for a hasty beat."""

    event = lat = lon = ""

    def __init__(self, app: Any, *, hasty: bool) -> None:
        BaseSchedule.__init__(self, app=app)
        self.hasty = hasty
        self.early = False

    def is_due(self, last_run_at: datetime) -> tuple[bool, datetime]:
        self.early = self.hasty
        try:
            found: tuple[bool, datetime] = super().is_due(last_run_at)
            return found
        finally:
            self.early = False

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        days = int((last_run_at - NOON).total_seconds() // 86400) - 1
        while True:
            late = 0 if self.early else random.randrange(1, 900)
            sunset = NOON + timedelta(days=days, hours=6, seconds=60.4999 * days, microseconds=late)
            if sunset > last_run_at + timedelta(seconds=0.01):
                return sunset - self.now()
            days += 1


def test_solar_event_is_published_once_a_day(stage: Stage) -> None:
    offs = {"a": 0.0, "b": 100.0, "c": -100.0}
    beats = [stage.beat(name, off).starts(Sunset(stage.app, hasty=name == "b")) for name, off in offs.items()]
    stage.until(3 * 86400, beats, 20)
    assert len(stage.runs) == 3


class OwnSchedule(BaseSchedule):
    """A schedule of an unknown class: each beat counts from its start."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return last_run_at + timedelta(seconds=60) - self.now()

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        left = self.remaining_estimate(last_run_at).total_seconds()
        return left <= 0, 60.0 if left <= 0 else left


def test_schedule_of_an_unknown_class_is_claimed_as_an_interval(stage: Stage) -> None:
    a = stage.beat("a").starts(OwnSchedule(app=stage.app))
    stage.until(20, [a])
    beats = [a, stage.beat("b").starts(OwnSchedule(app=stage.app))]
    stage.until(301, beats)
    assert stage.times == [60.0, 120.0, 180.0, 240.0, 300.0]


def test_due_after_years_returns_the_latest_slot(stage: Stage) -> None:
    plan = stage.cron("*", "3", day_of_week="mon")  # sixty slots, then none for a week
    stage.frozen.move_to(NOON.replace(hour=20))
    found = slots.due(plan, NOON - timedelta(days=20 * 365))
    assert found is not None
    assert found.slot == pytest.approx(NOON.replace(hour=3, minute=59).timestamp(), abs=0.01)
    stage.frozen.move_to(NOON + timedelta(days=4))
    assert slots.due(plan, NOON).slot is None  # not due: the scheduler knows better


def test_schedules_of_years_are_claimed_within_the_longest_lease(stage: Stage) -> None:
    """A store refuses leases of more than ten of them."""
    stage.frozen.move_to(datetime(2096, 2, 28, 23, 59, tzinfo=UTC))
    begin = stage_seconds()
    leap_days = stage.cron("0", "0", day_of_month="29", month_of_year="2")  # the next one but one is in eight years
    beats = [stage.beat(name).starts(leap_days, name="leap") for name in "ab"]
    for one in beats:
        one.scheduler.add(
            name="rare",
            task="report",
            schedule=stage.every(20 * 366 * 86400),
            last_run_at=NOON - timedelta(days=20_000),
        )
    stage.until(begin + 120, beats)
    assert len(stage.runs) == 2


def test_clocked_schedule_of_a_database_is_known_by_its_moment(stage: Stage) -> None:
    """For a day: it is due once."""
    moment = NOON + timedelta(seconds=92)
    stage.frozen.move_to(moment + timedelta(seconds=5))
    assert slots.due(clocked(moment, app=stage.app), NOON) == slots.Due(moment.timestamp(), 86400.0)


def test_due_of_an_interval_of_zero_returns_None(stage: Stage) -> None:
    assert slots.due(stage.every(0), NOON) is None
    assert slots.due(stage.every(0.005), NOON) is None
