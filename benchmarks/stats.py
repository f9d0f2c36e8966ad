"""Plain arithmetic of the figures. No clock, no server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

Figures = dict[str, float]

SECOND = 1_000_000_000  # ns


class Pass(NamedTuple):
    """One turn of a worker, in ns of a clock that all workers share."""

    asked: int
    acquired: int
    released: int  # just before the release was called
    worker: int


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest rank: a value that did occur. NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def middle(values: Iterable[float]) -> float:
    """The median of what is a number; NaN if nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each round, so that a slow minute of the machine weighs on both."""
    return middle(mine / other for mine, other in zip(ours, theirs, strict=False) if other)


def overlaps(passes: Iterable[Pass]) -> int:
    """How often somebody got the lock before its holder began to release it. Anything but 0 is no lock."""
    ordered = sorted(passes, key=lambda one: one.acquired)
    count, free_at = 0, 0
    for one in ordered:
        count += one.acquired < free_at
        free_at = max(free_at, one.released)
    return count


def contention(passes: Iterable[Pass], *, workers: int, start: int, end: int) -> Figures:
    """What the passes between `start` and `end` say about one hot lock.

    A hand-off is a pass that follows one of another worker; its time goes from the call of release to the return of
    acquire. A *turn* is what a pass costs all workers together: workers x seconds / passes.
    """
    everything = sorted(passes, key=lambda one: one.acquired)
    counted = [one for one in everything if start <= one.acquired < end]
    seconds = (end - start) / SECOND
    if not counted:
        return {"passes": 0.0, "overlaps": float(overlaps(everything)), "starved": float(workers)}
    by_worker = [0] * workers
    for one in counted:
        by_worker[one.worker] += 1
    handed = [
        (later.acquired - earlier.released) / 1000
        for earlier, later in pairwise(counted)
        if later.worker != earlier.worker
    ]
    turn = workers * seconds / len(counted)
    longest = max(one.acquired - one.asked for one in everything) / SECOND
    return {
        "passes": len(counted) / seconds,
        "handoffs": len(handed) / seconds,
        "handoff_p50": percentile(handed, 50),
        "handoff_p99": percentile(handed, 99),
        "same": 100 * (1 - len(handed) / max(1, len(counted) - 1)),
        "spread": max(by_worker) / min(by_worker) if min(by_worker) else math.inf,
        "starved": float(by_worker.count(0)),
        "longest_ms": longest * 1000,
        "longest_turns": longest / turn,
        "overlaps": float(overlaps(everything)),
        "counted": float(len(counted)),
    }
