"""Time that stands still, and everything else that a path must not depend on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil, inf
from typing import Any

import pytest

from django_redis_locks.backends.memory import backend as memory
from django_redis_locks.backends.memory import store as memory_store
from django_redis_locks.core import clock, events, tokens
from django_redis_locks.core.queue_values import HandedOverLock
from django_redis_locks.engine import local_queue as queues
from django_redis_locks.engine import wait_queue
from django_redis_locks.primitives.shared import requests as wishes

TICK = 2.0**-20
"""A microsecond or so. Time passes in whole ticks, so that sums of them are exact."""

ARRIVALS = 10**15
"""Arrivals in a line count from here: no other number of the engine is as large, so they can be told apart."""


class Moment(float):
    """A time of the clock, as opposed to a length of time: states are the same if their moments are equally far away."""

    __slots__ = ()

    def __add__(self, other: float) -> Moment:
        return Moment(float(self) + other)

    __radd__ = __add__

    def __sub__(self, other: float) -> float:
        length = float(self) - float(other)
        return length if isinstance(other, Moment) else Moment(length)

    def __deepcopy__(self, memo: Any) -> Moment:
        return self


def ticks(seconds: float) -> float:
    """So many seconds, and a little more: whoever sleeps so long wakes when they are over."""
    return inf if seconds == inf else ceil(seconds / TICK + 1) * TICK


class World:
    """What the code of the engine sees of the world while a part of it runs."""

    def __init__(self) -> None:
        self.now = Moment(0.0)
        self.enqueued_at = ARRIVALS
        self.number = 0
        self.mint: Callable[[], str] = str

    def mint_token(self) -> str:
        return self.mint()


performer = World()


class Gate:
    """A gate that notes that it was opened. Who sleeps at it is up to the explorer."""

    def __init__(self) -> None:
        self.opened = False

    def set(self) -> None:
        self.opened = True


@contextmanager
def still() -> Iterator[None]:
    """The engine sees our world: our clock, no chance, no threads, tokens that tell whose they are. Fences don't
    matter here; they would only tell states apart that are the same."""
    heard: deque[events.Event] = deque(maxlen=1)
    really_gone = HandedOverLock.gone

    def gone(handed: HandedOverLock) -> None:
        """What is reported as gone is judged as a loss is."""
        heard.clear()
        really_gone(handed)
        if heard:
            handed.hold.lost_why = "gone"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: performer.now)
        patch.setattr(wait_queue, "ThreadEvent", Gate)
        patch.setattr(queues, "random", lambda: 0.0)
        patch.setattr(wait_queue, "mint_number", lambda: performer.number)
        patch.setattr(events, "emit", heard.append)
        patch.setattr(HandedOverLock, "gone", gone)
        patch.setattr(tokens, "mint_token", performer.mint_token)
        patch.setattr(wishes, "mint_id", lambda: 1)
        for module in (memory, memory_store):
            patch.setattr(module, "monotonic", lambda: performer.now)
            patch.setattr(module, "micros", lambda: performer.enqueued_at)
        patch.setattr(memory.Store, "next_fence", lambda *_: 1000)
        patch.setattr(memory.Store, "add_to_index", lambda *_, **__: None)
        yield
