"""The events that the engine emits, and a listener for the duration of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_redis_locks.core import events
from django_redis_locks.core.events import BackendFailed, Event, ForceReleased, Lost, Released

__all__ = ["BackendFailed", "Event", "ForceReleased", "Lost", "Released"]


@contextmanager
def event_listener(listener: Callable[[Event], object]) -> Iterator[None]:
    events.listen(listener)
    try:
        yield
    finally:
        events._listeners.remove(listener)
