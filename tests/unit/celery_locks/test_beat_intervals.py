"""[C5.5] The ticks of an interval, by beats stepped by hand: each counts from its own start."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from celery.beat import Scheduler

from celery_locks import beat
from tests.unit.celery_locks.stepped_beats import NOON, Stage, stage_seconds

EACH_MINUTE = [60.0, 120.0, 180.0, 240.0, 300.0]


def test_interval_with_beats_in_different_phases_is_published_by_one(stage: Stage) -> None:
    """[C35] Each counts from its own start. One of them publishes every tick, at the interval."""
    beats = stage.beats(stage.minutely, "a")
    stage.until(25, beats)
    beats += stage.beats(stage.minutely, "b")
    stage.until(601, beats)
    assert stage.runs == [(60.0 * n, "a") for n in range(1, 11)]


def test_interval_with_beats_in_one_phase_is_published_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """[C34] Without claims each of the beats publishes."""
    beats = stage.beats(stage.minutely)
    stage.until(301, beats)
    assert stage.times == EACH_MINUTE
    monkeypatch.setattr(beat, "covers", lambda found, tick: False)
    stage.until(601, beats)
    assert len(stage.runs) == 5 + 10


def test_interval_after_a_late_tick_counts_from_that_tick(stage: Stage) -> None:
    """The beat's own claim doesn't stop its next tick."""
    beats = stage.beats(lambda: stage.every(1), "a")
    for late in (0.2, 0.95, 3.5):
        stage.until(stage_seconds() + 3, beats, 0.05)
        stage.frozen.tick(1 + late)
        beats[0].step()
        last = stage.times[-1]
        stage.until(last + 3.01, beats, 0.05)
        assert [round(at - last, 2) for at in stage.times if at > last] == [1.0, 2.0, 3.0], late


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


def test_interval_is_taken_over_when_its_beat_stops(stage: Stage) -> None:
    beats = stage.beats(stage.minutely)
    stage.until(125, beats)
    first = stage.runs[-1][1]
    for one in beats:
        one.paused = one.name == first
    stage.until(305, beats)
    assert stage.times == EACH_MINUTE
    assert {by for at, by in stage.runs if at > 125} == {"a", "b"} - {first}


def test_restarted_beat_does_not_repeat_the_tick_of_another(stage: Stage) -> None:
    """[C36] It didn't save its last run, or counts it as overdue, and publishes at once: not what another one has."""
    beats = stage.beats(stage.minutely)
    stage.until(130, beats)
    stage.until(245, [beats[0], *stage.beats(stage.minutely, "bc", last_run_at=NOON)])
    assert stage.times == EACH_MINUTE[:4]


def test_interval_is_independent_of_clocks_that_are_off(stage: Stage) -> None:
    beats = [stage.beat(str(off), off).starts(stage.minutely()) for off in (-7200.0, 0.0, 55.0, 86400.0)]
    stage.until(301, beats)
    assert stage.times == EACH_MINUTE


@pytest.mark.parametrize("seed", range(3))
def test_interval_with_random_phases_and_delays_loses_and_repeats_no_tick(stage: Stage, seed: int) -> None:
    """No two ticks within nine tenths of an interval, and between two ticks in a row of one beat at least one was
    published, by it or another beat."""
    chance = random.Random(seed)
    beats = []
    for name in "abc":
        stage.until(stage_seconds() + chance.uniform(0, 20), beats, 0.5)
        beats += stage.beats(lambda: stage.every(10), name)

    def stumble() -> None:
        for one in beats:
            one.paused = chance.random() < 0.3

    seen = [_ticks(one.scheduler) for one in beats]
    begin = stage_seconds()
    stage.until(begin + 600, beats, 0.5, stumble)
    times = [at for at in stage.times if at > begin]
    assert min(b - a for a, b in pairwise(times)) >= 9
    for ticks in seen:
        assert len(ticks) > 40
        for before, after in pairwise(ticks):
            assert any(before < at <= after or at == before for at in times)


def _ticks(scheduler: Scheduler) -> list[float]:
    """The times of its ticks from now on, published or not."""
    plain, ticks = scheduler.apply_async, []

    def apply_async(*args: Any, **kwargs: Any) -> Any:
        ticks.append(stage_seconds())
        return plain(*args, **kwargs)

    scheduler.apply_async = apply_async
    return ticks
