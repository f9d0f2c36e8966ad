"""Which leases are to be renewed next.

To take a lock and to give it back costs an insertion into a plain dict and its removal. When the first one that was put
there is due the janitor sorts all that are still there into slots: leases of one length that come due within one slot
are renewed together, at its beginning, from then on in one write. So nothing costs more with ten thousand holds than with
one, and short holds are never sorted.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import weakref
from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.commands import Command
    from ..core.hold import Hold


class ScheduledRenewal(NamedTuple):
    """A hold to renew: when, whose, how, and for how many milliseconds; ``exact``: not with others of its slot."""

    due: float
    hold: weakref.ref[Hold]
    prolong: Callable[[str, int], Command[bool]]
    lease: int
    exact: bool


SLOTS = 60_000.0
LONGEST_SLOT = 0.5
"""Leases that come due within the same sixtieth of their length (they are in ms), or half second, are renewed together."""

_tuple, _ref = tuple.__new__, weakref.ref


class RenewalSchedule:
    """The leases of one store, weakly held.

    A release or an acquire may begin at any moment within the thread that is at it here: a signal handler's, or the
    collector's. So the mutex may be entered again, each change of a dict is one step of its own, and nothing is iterated
    over but a copy.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A fork's child renews none of its parent's."""
        self._new: dict[int, ScheduledRenewal] = {}
        self._known: dict[int, ScheduledRenewal] = {}
        self._first_new = inf
        """No new one is due before; it may be gone by then."""
        self._mutex = threading.RLock()
        # The janitor's alone:
        self._slots: dict[tuple[float, int], deque[tuple[int, ScheduledRenewal]]] = {}
        self._order: list[tuple[float, int, tuple[float, int]]] = []
        self._count = itertools.count().__next__

    # From any thread.

    def add(
        self,
        hold: Hold,
        prolong: Callable[[str, int], Command[bool]],
        lease: int,
        since: float,
        period: float,
        exact: bool = False,
        replace: bool = True,
    ) -> float:
        """Renew this hold ``period`` seconds after ``since``, which is now or was a moment ago; returns that time. Unless
        it must be ``exact`` it may be a little earlier, together with others. Without ``replace`` an entry that another thread
        makes at the same time stays."""
        due = since + period
        entry: ScheduledRenewal = _tuple(ScheduledRenewal, (due, _ref(hold), prolong, lease, exact))
        # What a dead hold left under the same id counts no more
        if replace or self._new.setdefault(id(hold), entry).hold() is not hold:
            self._new[id(hold)] = entry
        if due < self._first_new:
            with self._mutex:
                self._first_new = min(due, self._first_new)
        return due

    def remove(self, hold: Hold) -> None:
        key = id(hold)
        if self._new.pop(key, None) is None:
            self._known.pop(key, None)

    # In the janitor's thread, in which no signal handler runs.

    def __len__(self) -> int:
        return len(self._new) + len(self._known)

    def holds(self) -> list[tuple[Hold, ScheduledRenewal]]:
        """All that is renewed."""
        entries = [*self._new.copy().values(), *self._known.copy().values()]
        found = [(entry.hold(), entry) for entry in entries]
        return [(hold, entry) for hold, entry in found if hold is not None]

    def next_due(self) -> float:
        """When to look for what is due; infinity if there is nothing."""
        return min(self._order[0][0], self._first_new) if self._order else self._first_new

    def due(self, now: float, most: int) -> list[ScheduledRenewal]:
        """Take out what is due, at most so many."""
        if now >= self._first_new:
            self._sort_new()
        due: list[ScheduledRenewal] = []
        order, known = self._order, self._known
        while order and order[0][0] <= now and len(due) < most:
            slot = self._slots[order[0][2]]
            while slot and len(due) < most:
                key, entry = slot.popleft()
                if known.get(key) is entry:
                    known.pop(key, None)
                    due.append(entry)
            if not slot:
                del self._slots[heapq.heappop(order)[2]]
        return due

    def _sort_new(self) -> None:
        with self._mutex:
            self._first_new = inf  # before they are taken out: what comes in between is found, or sets it
        new, known, slots = self._new, self._known, self._slots
        while new:
            try:
                key, entry = new.popitem()
            except KeyError:  # released in this moment
                return
            begin, lease = entry.due, entry.lease
            if not entry.exact:
                length = min(lease / SLOTS, LONGEST_SLOT)
                begin = begin // length * length
            known[key] = entry
            slot = slots.get((begin, lease))
            if slot is None:
                slot = slots[begin, lease] = deque()
                heapq.heappush(self._order, (begin, self._count(), (begin, lease)))
            slot.append((key, entry))
