"""Timers: the jobs of a thread, each at a time. Tasks sleep on them."""

from __future__ import annotations

import heapq
import itertools
from math import inf
from typing import TYPE_CHECKING

from ..core import clock

if TYPE_CHECKING:
    from collections.abc import Callable

PRUNE_ABOVE = 64
"""The number of jobs above which cancelled ones are removed."""


class Timers:
    """The jobs of one thread, each at a time of the engine's clock."""

    def __init__(self) -> None:
        self._jobs: list[tuple[float, int, Callable[[], object], Callable[[], object]]] = []
        self._crowded = PRUNE_ABOVE
        self._count = itertools.count().__next__

    def __len__(self) -> int:
        return len(self._jobs)

    def next_due(self) -> float:
        """Return when the next job is due; infinity if there is none."""
        return self._jobs[0][0] if self._jobs else inf

    def at(self, at: float, job: Callable[[], object], wanted: Callable[[], object]) -> None:
        """Run ``job`` at a time. When many jobs wait, those whose ``wanted`` returns a false value are removed."""
        heapq.heappush(self._jobs, (at, self._count(), job, wanted))
        if len(self._jobs) > self._crowded:
            self._jobs = [entry for entry in self._jobs if entry[3]()]
            heapq.heapify(self._jobs)
            self._crowded = PRUNE_ABOVE + 2 * len(self._jobs)

    def run_due(self) -> None:
        """Run the jobs that are due."""
        while self._jobs and self._jobs[0][0] <= clock.now():
            heapq.heappop(self._jobs)[2]()
