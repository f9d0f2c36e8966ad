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
    from .hold import Hold


class Lease(NamedTuple):
    """A hold to renew: when, whose, how, and for how many milliseconds."""

    due: float
    hold: weakref.ref[Hold]
    prolong: Command[bool]
    lease: int


class Rounds:
    """The leases of one store, weakly held.

    Its mutex may be entered again: by a release or an acquire that a signal handler or the collector begins within this
    same thread. So whoever iterates does so over a copy, and looks again if the round changed while it was made.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._rounds: dict[float, dict[int, Lease]] = {}

    def enter(self, hold: Hold, prolong: Command[bool], lease: int, since: float, period: float) -> float:
        """Renew this hold ``period`` seconds after ``since``, which is now or was a moment ago; returns that time."""
        due = since + period
        with self._mutex:
            round = self._rounds.setdefault(period, {})
            round.pop(id(hold), None)  # left by a dead hold, whose place in the order isn't ours
            last = _last(round)
            if last is not None and due < last.due:
                # Its answer took long: it must not wait behind those that came meanwhile
                round = self._rounds.setdefault(due - clock.now(), {})
            round[id(hold)] = Lease(due, weakref.ref(hold), prolong, lease)
        return due

    def remove(self, hold: Hold) -> None:
        with self._mutex:
            for round in [*self._rounds.values()]:
                round.pop(id(hold), None)

    def first(self) -> float:
        """When the next one is due; infinity if there is none."""
        with self._mutex:
            heads = [_head(round, 1) for round in list(self._rounds.values())]
            return min((entry.due for head in heads for _, entry in head), default=inf)

    def due(self, now: float, most: int) -> list[Lease]:
        """Take out what is due, at most so many."""
        due: list[Lease] = []
        with self._mutex:
            for period in list(self._rounds):
                round = self._rounds[period]
                for key, entry in _head(round, most):
                    if entry.due > now or len(due) >= most:
                        break
                    taken = round.pop(key, None)
                    if taken is not None:
                        due.append(taken)
                if not round:
                    self._rounds.pop(period, None)
        return due


def _last(round: dict[int, Lease]) -> Lease | None:
    while True:
        try:
            return next(reversed(round.values()), None)
        except RuntimeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # a signal handler's own


def _head(round: dict[int, Lease], most: int) -> list[tuple[int, Lease]]:
    """For the janitor's thread, in which no signal handler runs."""
    while True:
        try:
            return list(islice(round.items(), most))
        except RuntimeError:
            pass
