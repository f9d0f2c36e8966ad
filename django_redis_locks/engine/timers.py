"""What a thread is to do at certain times."""

from __future__ import annotations

import heapq
import itertools
from math import inf
from typing import TYPE_CHECKING

from ..core import clock

if TYPE_CHECKING:
    from collections.abc import Callable

PRUNE_ABOVE = 64
"""So many jobs may wait although nothing wants them any more."""


class Timers:
    """Jobs of one thread, each at a time of our clock."""

    def __init__(self) -> None:
        self._jobs: list[tuple[float, int, Callable[[], object], Callable[[], object]]] = []
        self._crowded = PRUNE_ABOVE
        self._count = itertools.count().__next__

    def __len__(self) -> int:
        return len(self._jobs)

    def next_due(self) -> float:
        """When the next one is due; infinity if there is none."""
        return self._jobs[0][0] if self._jobs else inf

    def at(self, at: float, job: Callable[[], object], wanted: Callable[[], object]) -> None:
        """Do a job then. Once many wait, those that aren't ``wanted`` any more are forgotten."""
        heapq.heappush(self._jobs, (at, self._count(), job, wanted))
        if len(self._jobs) > self._crowded:
            self._jobs = [entry for entry in self._jobs if entry[3]()]
            heapq.heapify(self._jobs)
            self._crowded = PRUNE_ABOVE + 2 * len(self._jobs)

    def run_due(self) -> None:
        """Do what is due."""
        while self._jobs and self._jobs[0][0] <= clock.now():
            heapq.heappop(self._jobs)[2]()
