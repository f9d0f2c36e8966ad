"""In-process request coalescing: one load per key, whose outcome all callers of the process share.

Go's ``singleflight`` package does the same. The first caller *leads* the load, later ones *follow* it; both may be
threads or tasks.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...core import clock, forks
from ...core.wait_events import TaskEvent, ThreadEvent
from ..errors import for_another_caller
from ..results import MISSING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...primitives.load import Claim
    from ..results import Source
    from ..values import Values


class LoadOutcome:
    """The outcome of a load.

    Attributes:
        value: ``MISSING`` if there is none.
        error: the exception that the loader raised, or None.
        source: where the value is from, for followers.
        leader_only: followers don't get it: a newer value was written during the load, or it isn't committed yet.
        as_of: the time on the monotonic clock at which it was current. A caller that began later may know of a newer
            value.
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
        self._traceback = None if error is None else error.__traceback__  # raising it in the leader extends it
        self.fresh_for = fresh_for
        self.leader_only = leader_only
        self.as_of = as_of
        self._data = data
        self._values = values
        self._unserializable = False

    def is_valid_since(self, begin: float) -> bool:
        """Whether a follower whose call began at this time may get this outcome."""
        return not self.leader_only and begin <= self.as_of

    def failure(self, is_leader: bool) -> BaseException:
        """Return the loader's exception: itself for the leader, a copy for a follower."""
        assert self.error is not None  # noqa: S101 - it failed
        return self.error if is_leader else for_another_caller(self.error, self._traceback)

    def copy(self) -> Any:
        """Return a copy of the value for a follower, as a read from the cache would."""
        if self._values is None:
            return self.value
        self.serialize()
        if self._data is None:
            return self.value
        try:
            return self._values.loads(self._data)
        except Exception:  # noqa: BLE001 - a value that can't be copied is shared
            return self.value

    def serialize(self) -> None:
        """Serialize the value for followers, before the leader returns it and its caller may change it."""
        if self._data is None and self._values is not None and not self._unserializable:
            try:
                self._data = self._values.dumps(self.value)
            except Exception:  # noqa: BLE001 - a value that isn't stored need not be serializable
                self._unserializable = True


RETRY: Final = LoadOutcome()
"""The load ended without an outcome: followers start again."""

LOAD_ALONE: Final = LoadOutcome()
"""The outcome can't be shared: each caller loads for itself."""


class InflightLoad:
    """A load that is running.

    Attributes:
        events: wake the threads and tasks that wait for it.
        waits_for: the loads that its loader, or a load inside of it, waits for.
        context: the ``LoadContext``, while the loader runs.
        begun: its program has begun, which also ends the load if it is interrupted.
    """

    __slots__ = (
        "abandoned_at",
        "begun",
        "claimed",
        "context",
        "events",
        "has_followers",
        "leader_loop",
        "outcome",
        "waits_for",
    )

    def __init__(self) -> None:
        self.events: list[ThreadEvent | TaskEvent] = []
        self.outcome: LoadOutcome | None = None
        self.waits_for: list[InflightLoad] = []
        self.context: Any = None
        self.has_followers = self.begun = False
        self.abandoned_at = inf
        """When its followers stop waiting, on the monotonic clock."""
        self.leader_loop: object = None
        """The event loop of the task that leads it; None for a thread."""
        self.claimed: Claim | None = None
        """The claim in the store, until a thread takes the load over from that task."""

    def is_done(self) -> bool:
        """Return whether the load has an outcome."""
        return self.outcome is not None

    def depends_on(self, others: list[InflightLoad]) -> bool:
        """Whether it is one of these loads, or waits for one of them, directly or through others."""
        seen: set[InflightLoad] = set()
        to_visit = [self]
        while to_visit:
            inflight = to_visit.pop()
            if inflight in others:
                return True
            if inflight not in seen:
                seen.add(inflight)
                to_visit.extend(inflight.waits_for)
        return False


class SingleFlight:
    """The running loads of one cache in this process, by key. All methods are thread-safe."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        forks.reset_in_child(self)

    def after_fork_in_child(self) -> None:
        """Forget all loads: they belong to the parent."""
        self._mutex = threading.RLock()
        self._inflight: dict[Any, InflightLoad] = {}

    def join(self, key: Hashable, own: InflightLoad) -> InflightLoad:
        """Return the running load of a key. If there is none, that is ``own`` from now on, and the caller leads it. A
        caller that an exception interrupts, even in here, must call ``finish`` for ``own``."""
        with self._mutex:
            inflight = self._inflight.setdefault(key, own)
            if inflight is not own:
                inflight.has_followers = True
            return inflight

    def forget(self, key: Hashable) -> None:
        """Let later callers start a new load: the outcome of the running one may be older than a write."""
        with self._mutex:
            self._inflight.pop(key, None)

    def abandon(self, key: Hashable, inflight: InflightLoad, at: float = -inf) -> None:
        """Let followers wait no longer than until ``at``, when the lease of the load or its ``max_hold`` ends."""
        with self._mutex:
            inflight.abandoned_at = min(inflight.abandoned_at, at)
            if clock.now() >= inflight.abandoned_at and self._inflight.get(key) is inflight:
                del self._inflight[key]
            events = list(inflight.events)
        for event in events:
            event.set()

    def forget_all(self) -> None:
        """Forget all loads: those that run are led to their ends by their leaders."""
        with self._mutex:
            self._inflight.clear()

    def knows(self, key: Hashable, inflight: InflightLoad) -> bool:
        """Return whether this load is the one of the key."""
        return self._inflight.get(key) is inflight

    def finish(self, key: Hashable, inflight: InflightLoad, outcome: LoadOutcome) -> None:
        """Publish the outcome of a load and wake its followers. If an exception interrupts it, a second call completes
        it; otherwise that has no effect."""
        with self._mutex:
            is_first = inflight.outcome is None
            if is_first:
                inflight.outcome = outcome
            if self._inflight.get(key) is inflight:
                del self._inflight[key]
        try:
            if is_first and inflight.has_followers and not outcome.leader_only:
                outcome.serialize()
        finally:
            # All at once: if each follower woke the next one, any busy thread would run between two of them
            for event in inflight.events:
                event.set()

    def claimed(self, inflight: InflightLoad, claim: Claim) -> None:
        """Record the claim of a load, and wake a thread that may take it over."""
        with self._mutex:
            inflight.claimed = claim
            events = list(inflight.events)
        for event in events if inflight.leader_loop is not None else ():
            event.set()

    def take_over(self, inflight: InflightLoad) -> Claim | None:
        """Return the claim of a load to the first caller, and None to later ones."""
        with self._mutex:
            found, inflight.claimed = inflight.claimed, None
            return found

    def follow(
        self, inflight: InflightLoad, until: float, *, or_claimed: bool = False, is_leader: bool = False
    ) -> LoadOutcome | None:
        """Wait for a load in this thread.

        Args:
            until: the end of the wait, on the monotonic clock.
            or_claimed: also stop waiting when the load is claimed.
            is_leader: the caller leads the load: it waits even if followers have stopped waiting.

        Returns:
            The outcome, or None if the load takes longer or was abandoned.
        """
        event = ThreadEvent()
        try:
            self._add_event(inflight, event)
            while not (or_claimed and inflight.claimed) and (left := _seconds_left(inflight, until, is_leader)) > 0:
                event.wait(left)
        finally:
            self._remove_event(inflight, event)
        return inflight.outcome

    async def afollow(
        self, inflight: InflightLoad, until: float, event: TaskEvent, *, is_leader: bool = False
    ) -> LoadOutcome | None:
        """Wait for a load in a task: ``follow`` for coroutines, woken through ``event``."""
        try:
            self._add_event(inflight, event)
            while (left := _seconds_left(inflight, until, is_leader)) > 0:
                await event.wait(left)
        finally:
            self._remove_event(inflight, event)
        return inflight.outcome

    def _add_event(self, inflight: InflightLoad, event: ThreadEvent | TaskEvent) -> None:
        with self._mutex:
            if not inflight.is_done():
                inflight.events.append(event)

    def _remove_event(self, inflight: InflightLoad, event: ThreadEvent | TaskEvent) -> None:
        if not inflight.is_done():  # a finished load sets no more events, so its many followers skip the mutex
            with self._mutex:
                if not inflight.is_done() and event in inflight.events:
                    inflight.events.remove(event)


def _seconds_left(inflight: InflightLoad, until: float, is_leader: bool) -> float:
    """Return for how many more seconds a caller waits."""
    return 0.0 if inflight.is_done() else (until if is_leader else min(until, inflight.abandoned_at)) - clock.now()
