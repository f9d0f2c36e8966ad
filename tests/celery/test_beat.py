"""[C5.5] Several beats, one tick: real schedulers stepped by hand, the records in memory, on a clock that the test moves."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import signals
from celery.beat import BeatLazyFunc, Scheduler, SchedulingError

from celery_locks import beat, slots
from tests.celery.beats import NOON, Stage, open_stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Stage]:
    with open_stage(monkeypatch, settings) as stage:
        yield stage


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


def test_a_name_that_no_key_can_have_is_not_claimed(stage: Stage) -> None:
    beats = [stage.beat(name).starts(stage.every(60), name="\ud800") for name in "ab"]
    stage.until(61, beats)
    assert len(stage.runs) == 2


# What goes wrong


def test_the_store_is_down(stage: Stage, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Published all the same: the task's lock tells the copies apart. Beat waits once, not at each entry."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0.05}}
    beats = [stage.beat(name).starts(stage.every(60)) for name in "ab"]
    stage.until(61, beats)
    assert stage.times == [60.0, 60.0]
    assert caplog.text.count("is published without a claim") == 1
    settings.REDIS_LOCKS = {
        "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": "beats"}
    }
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
