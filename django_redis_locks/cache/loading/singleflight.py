"""One load per key in this process, and everybody else who wants it: Go's singleflight, for threads and tasks alike."""

from __future__ import annotations

import threading
import weakref
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...core import clock, forks
from ...core.wakeup import TaskEvent, ThreadEvent
from ..errors import for_another_caller
from ..results import MISSING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...primitives.load import Claim
    from ..results import Source
    from ..values import Values


class LoadOutcome:
    """What a flight brought.

    Attributes:
        value: ``MISSING`` if there is none.
        error: what the loader raised.
        source: where the value is from, to those who waited.
        alone: it is only for the caller who led: what was written meanwhile is newer, or not yet committed.
        as_of: when it was certainly true, on our clock: who came later may know of something newer.
    """

    def __init__(
        self,
        value: Any = MISSING,
        source: Source = "loaded",
        *,
        error: BaseException | None = None,
        data: Any = None,
        values: Values | None = None,
        fresh_for: float | None = None,
        leader_only: bool = False,
        as_of: float = inf,
    ) -> None:
        self.value = value
        self.source = source
        self.error = error
        self._traceback = None if error is None else error.__traceback__  # who leads adds to it
        self.fresh_for = fresh_for
        self.leader_only = leader_only
        self.as_of = as_of
        self._data = data
        self._values = values
        self._unserializable = False

    def is_valid_since(self, begin: float) -> bool:
        """Whether one who follows since then may have it."""
        return not self.leader_only and begin <= self.as_of

    def failure(self, leads: bool) -> BaseException:
        """What the loader raised, for the caller who led, or for one who waited."""
        assert self.error is not None  # noqa: S101 - it failed
        return self.error if leads else for_another_caller(self.error, self._traceback)

    def copy(self) -> Any:
        """The value for one who waited: a copy of his own, as if he had read it from the cache."""
        if self._values is None:
            return self.value
        self.serialize()
        if self._data is None:
            return self.value
        try:
            return self._values.loads(self._data)
        except Exception:  # noqa: BLE001 - what was loaded is no failure because it can't be read again
            return self.value

    def serialize(self) -> None:
        """Before who led has the value, and may change it."""
        if self._data is None and self._values is not None and not self._unserializable:
            try:
                self._data = self._values.dumps(self.value)
            except Exception:  # noqa: BLE001 - what isn't stored need not be storable
                self._unserializable = True


RETRY: Final = LoadOutcome()
"""It brought nothing: begin anew."""

LOAD_ALONE: Final = LoadOutcome()
"""What it would bring can't be shared: each caller loads."""


class InflightLoad:
    """A load on its way. ``waits_for`` are others that its loader waits for, or
    that loads within it wait for."""

    __slots__ = ("abandoned_at", "claimed", "events", "has_followers", "leader_loop", "outcome", "waits_for")

    def __init__(self) -> None:
        self.events: list[ThreadEvent | TaskEvent] = []
        self.outcome: LoadOutcome | None = None
        self.waits_for: list[InflightLoad] = []
        self.has_followers = False
        self.abandoned_at = inf
        """When those who follow it give it up, on our clock."""
        self.leader_loop: object = None
        """The loop of a task that leads it."""
        self.claimed: tuple[str, Claim] | None = None
        """Its claim in the store, for a thread that can't wait for that task."""

    def is_done(self) -> bool:
        return self.outcome is not None

    def depends_on(self, others: list[InflightLoad]) -> bool:
        """Whether it is one of them, or waits for one in the end."""
        seen: set[InflightLoad] = set()
        ahead = [self]
        while ahead:
            inflight = ahead.pop()
            if inflight in others:
                return True
            if inflight not in seen:
                seen.add(inflight)
                ahead.extend(inflight.waits_for)
        return False


class SingleFlight:
    """The loads of one cache that are on their way. The mutex is a real lock: check-then-act on a dict is no secret."""

    def __init__(self) -> None:
        self.clear()
        _all.add(self)

    def clear(self) -> None:
        """After a fork: they are the parent's."""
        self._mutex = threading.RLock()
        self._inflight: dict[Any, InflightLoad] = {}

    def join(self, key: Hashable) -> tuple[InflightLoad, bool]:
        """The flight for a key, and whether the caller is to lead it."""
        with self._mutex:
            inflight = self._inflight.get(key)
            if inflight is not None:
                inflight.has_followers = True
                return inflight, False
            inflight = self._inflight[key] = InflightLoad()
            return inflight, True

    def forget(self, key: Hashable) -> None:
        """Who comes now doesn't join: what the flight brings is older than he is."""
        with self._mutex:
            self._inflight.pop(key, None)

    def abandon(self, key: Hashable, inflight: InflightLoad, at: float = -inf) -> None:
        """Callers wait no longer for a flight than until then: its lease is over, or its loader has run for too long."""
        with self._mutex:
            inflight.abandoned_at = min(inflight.abandoned_at, at)
            if clock.now() >= inflight.abandoned_at and self._inflight.get(key) is inflight:
                del self._inflight[key]
            events = list(inflight.events)
        for event in events:
            event.set()

    def forget_all(self) -> None:
        with self._mutex:
            self._inflight.clear()

    def knows(self, key: Hashable, inflight: InflightLoad) -> bool:
        return self._inflight.get(key) is inflight

    def finish(self, key: Hashable, inflight: InflightLoad, outcome: LoadOutcome) -> None:
        """The flight is over; twice is once."""
        with self._mutex:
            if inflight.is_done():
                return
            inflight.outcome = outcome
            if self._inflight.get(key) is inflight:
                del self._inflight[key]
        try:
            if inflight.has_followers and not outcome.leader_only:
                outcome.serialize()
        finally:
            # All at once: where each woke the next one, any thread that computes would get its turn between the two
            for event in inflight.events:
                event.set()

    def claimed(self, inflight: InflightLoad, token: str, claim: Claim) -> None:
        """Its load is claimed."""
        with self._mutex:
            inflight.claimed = token, claim
            events = list(inflight.events)
        for event in events if inflight.leader_loop is not None else ():
            event.set()

    def take_over(self, inflight: InflightLoad) -> tuple[str, Claim] | None:
        """Its claim, for the first one who asks."""
        with self._mutex:
            found, inflight.claimed = inflight.claimed, None
            return found

    def follow(
        self, inflight: InflightLoad, until: float, *, or_claimed: bool = False, leads: bool = False
    ) -> LoadOutcome | None:
        """Wait for it in this thread; None if it takes longer, or is given up. ``or_claimed``: or until its load is claimed.
        ``leads``: the caller leads it."""
        event = ThreadEvent()
        try:
            self._add_event(inflight, event)
            while not (or_claimed and inflight.claimed) and (left := _seconds_left(inflight, until, leads)) > 0:
                event.wait(left)
        finally:
            self._remove_event(inflight, event)
        return inflight.outcome

    async def afollow(
        self, inflight: InflightLoad, until: float, event: TaskEvent, *, leads: bool = False
    ) -> LoadOutcome | None:
        """As ``follow``, in a task."""
        try:
            self._add_event(inflight, event)
            while (left := _seconds_left(inflight, until, leads)) > 0:
                await event.wait(left)
        finally:
            self._remove_event(inflight, event)
        return inflight.outcome

    def _add_event(self, inflight: InflightLoad, event: ThreadEvent | TaskEvent) -> None:
        with self._mutex:
            if not inflight.is_done():
                inflight.events.append(event)

    def _remove_event(self, inflight: InflightLoad, event: ThreadEvent | TaskEvent) -> None:
        if not inflight.is_done():  # else nobody minds: a crowd needn't queue for the mutex
            with self._mutex:
                if not inflight.is_done() and event in inflight.events:
                    inflight.events.remove(event)


def _seconds_left(inflight: InflightLoad, until: float, leads: bool) -> float:
    """Seconds for which a caller waits on."""
    return 0.0 if inflight.is_done() else (until if leads else min(until, inflight.abandoned_at)) - clock.now()


_all: weakref.WeakSet[SingleFlight] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for single_flight in list(_all):
        single_flight.clear()


forks.in_child(_after_fork_in_child)
