"""[C5.5] Several beats, one tick: real schedulers stepped by hand, the records in memory, on a clock that the test moves."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import freezegun
import pytest
from celery import signals
from celery.beat import BeatLazyFunc, Scheduler, SchedulingError
from celery.schedules import BaseSchedule, solar

from celery_locks import beat, slots
from tests.celery.beats import NOON, Stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(beat, "_down", {})
    with freezegun.freeze_time(NOON) as frozen:
        yield Stage(frozen)


# Intervals


def test_the_phases_of_two_beats_differ(stage: Stage) -> None:
    """[C35] Each counts from its own start. One of them does it all, at the interval."""
    beats = [stage.beat("a").starts(stage.every(60))]
    stage.until(25, beats)
    beats.append(stage.beat("b").starts(stage.every(60)))
    stage.until(601, beats)
    assert stage.runs == [(60.0 * n, "a") for n in range(1, 11)]


def test_two_ticks_at_the_same_time(stage: Stage) -> None:
    beats = [stage.beat(name).starts(stage.every(60)) for name in "ab"]
    stage.until(301, beats)
    assert stage.times == [60.0, 120.0, 180.0, 240.0, 300.0]


def test_without_claims_each_beat_publishes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C34] What these tests would see."""
    monkeypatch.setattr(beat, "covers", lambda found, tick: False)
    beats = [stage.beat(name).starts(stage.every(60)) for name in "ab"]
    stage.until(301, beats)
    assert len(stage.runs) == 10


@pytest.mark.parametrize("late", [0.2, 0.95, 3.5])
def test_a_late_tick_does_not_cost_the_next_one(stage: Stage, late: float) -> None:
    """Beat counts from when it did get round to it, and its own claim doesn't stop it."""
    one = stage.beat("a").starts(stage.every(1))
    stage.until(3, [one], 0.05)
    stage.frozen.tick(1 + late)
    one.step()
    last = stage.times[-1]
    stage.until(last + 3.01, [one], 0.05)
    assert [round(at - last, 2) for at in stage.times if at > last] == [1.0, 2.0, 3.0]


def test_a_slow_claim_does_not_cost_the_next_tick(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store took its time, and beat reckons anew (the schedule in its database changed), so that the next tick is
    due before the claim ends: it is the same beat's."""
    one = stage.beat("a").starts(stage.every(1))
    plain = beat._claim

    def slow(*args: Any) -> Any:
        stage.frozen.tick(0.4)
        return plain(*args)

    with monkeypatch.context() as patch:
        patch.setattr(beat, "_claim", slow)
        stage.until(1.2, [one], 0.05)
    assert stage.times == [1.4]
    one.scheduler._heap = None
    stage.until(3.1, [one], 0.05)
    assert stage.times == pytest.approx([1.4, 2.0, 3.0], abs=0.06)


def test_a_relative_interval_is_due_again_soon_after_a_late_tick(stage: Stage) -> None:
    """It is rounded to the minute: a tick that came at 12:01:50 is followed by one at 12:02:00, whoever does it."""
    beats = [stage.beat(name).starts(stage.every(60, relative=True)) for name in "ab"]
    beats[1].paused = True
    stage.frozen.tick(110)
    beats[0].step()
    beats[0].paused, beats[1].paused = True, False
    stage.until(181, beats)
    assert stage.runs == [(110.0, "a"), (120.0, "b"), (180.0, "b")]


def test_the_other_beat_takes_over(stage: Stage) -> None:
    a, b = (stage.beat(name).starts(stage.every(60)) for name in "ab")
    stage.until(125, [a, b])
    first = stage.runs[-1][1]
    for dead in (a, b):
        dead.paused = dead.name == first
    stage.until(305, [a, b])
    assert stage.times == [60.0, 120.0, 180.0, 240.0, 300.0]
    assert {by for at, by in stage.runs if at > 125} == {"a", "b"} - {first}


def test_a_beat_restarts(stage: Stage) -> None:
    """[C36] It didn't save its last run, or counts it as overdue, and publishes at once: not what another one has."""
    a, b = (stage.beat(name).starts(stage.every(60)) for name in "ab")
    stage.until(130, [a, b])
    b = stage.beat("b").starts(stage.every(60), last_run_at=NOON)
    c = stage.beat("c").starts(stage.every(60), last_run_at=NOON)
    stage.until(245, [a, b, c])
    assert stage.times == [60.0, 120.0, 180.0, 240.0]


def test_clocks_that_are_off_do_not_matter_to_intervals(stage: Stage) -> None:
    beats = [stage.beat(str(off), off).starts(stage.every(60)) for off in (-7200.0, 0.0, 55.0, 86400.0)]
    stage.until(301, beats)
    assert stage.times == [60.0, 120.0, 180.0, 240.0, 300.0]


@pytest.mark.parametrize("seed", range(5))
def test_beats_that_are_not_punctual(stage: Stage, seed: int) -> None:
    """Whatever their phases and delays: no two ticks within nine tenths of an interval, and of each beat's own two ticks
    in a row at least one was published, by it or another one, since the one before."""
    chance = random.Random(seed)
    beats = []
    for name in "abc":
        stage.until(stage_seconds() + chance.uniform(0, 20), beats, 0.5)
        beats.append(stage.beat(name).starts(stage.every(10)))

    def stumble() -> None:
        for one in beats:
            one.paused = chance.random() < 0.3

    seen: dict[str, list[float]] = {one.name: [] for one in beats}
    for one in beats:
        _note(one.scheduler, seen[one.name])
    begin = stage_seconds()
    stage.until(begin + 600, beats, 0.5, stumble)
    times = [at for at in stage.times if at > begin]
    assert min(b - a for a, b in pairwise(times)) >= 9
    for ticks in seen.values():
        assert len(ticks) > 40
        for before, after in pairwise(ticks):
            assert any(before < at <= after or at == before for at in times)


def stage_seconds() -> float:
    return (datetime.now(UTC) - NOON).total_seconds()


def _note(scheduler: Scheduler, ticks: list[float]) -> None:
    plain = scheduler.apply_async

    def apply_async(*args: Any, **kwargs: Any) -> Any:
        ticks.append(stage_seconds())
        return plain(*args, **kwargs)

    scheduler.apply_async = apply_async


# Slots


def test_a_crontab_of_two_beats(stage: Stage) -> None:
    beats = [stage.beat(name).starts(stage.cron("*/5")) for name in "ab"]
    stage.until(1201, beats)
    assert stage.times == [300.0, 600.0, 900.0, 1200.0]


@pytest.mark.parametrize("off", [-290, -70, -40, 20, 70, 290, 1000])
def test_a_clock_that_is_off(stage: Stage, off: int) -> None:
    """The slot counts, not when it is done: each is done once, by whoever believes first that it has come."""
    a = stage.beat("a").starts(stage.cron("*/5"), last_run_at=NOON - timedelta(seconds=1))
    b = stage.beat("b", off).starts(stage.cron("*/5"))
    stage.until(1799, [a, b])
    assert stage.runs[0] == (1.0, "a")
    assert {by for _, by in stage.runs[1:]} == {"b" if off > 0 else "a"}
    assert len(stage.runs[1:]) == (5 if off < 0 else (1799 + off) // 300 - off // 300)


def test_a_clock_that_is_a_year_ahead_is_forgotten(stage: Stage) -> None:
    """Once that beat is gone the others miss what it would have done in the meantime, no more."""
    a, b = stage.beat("a").starts(stage.cron("*/5")), stage.beat("b", 366 * 86400).starts(stage.cron("*/5"))
    stage.until(899, [b, a])
    assert stage.runs == [(300.0, "b"), (600.0, "b")]
    stage.until(1801, [a])
    assert stage.runs[2:] == [(1200.0, "a"), (1500.0, "a"), (1800.0, "a")]


@pytest.mark.parametrize("late", [31, 59, 110])
def test_a_beat_that_comes_late_to_a_slot(stage: Stage, late: int) -> None:
    """Half a minute and more: another one has done it, and the next one isn't swallowed."""
    a, b = (stage.beat(name).starts(stage.cron()) for name in "ab")
    b.paused = True
    stage.until(61, [a])
    a.paused, b.paused = True, False
    stage.frozen.tick(late)
    b.step()
    stage.until(241, [b])
    assert stage.times == [60.0] + ([171.0] if late == 110 else [120.0]) + [180.0, 240.0]


def test_a_beat_restarts_on_a_crontab(stage: Stage) -> None:
    """[C36] One that wasn't there for three hours finds itself overdue: another one has done it, forty minutes ago."""
    a = stage.beat("a").starts(stage.cron("0"))
    stage.until(3 * 3600 + 2400, [a], 10)
    b = stage.beat("b").starts(stage.cron("0"), last_run_at=NOON)
    stage.until(5 * 3600 + 1, [a, b], 10)
    assert stage.times == [3600.0, 7200.0, 10800.0, 14400.0, 18000.0]


def test_a_slot_that_nobody_did_is_made_up_for_once(stage: Stage) -> None:
    """As Celery does it for a beat that was away."""
    beats = [stage.beat(name).starts(stage.cron("0"), last_run_at=NOON) for name in "ab"]
    stage.frozen.tick(3 * 3600 + 2400)
    stage.until(4 * 3600 + 1, beats)
    assert stage.times == [13201.0, 14400.0]


def test_the_clock_goes_back(stage: Stage) -> None:
    """[C5.5] In autumn, with a zone of one's own."""
    stage.app.conf.timezone = "Europe/Berlin"
    stage.frozen.move_to(datetime(2026, 10, 24, 22, 30, tzinfo=UTC))
    begin = datetime.now(UTC).timestamp()
    beats = [stage.beat(name, off).starts(stage.cron("15")) for name, off in (("a", 0.0), ("b", 20.0))]
    for _ in range(5 * 120):
        stage.frozen.tick(30)
        for one in beats:
            one.step()
    hours = [round((run.at - begin - 2700) / 3600) for run in stage.journal]
    assert hours == sorted(set(hours))  # the hour that comes twice is Celery's business; nothing is done twice in it
    assert {0, 1, 3, 4} <= set(hours)


SPECS = [
    ("*",),
    ("*/7",),
    ("13", "*/5"),
    ("0,1,59", "0,23"),
    ("30", "9,17"),
    ("0", "0"),
    ("59", "23"),
    ("*/20", "22-1"),
]


@pytest.mark.parametrize("spec", SPECS, ids=" ".join)
def test_each_slot_is_done_once(stage: Stage, spec: tuple[str, ...]) -> None:
    """For six hours, across midnight, by three beats whose clocks differ, and of which one at least is awake."""
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
    """Without ephem: every day a little later, and never on the microsecond."""

    event = lat = lon = ""

    def __init__(self, app: Any) -> None:
        BaseSchedule.__init__(self, app=app)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        days = int((last_run_at - NOON).total_seconds() // 86400) - 1
        while True:
            sunset = NOON + timedelta(days=days, hours=6, seconds=60.4999 * days, microseconds=random.randrange(900))
            if sunset > last_run_at + timedelta(seconds=0.01):
                return sunset - self.now()
            days += 1


def test_the_sun_sets_once(stage: Stage) -> None:
    beats = [stage.beat(name, off).starts(Sunset(stage.app)) for name, off in (("a", 0.0), ("b", 100.0), ("c", -100.0))]
    stage.until(3 * 86400, beats, 20)
    assert len(stage.runs) == 3


class Whim(BaseSchedule):
    """A schedule of which nobody knows anything: each beat counts from its start."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return last_run_at + timedelta(seconds=60) - self.now()

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        left = self.remaining_estimate(last_run_at).total_seconds()
        return left <= 0, 60.0 if left <= 0 else left


def test_a_schedule_of_ones_own(stage: Stage) -> None:
    a = stage.beat("a").starts(Whim(app=stage.app))
    stage.until(20, [a])
    beats = [a, stage.beat("b").starts(Whim(app=stage.app))]
    stage.until(301, beats)
    assert stage.times == [60.0, 120.0, 180.0, 240.0, 300.0]


def test_the_latest_slot_is_found_from_afar(stage: Stage) -> None:
    plan = stage.cron("*", "3", day_of_week="mon")  # sixty slots, then none for a week
    stage.frozen.move_to(NOON.replace(hour=20))
    found = slots.due(plan, NOON - timedelta(days=20 * 365))
    assert found is not None
    assert found.slot == pytest.approx(NOON.replace(hour=3, minute=59).timestamp(), abs=0.01)
    stage.frozen.move_to(NOON + timedelta(days=4))
    found = slots.due(plan, NOON - timedelta(days=20 * 365))
    assert found is not None
    assert NOON.replace(hour=3).timestamp() - 0.01 <= found.slot  # Celery before 5.7 leaves out the rest of a past day
    assert found.slot <= NOON.replace(hour=3, minute=59).timestamp() + 0.01
    assert slots.due(plan, NOON).slot is None  # not due: the scheduler knows better


# A schedule that changes


def test_an_entry_becomes_more_frequent(stage: Stage) -> None:
    """A claim of the daily interval doesn't swallow a day of minutes."""
    a, b = (stage.beat(name).starts(stage.every(86400), last_run_at=NOON - timedelta(days=1)) for name in "ab")
    stage.until(10, [a, b])
    assert stage.runs == [(1.0, "a")]
    beats = [stage.beat(name).starts(stage.every(60)) for name in "cd"]
    stage.until(191, beats)
    assert stage.times == [1.0, 70.0, 130.0, 190.0]


@pytest.mark.parametrize("monthly_first", [True, False])
def test_an_entry_changes_its_kind(stage: Stage, monthly_first: bool) -> None:
    if monthly_first:
        old, new = stage.cron("0", "0", day_of_month="1"), stage.every(60)
    else:
        old, new = stage.every(30 * 86400), stage.cron()
    a = stage.beat("a").starts(old, last_run_at=NOON - timedelta(days=62))
    stage.until(1, [a])
    assert len(stage.runs) == 1
    b = stage.beat("b").starts(new)
    stage.until(121, [b])
    assert stage.times == ([1.0, 61.0, 121.0] if monthly_first else [1.0, 60.0, 120.0])


# The task's side


def test_the_loser_knows_the_winner(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    a, b = (stage.beat(name).starts(stage.every(60)) for name in "ab")
    stage.until(59, [a, b])
    stage.frozen.tick(1)
    a.step()
    caplog.set_level(logging.DEBUG)
    (entry,) = b.scheduler.schedule.values()
    result = b.scheduler.apply_async(entry, advance=False)
    assert result.id == stage.journal[0].id
    assert f"is published already, as task {result.id}" in caplog.text


def test_a_publish_that_failed_gives_the_tick_back(stage: Stage) -> None:
    """[C37] Beat doesn't try again before the next tick, so the next beat may have this one."""
    a, b = (stage.beat(name).starts(stage.every(60)) for name in "ab")
    stage.frozen.tick(60)
    stage.task.broken = True
    (entry,) = a.scheduler.schedule.values()
    with pytest.raises(SchedulingError):
        a.scheduler.apply_async(entry, advance=False)
    stage.task.broken = False
    b.step()
    assert stage.runs == [(60.0, "b")]


def test_a_tick_that_was_given_back_is_claimed_anew() -> None:
    tick, other = (beat.Tick("hourly", "report", 60, None, name) for name in "ab")
    first = beat.claim("default", tick, "1")
    assert (first.won, first.winner) == (True, "1")
    assert beat.claim("default", tick, "2") is first
    first.give_back()
    assert beat.claim("default", tick, "3").won
    assert beat.claim("default", other, "4").winner == "3"


@pytest.mark.parametrize("kind", ["interval", "crontab"])
def test_one_answer_for_all_that_a_task_publishes_in_a_tick(stage: Stage, kind: str) -> None:
    """Its own `apply_async` may make three messages of one: all by the winner, none by the others."""
    stage.task.fan = 3
    beats = [stage.beat(name).starts(stage.every(60) if kind == "interval" else stage.cron()) for name in "ab"]
    stage.until(121, beats)
    assert stage.times == [60.0] * 3 + [120.0] * 3


def test_a_call_outside_of_beat_is_no_tick(stage: Stage) -> None:
    one = stage.beat("a").starts(stage.every(60))
    stage.until(61, [one])
    assert beat.current() is None
    stage.task.apply_async()
    stage.task.apply_async()
    assert len(stage.runs) == 3


def test_what_is_published_on_the_way_is_no_tick(stage: Stage) -> None:
    """A lazy argument that publishes something itself."""
    seen: list[object] = []
    lazy = BeatLazyFunc(lambda: seen.extend((beat.current("other"), beat.current("report"))))
    one = stage.beat("a").starts(stage.every(60), args=(lazy,))
    stage.until(61, [one])
    assert seen[0] is None
    assert repr(seen[1]) == "<Tick of 'hourly'>"


def test_tasks_of_others_are_left_alone(stage: Stage) -> None:
    seen: list[object] = []

    @stage.app.task(name="plain")
    def plain() -> None: ...

    plain.apply_async = lambda *args, **kwargs: seen.append(beat.current())
    one = stage.beat("a").starts(stage.every(60), task="plain")
    stage.until(61, [one])
    assert seen == [None]


def test_an_entry_without_a_name_is_not_claimed(stage: Stage) -> None:
    """Two of them can't be told apart, and a lost tick is worse than one too many."""
    beats = [stage.beat(name).starts(stage.every(60), name=None) for name in "ab"]
    stage.until(61, beats)
    assert len(stage.runs) == 2


def test_an_interval_of_nothing_is_not_claimed(stage: Stage) -> None:
    assert slots.due(stage.every(0), NOON) is None
    assert slots.due(stage.every(0.005), NOON) is None


@pytest.mark.parametrize("entry", ["with space {0}%", "日次", "x" * 500])
def test_names_of_entries_are_anything(stage: Stage, entry: str) -> None:
    beats = [stage.beat(name).starts(stage.every(60), name=entry) for name in "ab"]
    stage.until(61, beats)
    assert len(stage.runs) == 1


def test_entries_of_one_task_are_ticks_of_their_own(stage: Stage) -> None:
    one = stage.beat("a").starts(stage.every(60), name="eu", args=("eu",))
    one.scheduler.add(name="us", task="report", schedule=one.scheduler.schedule["eu"].schedule, args=("us",))
    stage.until(61, [one])
    assert len(stage.runs) == 2


@pytest.mark.parametrize("fields", [{}, {"id": 3, "for": 1}, {"id": "a", "for": "long", "slot": []}, {"slot": "x"}])
def test_what_another_version_wrote_does_not_stop_a_tick(stage: Stage, fields: dict[str, Any]) -> None:
    from django_redis_locks import locks

    locks.record("tick:report:hourly").put(None, fields, expire=3600)
    one = stage.beat("a").starts(stage.every(60))
    stage.until(121, [one])
    assert stage.times == [60.0, 120.0]


# What goes wrong


def test_the_store_is_down(stage: Stage, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Published all the same: the task's lock tells the copies apart. Beat waits once, not at each entry."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0.05}}
    beats = [stage.beat(name).starts(stage.every(60)) for name in "ab"]
    stage.until(61, beats)
    assert stage.times == [60.0, 60.0]
    assert caplog.text.count("is published without a claim") == 1
    settings.REDIS_LOCKS = {"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend"}}
    beat._down.clear()  # its respite is over
    stage.until(121, beats)
    assert stage.times == [60.0, 60.0, 120.0]


def test_a_claim_says_that_the_store_is_down(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever publishes needn't try it himself, and let all of beat's entries wait once more."""
    monkeypatch.setattr(beat, "_down", {})
    ticks = [beat.Tick(name, "report", 60, None, "a") for name in "xyz"]
    assert not beat.claim("default", ticks[0], "1").blind
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0.05}}
    first, second = (beat.claim("default", tick, "2") for tick in ticks[1:])
    assert (first.won, first.blind) == (second.won, second.blind) == (True, True)
    first.give_back()


def test_another_thing_lives_under_the_key(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    from django_redis_locks import locks

    with locks.lock("tick:report:hourly", expire=3600):
        one = stage.beat("a").starts(stage.every(60))
        stage.until(61, [one])
    assert len(stage.runs) == 1
    assert "is published without a claim" in caplog.text


def test_a_schedule_that_fails(stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    one = stage.beat("a").starts(stage.every(60))
    stage.until(59, [one])
    monkeypatch.setattr(beat, "due", lambda *args: 1 / 0)
    stage.until(61, [one])
    assert len(stage.runs) == 1
    assert "The schedule of beat entry 'hourly' can't be read" in caplog.text


def test_it_attaches_when_beat_starts(stage: Stage) -> None:
    """Also an embedded one, which sends both signals: wrapped once."""

    class Service:
        scheduler = Scheduler(stage.app, lazy=True)

    service = Service()
    signals.beat_init.send(sender=service)
    once = service.scheduler.apply_async
    assert once.celery_locks
    signals.beat_embedded_init.send(sender=service)
    assert service.scheduler.apply_async is once


def test_it_cannot_attach(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """[C38] Celery swallows what a receiver raises. Ours says so, and beat starts."""

    class Strict(Scheduler):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "apply_async":
                raise AttributeError(name)
            super().__setattr__(name, value)

    class Service:
        scheduler = Strict(stage.app, lazy=True)

    signals.beat_init.send(sender=Service())
    (record,) = [record for record in caplog.records if record.name == "celery_locks.beat"]
    assert record.levelno == logging.ERROR
    assert "each of them publishes every tick" in record.getMessage()
