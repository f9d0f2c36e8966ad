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
        alone: bool = False,
        as_of: float = inf,
    ) -> None:
        self.value = value
        self.source = source
        self.error = error
        self._traceback = None if error is None else error.__traceback__  # who leads adds to it
        self.fresh_for = fresh_for
        self.alone = alone
        self.as_of = as_of
        self._data = data
        self._values = values
        self._packed = False

    def is_for(self, begin: float) -> bool:
        """Whether one who follows since then may have it."""
        return not self.alone and begin <= self.as_of

    def failure(self, mine: bool) -> BaseException:
        """What the loader raised, for the caller who led, or for one who waited."""
        assert self.error is not None  # noqa: S101 - it failed
        return self.error if mine else for_another_caller(self.error, self._traceback)

    def copy(self) -> Any:
        """The value for one who waited: a copy of his own, as if he had read it from the cache."""
        if self._values is None:
            return self.value
        self.pack()
        if self._data is None:
            return self.value
        try:
            return self._values.loads(self._data)
        except Exception:  # noqa: BLE001 - what was loaded is no failure because it can't be read again
            return self.value

    def pack(self) -> None:
        """Before who led has the value, and may change it."""
        if self._data is None and self._values is not None and not self._packed:
            try:
                self._data = self._values.dumps(self.value)
            except Exception:  # noqa: BLE001 - what isn't stored need not be storable
                self._packed = True


RETRY: Final = LoadOutcome()
"""It brought nothing: begin anew."""

EACH: Final = LoadOutcome()
"""What it would bring can't be shared: each caller loads."""


class InflightLoad:
    """A load on its way. ``waits_for`` are others that its loader waits for, or
    that loads within it wait for."""

    __slots__ = ("claimed", "followed", "gates", "home", "load_outcome", "overdue", "waits_for")

    def __init__(self) -> None:
        self.gates: list[ThreadEvent | TaskEvent] = []
        self.load_outcome: LoadOutcome | None = None
        self.waits_for: list[InflightLoad] = []
        self.followed = False
        self.overdue = inf
        """When those who follow it give it up, on our clock."""
        self.home: object = None
        """The loop of a task that leads it."""
        self.claimed: tuple[str, Claim] | None = None
        """Its claim in the store, for a thread that can't wait for that task."""

    def over(self) -> bool:
        return self.load_outcome is not None

    def needs(self, others: list[InflightLoad]) -> bool:
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
        self._flying: dict[Any, InflightLoad] = {}

    def join(self, key: Hashable) -> tuple[InflightLoad, bool]:
        """The flight for a key, and whether the caller is to lead it."""
        with self._mutex:
            inflight = self._flying.get(key)
            if inflight is not None:
                inflight.followed = True
                return inflight, False
            inflight = self._flying[key] = InflightLoad()
            return inflight, True

    def forget(self, key: Hashable) -> None:
        """Who comes now doesn't join: what the flight brings is older than he is."""
        with self._mutex:
            self._flying.pop(key, None)

    def give_up(self, key: Hashable, inflight: InflightLoad, at: float = -inf) -> None:
        """Callers wait no longer for a flight than until then: its lease is over, or its loader has run for too long."""
        with self._mutex:
            inflight.overdue = min(inflight.overdue, at)
            if clock.now() >= inflight.overdue and self._flying.get(key) is inflight:
                del self._flying[key]
            gates = list(inflight.gates)
        for gate in gates:
            gate.set()

    def forget_all(self) -> None:
        with self._mutex:
            self._flying.clear()

    def knows(self, key: Hashable, inflight: InflightLoad) -> bool:
        return self._flying.get(key) is inflight

    def land(self, key: Hashable, inflight: InflightLoad, load_outcome: LoadOutcome) -> None:
        """The flight is over; twice is once."""
        with self._mutex:
            if inflight.over():
                return
            inflight.load_outcome = load_outcome
            if self._flying.get(key) is inflight:
                del self._flying[key]
        try:
            if inflight.followed and not load_outcome.alone:
                load_outcome.pack()
        finally:
            # All at once: where each woke the next one, any thread that computes would get its turn between the two
            for gate in inflight.gates:
                gate.set()

    def claimed(self, inflight: InflightLoad, token: str, claim: Claim) -> None:
        """Its load is claimed."""
        with self._mutex:
            inflight.claimed = token, claim
            gates = list(inflight.gates)
        for gate in gates if inflight.home is not None else ():
            gate.set()

    def take_over(self, inflight: InflightLoad) -> tuple[str, Claim] | None:
        """Its claim, for the first one who asks."""
        with self._mutex:
            found, inflight.claimed = inflight.claimed, None
            return found

    def follow(
        self, inflight: InflightLoad, until: float, *, or_claimed: bool = False, mine: bool = False
    ) -> LoadOutcome | None:
        """Wait for it in this thread; None if it takes longer, or is given up. ``or_claimed``: or until its load is claimed.
        ``mine``: the caller leads it."""
        gate = ThreadEvent()
        try:
            self._enter(inflight, gate)
            while not (or_claimed and inflight.claimed) and (left := _left(inflight, until, mine)) > 0:
                gate.wait(left)
        finally:
            self._leave(inflight, gate)
        return inflight.load_outcome

    async def afollow(
        self, inflight: InflightLoad, until: float, gate: TaskEvent, *, mine: bool = False
    ) -> LoadOutcome | None:
        """As ``follow``, in a task."""
        try:
            self._enter(inflight, gate)
            while (left := _left(inflight, until, mine)) > 0:
                await gate.wait(left)
        finally:
            self._leave(inflight, gate)
        return inflight.load_outcome

    def _enter(self, inflight: InflightLoad, gate: ThreadEvent | TaskEvent) -> None:
        with self._mutex:
            if not inflight.over():
                inflight.gates.append(gate)

    def _leave(self, inflight: InflightLoad, gate: ThreadEvent | TaskEvent) -> None:
        if not inflight.over():  # else nobody minds: a crowd needn't queue for the mutex
            with self._mutex:
                if not inflight.over() and gate in inflight.gates:
                    inflight.gates.remove(gate)


def _left(inflight: InflightLoad, until: float, mine: bool) -> float:
    """Seconds for which a caller waits on."""
    return 0.0 if inflight.over() else (until if mine else min(until, inflight.overdue)) - clock.now()


_all: weakref.WeakSet[SingleFlight] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for single_flight in list(_all):
        single_flight.clear()


forks.in_child(_after_fork_in_child)
