"""[C5.5] Several beats publish each tick once: real schedulers, records in memory, a frozen clock."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, signals
from celery.beat import BeatLazyFunc, Scheduler

from celery_locks import SingletonTask, beat
from django_redis_locks import clock, locks
from tests.unit.celery_locks.beat_harness import NOON, BeatHarness

DOWN = {"default": {"LOCATION": "redis://127.0.0.1:1/0", "WAIT": 0.05}}

EACH_MINUTE = [60.0, 120.0, 180.0, 240.0, 300.0]

# Intervals


def test_interval_with_beats_in_phase_is_published_once(harness: BeatHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C34] Without claims each beat publishes."""
    beats = harness.beats(harness.minutely)
    harness.run_until(301, beats)
    assert harness.times == EACH_MINUTE
    monkeypatch.setattr(beat, "covers", lambda found, tick: False)
    harness.run_until(601, beats)
    assert len(harness.runs) == 5 + 10


def test_interval_with_beats_out_of_phase_is_published_by_one(harness: BeatHarness) -> None:
    """[C35] Each counts from its own start, with any clock offset. One beat publishes every tick until it stops."""
    a = harness.beat("a", -7200.0).start(harness.minutely())
    harness.run_until(25, [a])
    beats = [a, *(harness.beat(str(off), off).start(harness.minutely()) for off in (0.0, 55.0, 86400.0))]
    harness.run_until(601, beats)
    assert harness.runs == [(60.0 * n, "a") for n in range(1, 11)]
    a.paused = True
    harness.run_until(901, beats)
    assert [at for at in harness.times if at > 601] == [685.0, 745.0, 805.0, 865.0]


def test_slow_claim_does_not_cover_the_next_tick_of_its_beat(
    harness: BeatHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was slow, and beat reloads its schedule, so that the next tick is due before the claim ends."""
    (one,) = harness.beats(lambda: harness.every(1), "a")
    plain = beat._claim

    def slow(*args: Any) -> Any:
        harness.frozen.tick(0.4)
        return plain(*args)

    with monkeypatch.context() as patch:
        patch.setattr(beat, "_claim", slow)
        harness.run_until(1.2, [one], 0.05)
    assert harness.times == [1.4]
    one.scheduler._heap = None
    harness.run_until(3.1, [one], 0.05)
    assert harness.times == pytest.approx([1.4, 2.0, 3.0], abs=0.06)


def test_relative_interval_is_due_soon_after_a_late_tick(harness: BeatHarness) -> None:
    """It is rounded to the minute: a tick at 12:01:50 is followed by one at 12:02:00, of any beat."""
    a, b = beats = harness.beats(lambda: harness.every(60, relative=True))
    b.paused = True
    harness.frozen.tick(110)
    a.step()
    a.paused, b.paused = True, False
    harness.run_until(181, beats)
    assert harness.runs == [(110.0, "a"), (120.0, "b"), (180.0, "b")]


def test_restarted_beat_does_not_repeat_the_tick_of_another(harness: BeatHarness) -> None:
    """[C36] Without a saved last run, or with an overdue one, it publishes at once, except ticks of another beat."""
    beats = harness.beats(harness.minutely)
    harness.run_until(130, beats)
    harness.run_until(245, [beats[0], *harness.beats(harness.minutely, "bc", last_run_at=NOON)])
    assert harness.times == EACH_MINUTE[:4]


@pytest.mark.parametrize("case", ["daily to minutely", "monthly crontab to minutely", "interval to crontab"])
def test_entry_whose_schedule_changes_is_published_each_minute(harness: BeatHarness, case: str) -> None:
    """A claim of a long interval doesn't cover the ticks of a short one, nor those of another type of schedule."""
    old, new = {
        "daily to minutely": (harness.every(86400), harness.minutely()),
        "monthly crontab to minutely": (harness.cron("0", "0", day_of_month="1"), harness.minutely()),
        "interval to crontab": (harness.every(30 * 86400), harness.cron()),
    }[case]
    harness.run_until(1, [harness.beat("a").start(old, last_run_at=NOON - timedelta(days=62))])
    assert len(harness.runs) == 1
    harness.run_until(121, [harness.beat("b").start(new)])
    assert harness.times == ([1.0, 60.0, 120.0] if case == "interval to crontab" else [1.0, 61.0, 121.0])


# Claims


def test_lost_claim_returns_the_winners_result(harness: BeatHarness) -> None:
    a, b = harness.beats(harness.minutely)
    harness.run_until(59, [a, b])
    harness.frozen.tick(1)
    first, second = (one.scheduler.apply_async(one.scheduler.schedule["hourly"], advance=False) for one in (a, b))
    assert first.id == second.id
    assert len(harness.runs) == 1


def test_returned_claim_can_be_won_again(harness: BeatHarness) -> None:
    """[C37] After a failed publish, beat doesn't retry before the next tick, so another beat may publish this one."""
    tick, other = (beat.Tick("hourly", "report", 60, None, name) for name in "ab")
    first = beat.claim("default", tick, "1")
    assert (first.won, first.winner) == (True, "1")
    assert beat.claim("default", tick, "2") is first
    first.give_back()
    assert beat.claim("default", tick, "3").won
    assert beat.claim("default", other, "4").winner == "3"


def test_messages_published_in_one_tick_share_one_claim(harness: BeatHarness) -> None:
    """A task's own `apply_async` may publish several messages: all by the winner, none by the others."""
    harness.task.messages_per_call = 3
    harness.run_until(121, harness.beats(harness.minutely))
    assert harness.times == [60.0] * 3 + [120.0] * 3


def test_calls_by_other_tasks_than_the_entrys_are_no_ticks(harness: BeatHarness) -> None:
    """Calls outside of beat, by a lazy argument, or by an entry whose task is a plain one."""
    seen: list[object] = []
    lazy = BeatLazyFunc(lambda: seen.extend((beat.current("other"), beat.current("report"))))

    @harness.app.task(name="plain")
    def plain() -> None: ...

    plain.apply_async = lambda *args, **kwargs: seen.append(beat.current())
    harness.run_until(61, harness.beats(harness.minutely, "a", args=(lazy,)))
    assert seen[0] is None
    assert repr(seen[1]) == "<Tick of 'hourly'>"
    assert beat.current() is None
    harness.task.apply_async()
    harness.task.apply_async()
    assert len(harness.runs) == 3
    harness.run_until(122, harness.beats(harness.minutely, "a", task="plain"))
    assert seen[2:] == [None]


def test_entries_are_claimed_by_name_and_without_a_usable_name_published_by_each_beat(harness: BeatHarness) -> None:
    """A lost tick is worse than a repeated one."""
    names = ["with space {0}%", "日次", "x" * 500]
    beats = harness.beats(harness.minutely, name=None)
    for one in beats:
        for name in [*names, "\ud800"]:
            one.scheduler.add(name=name, task="report", schedule=one.scheduler.schedule[None].schedule)
    harness.run_until(61, beats)
    assert len(harness.runs) == 2 + len(names) + 2


# Failures


def test_record_of_another_version_or_a_foreign_value_does_not_stop_a_tick(harness: BeatHarness) -> None:
    (one,) = harness.beats(harness.minutely, "a")
    found: list[dict[str, Any]] = [{}, {"id": 3, "for": 1}, {"id": "a", "for": "long", "slot": []}, {"slot": "x"}]
    for number, fields in enumerate(found):
        one.scheduler.add(name=f"{number}", task="report", schedule=one.scheduler.schedule["hourly"].schedule)
        locks.record(f"tick:report:{number}").put(None, fields, expire=3600)
    with locks.lock("tick:report:hourly", expire=3600):
        harness.run_until(121, [one])
    assert harness.times == [60.0] * 5 + [120.0] * 5


def test_store_that_is_down_lets_each_beat_publish_until_it_is_back(
    harness: BeatHarness, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The task's lock detects the copies. Beat waits for the store once, not for each entry."""
    memory, settings.REDIS_LOCKS = settings.REDIS_LOCKS, DOWN
    beats = harness.beats(harness.minutely)
    harness.run_until(61, beats)
    assert harness.times == [60.0, 60.0]
    assert caplog.text.count("is published without a claim") == 1
    settings.REDIS_LOCKS = memory
    beat._down.clear()  # the pause after a failure is over
    harness.run_until(121, beats)
    assert harness.times == [60.0, 60.0, 120.0]


def test_submissions_of_beat_wait_for_a_store_that_is_down_once(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, beat would wait `WAIT` seconds for each entry."""
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
    harness: BeatHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = harness.beats(harness.minutely, "a")
    harness.run_until(59, beats)
    monkeypatch.setattr(beat, "due", lambda *args: 1 / 0)
    harness.run_until(61, beats)
    assert len(harness.runs) == 1
    assert "The schedule of beat entry 'hourly' can't be read" in caplog.text


# Attaching to the scheduler


def test_scheduler_is_wrapped_once_when_beat_starts(harness: BeatHarness) -> None:
    """Also in an embedded beat, which sends both signals."""

    class Service:
        scheduler = Scheduler(harness.app, lazy=True)

    service = Service()
    signals.beat_init.send(sender=service)
    once = service.scheduler.apply_async
    assert once.celery_locks
    signals.beat_embedded_init.send(sender=service)
    assert service.scheduler.apply_async is once


def test_scheduler_that_cannot_be_wrapped_logs_an_error(harness: BeatHarness, caplog: pytest.LogCaptureFixture) -> None:
    """[C38] Celery ignores exceptions of receivers. Ours logs the error, and beat starts."""

    class Strict(Scheduler):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "apply_async":
                raise AttributeError(name)
            super().__setattr__(name, value)

    class Service:
        scheduler = Strict(harness.app, lazy=True)

    signals.beat_init.send(sender=Service())
    (record,) = [record for record in caplog.records if record.name == "celery_locks.beat"]
    assert record.levelno == logging.ERROR
    assert "publishes its ticks even if another beat does" in record.getMessage()
