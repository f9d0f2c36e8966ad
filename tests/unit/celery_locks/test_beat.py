"""[C5.5] Several beats, one tick: real schedulers stepped by hand, the records in memory, on a clock that the test moves."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, signals
from celery.beat import BeatLazyFunc, Scheduler

from celery_locks import SingletonTask, beat
from django_redis_locks import clock, locks
from tests.unit.celery_locks.stepped_beats import DOWN, MEMORY, NOON, Stage

# A schedule that changes


def test_daily_entry_that_becomes_minutely_is_published_each_minute(stage: Stage) -> None:
    """A claim of the daily interval doesn't cover a day of minutes."""
    beats = stage.beats(lambda: stage.every(86400), last_run_at=NOON - timedelta(days=1))
    stage.until(10, beats)
    assert stage.runs == [(1.0, "a")]
    stage.until(191, stage.beats(stage.minutely, "cd"))
    assert stage.times == [1.0, 70.0, 130.0, 190.0]


@pytest.mark.parametrize("monthly_first", [True, False])
def test_entry_that_changes_its_kind_is_published_each_minute(stage: Stage, monthly_first: bool) -> None:
    old = stage.cron("0", "0", day_of_month="1") if monthly_first else stage.every(30 * 86400)
    new = stage.minutely() if monthly_first else stage.cron()
    stage.until(1, [stage.beat("a").starts(old, last_run_at=NOON - timedelta(days=62))])
    assert len(stage.runs) == 1
    stage.until(121, [stage.beat("b").starts(new)])
    assert stage.times == ([1.0, 61.0, 121.0] if monthly_first else [1.0, 60.0, 120.0])


# Claims


def test_lost_claim_returns_the_winners_result(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    a, b = stage.beats(stage.minutely)
    stage.until(59, [a, b])
    stage.frozen.tick(1)
    a.step()
    caplog.set_level(logging.DEBUG)
    (entry,) = b.scheduler.schedule.values()
    result = b.scheduler.apply_async(entry, advance=False)
    assert result.id == stage.journal[0].id
    assert f"is published already, as task {result.id}" in caplog.text


def test_claim_given_back_can_be_won_again(stage: Stage) -> None:
    """[C37] After a failed publish: beat doesn't try again before the next tick, so another beat may have this one."""
    tick, other = (beat.Tick("hourly", "report", 60, None, name) for name in "ab")
    first = beat.claim("default", tick, "1")
    assert (first.won, first.winner) == (True, "1")
    assert beat.claim("default", tick, "2") is first
    first.give_back()
    assert beat.claim("default", tick, "3").won
    assert beat.claim("default", other, "4").winner == "3"


def test_messages_published_in_one_tick_share_one_claim(stage: Stage) -> None:
    """A task's own `apply_async` may publish three messages: all by the winner, none by the others."""
    stage.task.fan = 3
    stage.until(121, stage.beats(stage.minutely))
    assert stage.times == [60.0] * 3 + [120.0] * 3


def test_calls_by_other_tasks_than_the_entrys_are_no_ticks(stage: Stage) -> None:
    """Outside of beat, by a lazy argument, or of an entry whose task is a plain one."""
    seen: list[object] = []
    lazy = BeatLazyFunc(lambda: seen.extend((beat.current("other"), beat.current("report"))))

    @stage.app.task(name="plain")
    def plain() -> None: ...

    plain.apply_async = lambda *args, **kwargs: seen.append(beat.current())
    stage.until(61, stage.beats(stage.minutely, "a", args=(lazy,)))
    assert seen[0] is None
    assert repr(seen[1]) == "<Tick of 'hourly'>"
    assert beat.current() is None
    stage.task.apply_async()
    stage.task.apply_async()
    assert len(stage.runs) == 3
    stage.until(122, stage.beats(stage.minutely, "a", task="plain"))
    assert seen[2:] == [None]


# Names of entries


@pytest.mark.parametrize("name", [None, "\ud800"])
def test_entry_whose_name_is_no_key_is_published_by_each_beat(stage: Stage, name: str | None) -> None:
    """Two of them can't be told apart, and a lost tick is worse than a repeated one."""
    stage.until(61, stage.beats(stage.minutely, name=name))
    assert len(stage.runs) == 2


def test_each_entry_of_a_task_is_claimed_by_its_own_name(stage: Stage) -> None:
    names = ["with space {0}%", "日次", "x" * 500]
    beats = stage.beats(stage.minutely)
    for one in beats:
        for name in names:
            one.scheduler.add(name=name, task="report", schedule=one.scheduler.schedule["hourly"].schedule)
    stage.until(61, beats)
    assert len(stage.runs) == 1 + len(names)


# Failures


def test_record_of_another_version_does_not_stop_a_tick(stage: Stage) -> None:
    (one,) = stage.beats(stage.minutely, "a")
    found: list[dict[str, Any]] = [{}, {"id": 3, "for": 1}, {"id": "a", "for": "long", "slot": []}, {"slot": "x"}]
    for number, fields in enumerate(found):
        one.scheduler.add(name=f"{number}", task="report", schedule=one.scheduler.schedule["hourly"].schedule)
        locks.record(f"tick:report:{number}").put(None, fields, expire=3600)
    stage.until(121, [one])
    assert stage.times == [60.0] * 5 + [120.0] * 5


def test_store_that_is_down_lets_each_beat_publish_until_it_is_back(
    stage: Stage, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The task's lock tells the copies apart. Beat waits once, not at each entry."""
    settings.REDIS_LOCKS = DOWN
    beats = stage.beats(stage.minutely)
    stage.until(61, beats)
    assert stage.times == [60.0, 60.0]
    assert caplog.text.count("is published without a claim") == 1
    settings.REDIS_LOCKS = MEMORY
    beat._down.clear()  # its respite is over
    stage.until(121, beats)
    assert stage.times == [60.0, 60.0, 120.0]


def test_claim_is_blind_while_the_store_is_down(stage: Stage, settings: Any) -> None:
    """The submission needn't try the store itself, and delay all of beat's entries."""
    ticks = [beat.Tick(name, "report", 60, None, "a") for name in "xyz"]
    assert not beat.claim("default", ticks[0], "1").blind
    settings.REDIS_LOCKS = DOWN
    first, second = (beat.claim("default", tick, "2") for tick in ticks[1:])
    assert (first.won, first.blind) == (second.won, second.blind) == (True, True)
    first.give_back()


def test_submissions_of_beat_wait_for_a_store_that_is_down_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each of the entries for as long as submissions wait otherwise."""
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


def test_foreign_value_under_the_key_does_not_stop_a_tick(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with locks.lock("tick:report:hourly", expire=3600):
        stage.until(61, stage.beats(stage.minutely, "a"))
    assert len(stage.runs) == 1
    assert "is published without a claim" in caplog.text


def test_schedule_that_raises_does_not_stop_a_tick(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = stage.beats(stage.minutely, "a")
    stage.until(59, beats)
    monkeypatch.setattr(beat, "due", lambda *args: 1 / 0)
    stage.until(61, beats)
    assert len(stage.runs) == 1
    assert "The schedule of beat entry 'hourly' can't be read" in caplog.text


# Attaching to the scheduler


def test_scheduler_is_wrapped_once_when_beat_starts(stage: Stage) -> None:
    """Also an embedded beat, which sends both signals."""

    class Service:
        scheduler = Scheduler(stage.app, lazy=True)

    service = Service()
    signals.beat_init.send(sender=service)
    once = service.scheduler.apply_async
    assert once.celery_locks
    signals.beat_embedded_init.send(sender=service)
    assert service.scheduler.apply_async is once


def test_scheduler_that_cannot_be_wrapped_logs_an_error(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """[C38] Celery swallows what a receiver raises. Ours logs it, and beat starts."""

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
