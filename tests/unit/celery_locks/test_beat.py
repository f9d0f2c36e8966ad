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
from tests.unit.celery_locks.stepped_beats import NOON, Stage

DOWN = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0.05}}

EACH_MINUTE = [60.0, 120.0, 180.0, 240.0, 300.0]

# Intervals


def test_interval_with_beats_in_one_phase_is_published_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C34] Without claims each of the beats publishes."""
    beats = stage.beats(stage.minutely)
    stage.until(301, beats)
    assert stage.times == EACH_MINUTE
    monkeypatch.setattr(beat, "covers", lambda found, tick: False)
    stage.until(601, beats)
    assert len(stage.runs) == 5 + 10


def test_interval_with_beats_in_different_phases_is_published_by_one(stage: Stage) -> None:
    """[C35] Each counts from its own start, whatever its clock says. One publishes every tick, at the interval, until it
    stops."""
    a = stage.beat("a", -7200.0).starts(stage.minutely())
    stage.until(25, [a])
    beats = [a, *(stage.beat(str(off), off).starts(stage.minutely()) for off in (0.0, 55.0, 86400.0))]
    stage.until(601, beats)
    assert stage.runs == [(60.0 * n, "a") for n in range(1, 11)]
    a.paused = True
    stage.until(901, beats)
    assert [at for at in stage.times if at > 601] == [685.0, 745.0, 805.0, 865.0]


def test_slow_claim_does_not_cover_the_next_tick_of_its_beat(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store took its time, and beat reads its schedule again, so that the next tick is due before the claim ends."""
    (one,) = stage.beats(lambda: stage.every(1), "a")
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


def test_relative_interval_is_due_soon_after_a_late_tick(stage: Stage) -> None:
    """It is rounded to the minute: a tick at 12:01:50 is followed by one at 12:02:00, by either beat."""
    a, b = beats = stage.beats(lambda: stage.every(60, relative=True))
    b.paused = True
    stage.frozen.tick(110)
    a.step()
    a.paused, b.paused = True, False
    stage.until(181, beats)
    assert stage.runs == [(110.0, "a"), (120.0, "b"), (180.0, "b")]


def test_restarted_beat_does_not_repeat_the_tick_of_another(stage: Stage) -> None:
    """[C36] It didn't save its last run, or counts it as overdue, and publishes at once: not what another one has."""
    beats = stage.beats(stage.minutely)
    stage.until(130, beats)
    stage.until(245, [beats[0], *stage.beats(stage.minutely, "bc", last_run_at=NOON)])
    assert stage.times == EACH_MINUTE[:4]


@pytest.mark.parametrize("case", ["daily to minutely", "monthly crontab to minutely", "interval to crontab"])
def test_entry_whose_schedule_changes_is_published_each_minute(stage: Stage, case: str) -> None:
    """A claim of a long interval doesn't cover the ticks of a short one, nor that of another kind."""
    old, new = {
        "daily to minutely": (stage.every(86400), stage.minutely()),
        "monthly crontab to minutely": (stage.cron("0", "0", day_of_month="1"), stage.minutely()),
        "interval to crontab": (stage.every(30 * 86400), stage.cron()),
    }[case]
    stage.until(1, [stage.beat("a").starts(old, last_run_at=NOON - timedelta(days=62))])
    assert len(stage.runs) == 1
    stage.until(121, [stage.beat("b").starts(new)])
    assert stage.times == ([1.0, 60.0, 120.0] if case == "interval to crontab" else [1.0, 61.0, 121.0])


# Claims


def test_lost_claim_returns_the_winners_result(stage: Stage) -> None:
    a, b = stage.beats(stage.minutely)
    stage.until(59, [a, b])
    stage.frozen.tick(1)
    first, second = (one.scheduler.apply_async(one.scheduler.schedule["hourly"], advance=False) for one in (a, b))
    assert first.id == second.id
    assert len(stage.runs) == 1


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


def test_each_entry_is_claimed_by_its_name_and_one_without_a_key_is_published_by_each_beat(stage: Stage) -> None:
    """A lost tick is worse than a repeated one."""
    names = ["with space {0}%", "日次", "x" * 500]
    beats = stage.beats(stage.minutely, name=None)
    for one in beats:
        for name in [*names, "\ud800"]:
            one.scheduler.add(name=name, task="report", schedule=one.scheduler.schedule[None].schedule)
    stage.until(61, beats)
    assert len(stage.runs) == 2 + len(names) + 2


# Failures


def test_record_of_another_version_or_a_foreign_value_does_not_stop_a_tick(stage: Stage) -> None:
    (one,) = stage.beats(stage.minutely, "a")
    found: list[dict[str, Any]] = [{}, {"id": 3, "for": 1}, {"id": "a", "for": "long", "slot": []}, {"slot": "x"}]
    for number, fields in enumerate(found):
        one.scheduler.add(name=f"{number}", task="report", schedule=one.scheduler.schedule["hourly"].schedule)
        locks.record(f"tick:report:{number}").put(None, fields, expire=3600)
    with locks.lock("tick:report:hourly", expire=3600):
        stage.until(121, [one])
    assert stage.times == [60.0] * 5 + [120.0] * 5


def test_store_that_is_down_lets_each_beat_publish_until_it_is_back(
    stage: Stage, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The task's lock tells the copies apart. Beat waits once, not at each entry."""
    memory, settings.REDIS_LOCKS = settings.REDIS_LOCKS, DOWN
    beats = stage.beats(stage.minutely)
    stage.until(61, beats)
    assert stage.times == [60.0, 60.0]
    assert caplog.text.count("is published without a claim") == 1
    settings.REDIS_LOCKS = memory
    beat._down.clear()  # its respite is over
    stage.until(121, beats)
    assert stage.times == [60.0, 60.0, 120.0]


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
