"""The order in which the janitor renews; what it does about leases is in the contract suites."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_redis_locks.core.effects import Command, Place
from django_redis_locks.core.grant import Hold
from django_redis_locks.core.queues import Queues
from django_redis_locks.renewal import BATCH, Janitor

PROLONG = Command("lock/renew", ("lock", "index"), ("token", 30_000), bool)


@pytest.fixture
def janitor() -> Janitor:
    """One whose thread doesn't run."""
    backend: Any = None
    return Janitor(backend, Queues())


def a_hold(key: str = "a") -> Hold:
    return Hold(
        Place("store", key),
        key,
        key,
        "default",
        "token",
        grant=1,
        fence=1,
        lease=30_000,
        sent=0.0,
        renew_for=60.0,
        owner=threading.current_thread(),
        home=None,
        on_lost=None,
        unanswered=False,
    )


def due(janitor: Janitor, now: float) -> list[Hold | None]:
    return [ref() for ref, _ in janitor._due(now)]


def test_holds_are_due_in_the_order_of_their_leases(janitor: Janitor) -> None:
    """[L10] The oldest first, of every length of lease, and none before its time."""
    first, second, short = a_hold(), a_hold(), a_hold()
    janitor._enter(first, PROLONG, 100.0, 10.0)
    janitor._enter(second, PROLONG, 101.0, 10.0)
    janitor._enter(short, PROLONG, 101.0, 1.0)
    assert due(janitor, 101.9) == []
    assert due(janitor, 102.0) == [short]
    assert janitor._next() == 110.0
    assert due(janitor, 110.5) == [first]
    assert due(janitor, 200.0) == [second]
    assert due(janitor, 300.0) == []


def test_a_hold_that_took_the_place_of_a_dead_one_does_not_hold_up_the_others(janitor: Janitor) -> None:
    """[L10] Python gives the address of a dead hold to a new one: its entry goes to the end of the round."""
    reborn, other = a_hold(), a_hold()
    janitor._enter(reborn, PROLONG, 100.0, 10.0)
    janitor._enter(other, PROLONG, 101.0, 10.0)
    janitor._enter(reborn, PROLONG, 109.0, 10.0)
    assert due(janitor, 111.0) == [other]
    assert due(janitor, 119.0) == [reborn]


def test_a_released_hold_is_never_due(janitor: Janitor) -> None:
    """[L8] From before its release is sent; twice is once."""
    hold = a_hold()
    janitor._enter(hold, PROLONG, 100.0, 10.0)
    janitor.unwatch(hold)
    janitor.unwatch(hold)
    assert due(janitor, 200.0) == []


def test_a_crowd_is_renewed_in_batches(janitor: Janitor) -> None:
    """A thousand leases aren't one write that holds up the server."""
    holds = [a_hold() for _ in range(BATCH + 1)]
    for hold in holds:
        janitor._enter(hold, PROLONG, 100.0, 10.0)
    assert due(janitor, 110.0) == holds[:BATCH]
    assert due(janitor, 110.0) == holds[BATCH:]


def test_a_dead_hold_is_not_kept(janitor: Janitor) -> None:
    """[H6] The janitor's is not the reference that keeps it."""
    janitor._enter(a_hold(), PROLONG, 100.0, 10.0)
    assert due(janitor, 200.0) == [None]
