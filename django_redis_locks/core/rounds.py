"""Which leases are to be renewed next. Leases of one period come due in the order in which they were taken, so a round of
one period is a plain dict: in and out cost the same with one hold as with ten thousand."""

from __future__ import annotations

import threading
import weakref
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from . import clock

if TYPE_CHECKING:
    from .effects import Command
    from .grant import Hold


class Lease(NamedTuple):
    """A hold to renew: when, whose, how, and for how many milliseconds."""

    due: float
    hold: weakref.ref[Hold]
    prolong: Command[bool]
    lease: int


class Rounds:
    """The leases of one store, weakly held."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._rounds: dict[float, dict[int, Lease]] = {}

    def enter(self, hold: Hold, prolong: Command[bool], lease: int, since: float, period: float) -> float:
        """Renew this hold ``period`` seconds after ``since``, which is now or was a moment ago; returns that time."""
        due = since + period
        with self._mutex:
            round = self._rounds.setdefault(period, {})
            round.pop(id(hold), None)  # left by a dead hold, whose place in the order isn't ours
            if round and due < next(reversed(round.values())).due:
                # Its answer took long: it must not wait behind those that came meanwhile
                round = self._rounds.setdefault(due - clock.now(), {})
            round[id(hold)] = Lease(due, weakref.ref(hold), prolong, lease)
        return due

    def remove(self, hold: Hold) -> None:
        with self._mutex:
            for round in self._rounds.values():
                round.pop(id(hold), None)

    def first(self) -> float:
        """When the next one is due; infinity if there is none."""
        with self._mutex:
            return min((next(iter(round.values())).due for round in self._rounds.values() if round), default=inf)

    def due(self, now: float, most: int) -> list[Lease]:
        """Take out what is due, at most so many."""
        due: list[Lease] = []
        with self._mutex:
            for period, round in list(self._rounds.items()):
                for key, entry in list(islice(round.items(), most)):
                    if entry.due > now or len(due) >= most:
                        break
                    if round.pop(key, None) is not None:
                        due.append(entry)
                if not round:
                    self._rounds.pop(period, None)
        return due
