"""[C5.5] Slots: the due times of crontabs and other schedules that are equal for all beats."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.schedules import BaseSchedule, solar
from django_celery_beat.clockedschedule import clocked

from celery_locks import schedule
from tests.unit.celery_locks.beat_harness import NOON, BeatHarness, seconds_since_noon


def test_beat_that_is_late_to_a_slot_does_not_repeat_it(harness: BeatHarness) -> None:
    """More than half a minute late, after another beat has published the slot."""
    a, b = harness.beats(harness.cron)
    b.paused = True
    harness.run_until(61, [a])
    a.paused, b.paused = True, False
    harness.frozen.tick(110)
    b.step()
    harness.run_until(241, [b])
    assert harness.times == [60.0, 171.0, 180.0, 240.0]


def test_restarted_beat_does_not_repeat_a_slot_of_another_beat(harness: BeatHarness) -> None:
    """[C36] After three hours its entry is overdue, but another beat published it forty minutes ago."""
    (a,) = harness.beats(lambda: harness.cron("0"), "a")
    harness.run_until(3 * 3600 + 2400, [a], 10)
    (b,) = harness.beats(lambda: harness.cron("0"), "b", last_run_at=NOON)
    harness.run_until(5 * 3600 + 1, [a, b], 10)
    assert harness.times == [3600.0, 7200.0, 10800.0, 14400.0, 18000.0]


def test_slots_of_the_repeated_hour_in_autumn_are_not_repeated(harness: BeatHarness) -> None:
    """[C5.5] With the time zone of the app."""
    harness.app.conf.timezone = "Europe/Berlin"
    harness.frozen.move_to(datetime(2026, 10, 24, 22, 30, tzinfo=UTC))
    begin = seconds_since_noon()
    beats = [harness.beat(name, off).start(harness.cron("15")) for name, off in (("a", 0.0), ("b", 20.0))]
    for _ in range(5 * 120):
        harness.frozen.tick(30)
        for one in beats:
            one.step()
    hours = [round((at - begin - 2700) / 3600) for at in harness.times]
    assert hours == sorted(set(hours))  # Celery decides about the repeated hour; no slot in it is done twice
    assert {0, 1, 3, 4} <= set(hours)


SPECS = [("*",), ("0,1,59", "0,23"), ("*/20", "22-1")]


@pytest.mark.parametrize("spec", SPECS, ids=" ".join)
def test_each_slot_is_done_once_by_beats_with_offsets_and_pauses(harness: BeatHarness, spec: tuple[str, ...]) -> None:
    """For six hours, across midnight, by three beats with different clocks, at least one of which is active."""
    chance = random.Random(str(spec))
    harness.frozen.move_to(NOON + timedelta(hours=8, seconds=30))
    beats = [harness.beat(str(off), off).start(harness.cron(*spec)) for off in (-20.0, 0.0, 15.0)]

    def pause_some() -> None:
        for one in beats:
            one.paused = chance.random() < 0.4
        chance.choice(beats).paused = False

    begin, end = seconds_since_noon(), seconds_since_noon() + 6 * 3600
    harness.run_until(end, beats, 10, pause_some)
    plan = harness.cron(*spec)
    minutes = (NOON + timedelta(seconds=60 * n) for n in range(int(begin) // 60 + 1, int(end) // 60 + 1))
    expected = sum(at.minute in plan.minute and at.hour in plan.hour for at in minutes)
    assert len(harness.runs) == expected


class Sunset(solar):
    """A solar schedule without ephem: later every day, with random microseconds, and too early in a hasty beat."""

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


def test_solar_event_is_published_once_a_day(harness: BeatHarness) -> None:
    offs = {"a": 0.0, "b": 100.0, "c": -100.0}
    beats = [harness.beat(name, off).start(Sunset(harness.app, hasty=name == "b")) for name, off in offs.items()]
    harness.run_until(3 * 86400, beats, 20)
    assert len(harness.runs) == 3


class OwnSchedule(BaseSchedule):
    """A schedule of an unknown class: each beat counts from its start."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return last_run_at + timedelta(seconds=60) - self.now()

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        left = self.remaining_estimate(last_run_at).total_seconds()
        return left <= 0, 60.0 if left <= 0 else left


def test_schedule_of_an_unknown_class_is_claimed_as_an_interval(harness: BeatHarness) -> None:
    a = harness.beat("a").start(OwnSchedule(app=harness.app))
    harness.run_until(20, [a])
    beats = [a, harness.beat("b").start(OwnSchedule(app=harness.app))]
    harness.run_until(301, beats)
    assert harness.times == [60.0, 120.0, 180.0, 240.0, 300.0]


def test_due_after_years_returns_the_latest_slot(harness: BeatHarness) -> None:
    plan = harness.cron("*", "3", day_of_week="mon")  # sixty slots, then none for a week
    harness.frozen.move_to(NOON.replace(hour=20))
    found = schedule.due(plan, NOON - timedelta(days=20 * 365))
    assert found is not None
    assert found.slot == pytest.approx(NOON.replace(hour=3, minute=59).timestamp(), abs=0.01)
    harness.frozen.move_to(NOON + timedelta(days=4))
    assert schedule.due(plan, NOON).slot is None  # not due: left to the scheduler


def test_schedules_of_years_are_claimed_within_the_longest_lease(harness: BeatHarness) -> None:
    """A store refuses leases of more than ten years."""
    harness.frozen.move_to(datetime(2096, 2, 28, 23, 59, tzinfo=UTC))
    begin = seconds_since_noon()
    leap_days = harness.cron("0", "0", day_of_month="29", month_of_year="2")  # the one after the next is in eight years
    beats = [harness.beat(name).start(leap_days, name="leap") for name in "ab"]
    for one in beats:
        one.scheduler.add(
            name="rare",
            task="report",
            schedule=harness.every(20 * 366 * 86400),
            last_run_at=NOON - timedelta(days=20_000),
        )
    harness.run_until(begin + 120, beats)
    assert len(harness.runs) == 2


def test_clocked_schedule_of_a_database_is_identified_by_its_time(harness: BeatHarness) -> None:
    """Its claim lasts a day: it is due once."""
    moment = NOON + timedelta(seconds=92)
    harness.frozen.move_to(moment + timedelta(seconds=5))
    assert schedule.due(clocked(moment, app=harness.app), NOON) == schedule.Due(moment.timestamp(), 86400.0)


def test_due_of_an_interval_of_zero_returns_None(harness: BeatHarness) -> None:
    assert schedule.due(harness.every(0), NOON) is None
    assert schedule.due(harness.every(0.005), NOON) is None
