"""A deterministic environment for the engine: virtual time, tokens, queue numbers and arrival times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil, inf
from typing import Any

import pytest

from django_redis_locks.backends.memory import locks as memory_locks
from django_redis_locks.backends.memory import permits as memory_permits
from django_redis_locks.backends.memory import records as memory_records
from django_redis_locks.backends.memory import store as memory_store
from django_redis_locks.core import clock, events, tokens
from django_redis_locks.core.grant import Grant
from django_redis_locks.core.queue_values import HandedOverLock
from django_redis_locks.engine import local_queues, wait_queue
from django_redis_locks.primitives.shared import acquire, requests

TICK = 2.0**-20
"""About a microsecond. Time passes in whole ticks, so that sums of durations are exact."""

FIRST_ARRIVAL = 10**15
"""Arrival times in a wait queue count from here: no other number of the engine is as large, so they are
recognizable."""


class Timestamp(float):
    """A time of the clock, as opposed to a duration: states are equal if their timestamps are equally far from now."""

    __slots__ = ()

    def __add__(self, other: float) -> Timestamp:
        return Timestamp(float(self) + other)

    __radd__ = __add__

    def __sub__(self, other: float) -> float:
        length = float(self) - float(other)
        return length if isinstance(other, Timestamp) else Timestamp(length)

    def __deepcopy__(self, memo: Any) -> Timestamp:
        return self


def ticks(seconds: float) -> float:
    """Round ``seconds`` up to whole ticks, plus one: a sleeper of that length wakes after the time is over."""
    return inf if seconds == inf else ceil(seconds / TICK + 1) * TICK


class Environment:
    """The clock, arrival time, queue number and token source that the engine's code uses during one step."""

    def __init__(self) -> None:
        self.now = Timestamp(0.0)
        self.enqueued_at = FIRST_ARRIVAL
        self.queue_number = 0
        self.new_token: Callable[[], str] = str

    def mint_token(self) -> str:
        return self.new_token()


environment = Environment()


class RecordingEvent:
    """An event that records that it was set. The explorer decides when its waiter wakes."""

    def __init__(self) -> None:
        self.opened = False

    def set(self) -> None:
        self.opened = True


@contextmanager
def deterministic_environment() -> Iterator[None]:
    """Patch the engine: virtual clock, no randomness, no threads, tokens that name their contender. All fences are
    equal: different ones would only distinguish states that are otherwise the same."""
    emitted: deque[events.Event] = deque(maxlen=1)
    real_gone = HandedOverLock.report_vanished

    def gone(handed: HandedOverLock) -> None:
        """A reported vanished lock is checked in the same way as a lost lock."""
        emitted.clear()
        real_gone(handed)
        if emitted:
            handed.hold.loss_reason = "gone"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: environment.now)
        patch.setattr(wait_queue, "ThreadEvent", RecordingEvent)
        patch.setattr(local_queues, "random", lambda: 0.0)
        patch.setattr(wait_queue, "mint_number", lambda: environment.queue_number)
        patch.setattr(events, "emit", emitted.append)
        patch.setattr(HandedOverLock, "report_vanished", gone)
        patch.setattr(tokens, "mint_token", environment.mint_token)
        patch.setattr(requests, "mint_id", lambda: 1)
        patch.setattr(acquire, "issue", lambda lock, request, hold: Grant(hold, lock, request.grant_id))
        for module in (memory_locks, memory_permits, memory_records, memory_store):
            patch.setattr(module, "monotonic", lambda: environment.now)
            patch.setattr(module, "micros", lambda: environment.enqueued_at)
        patch.setattr(memory_store.Store, "next_fence", lambda *_: 1000)
        patch.setattr(memory_store.Store, "add_to_index", lambda *_, **__: None)
        yield
