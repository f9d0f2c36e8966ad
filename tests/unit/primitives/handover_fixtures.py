"""Holds that are given back, for the tests of releases and hand-overs."""

from __future__ import annotations

from functools import partial

from django_redis_locks.core import events
from django_redis_locks.core.effects import Handed, Standing
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.primitives.wishes import Busy
from tests.unit.primitives.stepping import a_lock, acquire

END = 100.0 + validity(10_000)
"""When a hold ends that was acquired at 100."""

BUSY = Busy(5.0, None, Standing(7))


def a_hold() -> Hold:
    """Acquired at 100, for ten seconds."""
    hold = acquire(a_lock(), 0, "100: acquire A = granted")
    assert isinstance(hold, Hold)
    return hold


def given_back(hold: Hold) -> Hold:
    """Its last grant is given back, so that its lock is to be freed."""
    assert hold.leave(next(iter(hold.inside)))
    return hold


def handed_over() -> Handed:
    """By the caller that held it since 100."""
    hold = given_back(a_hold())
    hold.state = State.GONE
    lock = a_lock()
    return Handed(hold, lock._free, partial(lock._go_on, hold))


def losses(heard: list[events.Event]) -> list[str]:
    return [event.why for event in heard if isinstance(event, events.Lost)]
