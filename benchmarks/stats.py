"""Statistics of the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

Figures = dict[str, float]

SECOND = 1_000_000_000  # ns


class Acquisition(NamedTuple):
    """One acquisition and release by a worker, in ns of a clock that all workers share."""

    requested: int
    acquired: int
    released: int  # just before the call of release
    worker: int


def percentile(values: Iterable[float], percent: float) -> float:
    """By nearest rank: a value that occurred. NaN without values."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def nanmedian(values: Iterable[float]) -> float:
    """The median without NaNs; NaN if there is no other value."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each round, so that a slow machine affects both sides alike."""
    return nanmedian(mine / other for mine, other in zip(ours, theirs, strict=False) if other)


def overlaps(acquisitions: Iterable[Acquisition]) -> int:
    """The number of acquisitions before the previous holder began to release. A correct lock has 0."""
    ordered = sorted(acquisitions, key=lambda one: one.acquired)
    count, free_at = 0, 0
    for one in ordered:
        count += one.acquired < free_at
        free_at = max(free_at, one.released)
    return count


def contention(acquisitions: Iterable[Acquisition], *, workers: int, start: int, end: int) -> Figures:
    """Figures of one hot lock from the acquisitions between `start` and `end`.

    A hand-off is an acquisition by another worker than the one before; its time is from the call of release to the
    return of acquire. A *turn* is the time of one acquisition times the workers: workers x seconds / acquisitions.
    """
    everything = sorted(acquisitions, key=lambda one: one.acquired)
    counted = [one for one in everything if start <= one.acquired < end]
    seconds = (end - start) / SECOND
    if not counted:
        return {"acquisitions": 0.0, "overlaps": float(overlaps(everything)), "starved": float(workers)}
    by_worker = [0] * workers
    for one in counted:
        by_worker[one.worker] += 1
    handed = [
        (later.acquired - earlier.released) / 1000
        for earlier, later in pairwise(counted)
        if later.worker != earlier.worker
    ]
    turn = workers * seconds / len(counted)
    longest = max(one.acquired - one.requested for one in everything) / SECOND
    return {
        "acquisitions": len(counted) / seconds,
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
