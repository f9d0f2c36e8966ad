"""Submissions, runs, retries, deaths, copies and failures in every order that a seed comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_locks import SingletonTask, start
from celery_locks.decisions import Verdict, at_start
from celery_locks.job import Job
from celery_locks.message import Message
from tests.celery.unit.stepping import World

SEEDS = 40

TROUBLE = {"death": 1, "copy": 1, "pause": 1}

SCENES: dict[str, dict[str, Any]] = {
    "three at once": {"chances": {"pause": 1}},
    "deaths and copies": {"chances": {"death": 2, "copy": 2, "pause": 1}},
    "a singleton, deaths and copies": {"base": SingletonTask, "chances": {"death": 2, "copy": 2, "pause": 1}},
    "the store fails": {"base": SingletonTask, "chances": {"store": 2}},
    "the store and a process fail": {"base": SingletonTask, "chances": {"store": 1, "death": 1}},
    "the broker fails": {"chances": {"broker": 2}},
    "retries": {"plans": ["retry", "retry"], "chances": TROUBLE},
    "retries at once": {"plans": ["retry", "retry"]},
    "retries, and the broker fails": {"plans": ["retry"], "chances": {"broker": 1}},
    "failures": {"plans": ["fail"], "chances": TROUBLE},
    "bodies that submit themselves": {"plans": ["again", "again"], "chances": TROUBLE},
    "messages that go back": {"plans": ["requeue"], "chances": TROUBLE},
    "replaced": {"lock_on_duplicate": "replace", "chances": {"pause": 1}},
    "replaced, and the broker fails": {"lock_on_duplicate": "replace", "chances": {"broker": 1, "encode": 1}},
    "replaced, and processes die": {"lock_on_duplicate": "replace", "chances": TROUBLE},
    "until the start": {"unique_until": "start", "chances": TROUBLE},
    "until the start, replaced": {"unique_until": "start", "lock_on_duplicate": "replace", "chances": {"encode": 1}},
    "until the start, the store fails": {"unique_until": "start", "base": SingletonTask, "chances": {"store": 1}},
    "a rest": {"lock_min_hold": 30, "chances": TROUBLE},
    "answers": {"idempotency_ttl": 50, "chances": TROUBLE},
    "until it is expired": {"unique_until": "expired", "idempotency_ttl": 50, "chances": TROUBLE},
    "in canvas": {"counted": (1, 2), "chances": {"copy": 1, "pause": 1}},
    "in canvas, and the broker fails": {"counted": (1, 2), "chances": {"broker": 1}},
    "in canvas, replaced": {"counted": (0,), "lock_on_duplicate": "replace", "chances": {"pause": 1}},
    "each one": {"lock_on_duplicate": "queue", "lock_on_conflict": "retry", "chances": TROUBLE, "each": True},
    "each one goes back": {
        "lock_on_duplicate": "queue",
        "lock_on_conflict": "retry",
        "lock_retry_delay": 0,
        "plans": ["requeue"],
        "each": True,
    },
}


def explore(seed: int, scene: dict[str, Any]) -> World:
    options = dict(scene)
    plans, counted, each = options.pop("plans", []), options.pop("counted", ()), options.pop("each", False)
    with World(seed, **options).alive() as world:
        world.plans[""] = list(plans)
        for number in range(3):
            world.submitter(f"s{number}", counted=number in counted)
        while world.go_on():
            pass
        world.problems = world.verdict()
        if each:
            ran = {run.id for run in world.runs if run.outcome in ("success", "fail")}
            world.problems += [f"{told.id} was never run" for told in world.told if told.id not in ran]
    return world


@pytest.mark.parametrize("name", SCENES)
def test_whatever_the_order(name: str) -> None:
    for seed in range(SEEDS):
        world = explore(seed, SCENES[name])
        assert not world.problems, "\n".join([f"{name}, seed {seed}", *world.story, *world.problems])


def switched(rule: Verdict, to: Verdict) -> Callable[..., Verdict]:
    """The decisions without one of their rules."""

    def decide(job: Job | None, me: Message) -> Verdict:
        found = at_start(job, me)
        return to if found is rule else found

    return decide


RULES = {
    "who has the key is let be": ("deaths and copies", Verdict.CONFLICT, Verdict.RUN),
    "a copy of a live run is not run": ("deaths and copies", Verdict.PARK, Verdict.RUN),
    "a copy of a live run is not dropped": ("deaths and copies", Verdict.PARK, Verdict.ENDED),
    "a retry waits for its predecessor": ("retries at once", Verdict.FOLLOWING, Verdict.RUN),
    "what is being sent replaces nothing yet": (
        "replaced, and the broker fails",
        Verdict.SENDING,
        Verdict.SUPERSEDED,
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_it_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise what is above would prove nothing."""
    scene, found, to = RULES[rule]
    monkeypatch.setattr(start, "at_start", switched(found, to))
    assert any(explore(seed, SCENES[scene]).problems for seed in range(400))
