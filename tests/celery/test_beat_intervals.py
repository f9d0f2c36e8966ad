"""[C5.5] The ticks of an interval, by beats stepped by hand: each counts from its own start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from celery.beat import Scheduler

from celery_locks import beat
from tests.celery.beats import NOON, Stage, open_stage, stage_seconds


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Stage]:
    with open_stage(monkeypatch, settings) as stage:
        yield stage


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


def _note(scheduler: Scheduler, ticks: list[float]) -> None:
    plain = scheduler.apply_async

    def apply_async(*args: Any, **kwargs: Any) -> Any:
        ticks.append(stage_seconds())
        return plain(*args, **kwargs)

    scheduler.apply_async = apply_async
