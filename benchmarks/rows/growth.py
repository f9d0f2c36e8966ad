"""How the cost grows with one parameter: a chart per topic, a figure per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..bench import Bench, Placement


class Topic(NamedTuple):
    caption: str
    grows: str  # what the steps are numbers of
    adapters: list[str]
    scenario: str
    argument: str
    steps: Sequence[int]
    figure: Callable[[dict[str, float]], float]
    placement: Placement
    seconds: float
    options: Mapping[str, Any] = MappingProxyType({})
    rounds: int = 3


def microseconds(figures: dict[str, float]) -> float:
    return figures["cpu"]


def per_handoff(figures: dict[str, float]) -> float:
    return 1e6 / figures["handoffs"] if figures.get("handoffs") else math.inf


TOPICS = {
    "waiting": Topic(
        "µs per hand-off to another process",
        "processes that wait for one lock",
        ["baton", "ours", "python-redis-lock", "redis-py"],
        "hot",
        "waiting",
        (1, 2, 4, 8, 16, 32),
        per_handoff,
        "none",
        0.7,
        {"workers": 33, "processes": True, "section": 0.0},
    ),
    "held": Topic(
        "CPU µs per acquire and release",
        "locks in the index, held by other threads",
        ["ours", "redis-py"],
        "uncontended",
        "others",
        (10, 100, 1_000, 10_000),
        microseconds,
        "same",
        0.3,
    ),
    "seen": Topic(
        "CPU µs per acquire and release of a new key",
        "keys acquired and released before",
        ["raw", "ours"],
        "uncontended",
        "seen",
        (1, 100, 10_000, 1_000_000),
        microseconds,
        "same",
        0.3,
        rounds=1,  # a million keys take a minute or two
    ),
    "own": Topic(
        "CPU µs per acquire and release",
        "locks held by the same thread",
        ["ours", "redis-py"],
        "uncontended",
        "own",
        (1, 10, 100, 1_000),
        microseconds,
        "same",
        0.3,
    ),
    "renewed": Topic(
        "client CPU µs per renewal",
        "locks held and renewed",
        ["raw-renewed", "ours", "one-by-one"],
        "renewals",
        "locks",
        (10, 100, 1_000, 10_000),
        lambda figures: figures["cpu_us"],
        "none",
        4.0,
        {"lease": 6.0},
        2,
    ),
    "length": Topic(
        "CPU µs per acquire and release",
        "characters of the key",
        ["raw", "ours", "redis-py"],
        "uncontended",
        "length",
        (10, 30, 100, 300, 1_000),
        microseconds,
        "same",
        0.2,
    ),
    "tasks": Topic(
        "CPU µs per acquire and release",
        "tasks in one event loop, each with its own key",
        ["raw-tasks", "ours-tasks", "redis-py-tasks", "cashews-tasks"],
        "tasks",
        "tasks",
        (1, 2, 5, 10, 20, 50),
        microseconds,
        "same",
        0.2,
    ),
}


def run(bench: Bench) -> None:
    for name, topic in TOPICS.items():
        bench.run_steps(
            bench.case("growth", name, topic.placement),
            topic.adapters,
            topic.scenario,
            steps=(topic.argument, topic.steps),
            figure=topic.figure,
            max_rounds=topic.rounds,
            seconds=topic.seconds,
            **topic.options,
        )
