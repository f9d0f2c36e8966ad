"""The renewal schedule: which leases must be renewed next.

An acquire adds an entry to a plain dict, and the release removes it. When the first of the new entries is due, the
maintenance thread sorts the remaining new entries into time slots. Leases of equal length in one slot are renewed
together, at the beginning of the slot. So the cost of a lock doesn't grow with the number of holds, and short holds are
never sorted.
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
    """The next renewal of a hold.

    Attributes:
        due: the time of the renewal, on the engine's clock.
        hold: a weak reference to the hold.
        make_command: makes the command for a token and a lease in milliseconds.
        lease: milliseconds.
        exact: True to renew at ``due``, False to renew at the beginning of the slot of ``due``.
    """

    due: float
    hold: weakref.ref[Hold]
    make_command: Callable[[str, int], Command[bool]]
    lease: int
    exact: bool


SLOTS = 60_000.0
LONGEST_SLOT = 0.5
"""The length of a slot in seconds: the lease in milliseconds divided by ``SLOTS``, a sixtieth of the lease; at most
half a second."""


def no_renewal(token: str, lease: int) -> Command[bool]:
    """The ``make_command`` of a fixed lease, which is in the schedule to be forgotten at its end. It is never called."""
    raise AssertionError("this lease isn't renewed")


_tuple, _ref = tuple.__new__, weakref.ref


class RenewalSchedule:
    """The leases of one store, weakly held.

    A signal handler or the garbage collector may acquire or release a lock in the middle of any method here. So the
    mutex is reentrant, each change of a dict is atomic, and iteration uses copies.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all entries. A forked child renews none of its parent's leases."""
        self._new: dict[int, ScheduledRenewal] = {}
        self._known: dict[int, ScheduledRenewal] = {}
        self._first_new = inf
        """No new entry is due before this time. The entry that was due then may have been removed since."""
        self._mutex = threading.RLock()
        # Used by the maintenance thread only:
        self._slots: dict[tuple[float, int], deque[tuple[int, ScheduledRenewal]]] = {}
        self._order: list[tuple[float, int, tuple[float, int]]] = []
        self._count = itertools.count().__next__

    # From any thread.

    def add(
        self,
        hold: Hold,
        make_command: Callable[[str, int], Command[bool]],
        lease: int,
        since: float,
        period: float,
        exact: bool = False,
        replace: bool = True,
    ) -> float:
        """Schedule the next renewal of a hold.

        Args:
            hold: held weakly.
            make_command: makes the command for a token and a lease in milliseconds.
            lease: milliseconds.
            since: the start of the period on the engine's clock: now, or a moment ago.
            period: seconds from ``since`` until the renewal.
            exact: False allows a slightly earlier renewal, together with others.
            replace: False keeps an entry that another thread adds at the same time.

        Returns:
            The time of the renewal.
        """
        due = since + period
        entry: ScheduledRenewal = _tuple(ScheduledRenewal, (due, _ref(hold), make_command, lease, exact))
        # A hold that was garbage-collected may have left an entry under the same id
        if replace or self._new.setdefault(id(hold), entry).hold() is not hold:
            self._new[id(hold)] = entry
        if due < self._first_new:
            with self._mutex:
                self._first_new = min(due, self._first_new)
        return due

    def remove(self, hold: Hold) -> None:
        """Remove the entry of a hold, if there is one."""
        key = id(hold)
        if self._new.pop(key, None) is None:
            self._known.pop(key, None)

    # In the maintenance thread, in which no signal handler runs.

    def __len__(self) -> int:
        return len(self._new) + len(self._known)

    def holds(self) -> list[tuple[Hold, ScheduledRenewal]]:
        """Return all holds with their entries."""
        entries = [*self._new.copy().values(), *self._known.copy().values()]
        found = [(entry.hold(), entry) for entry in entries]
        return [(hold, entry) for hold, entry in found if hold is not None]

    def next_due(self) -> float:
        """Return when to check for due entries; infinity if there are none."""
        return min(self._order[0][0], self._first_new) if self._order else self._first_new

    def due(self, now: float, most: int) -> list[ScheduledRenewal]:
        """Remove and return the entries that are due, at most ``most``."""
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
            self._first_new = inf  # before the loop: an entry added later is seen by the loop, or sets this again
        new, known, slots = self._new, self._known, self._slots
        while new:
            try:
                key, entry = new.popitem()
            except KeyError:  # a release has just removed the last entry
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
