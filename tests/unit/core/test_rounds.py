"""The order in which leases are renewed."""

from __future__ import annotations

import threading

import pytest

from django_redis_locks.core.effects import Command, Place
from django_redis_locks.core.grant import Hold
from django_redis_locks.core.rounds import Rounds

PROLONG = Command("lock/renew", ("lock", "index"), ("token", 30_000), bool)


BATCH = 500


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


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


def due(rounds: Rounds, now: float) -> list[Hold | None]:
    return [lease.hold() for lease in rounds.due(now, BATCH)]


def test_holds_are_due_in_the_order_of_their_leases(rounds: Rounds) -> None:
    """[L10] The oldest first, of every length of lease, and none before its time."""
    first, second, short = a_hold(), a_hold(), a_hold()
    rounds.enter(first, PROLONG, 30_000, 100.0, 10.0)
    rounds.enter(second, PROLONG, 30_000, 101.0, 10.0)
    rounds.enter(short, PROLONG, 30_000, 101.0, 1.0)
    assert due(rounds, 101.9) == []
    assert due(rounds, 102.0) == [short]
    assert rounds.first() == 110.0
    assert due(rounds, 110.5) == [first]
    assert due(rounds, 200.0) == [second]
    assert due(rounds, 300.0) == []


def test_a_hold_that_took_the_place_of_a_dead_one_does_not_hold_up_the_others(rounds: Rounds) -> None:
    """[L10] Python gives the address of a dead hold to a new one: its entry goes to the end of the round."""
    reborn, other = a_hold(), a_hold()
    rounds.enter(reborn, PROLONG, 30_000, 100.0, 10.0)
    rounds.enter(other, PROLONG, 30_000, 101.0, 10.0)
    rounds.enter(reborn, PROLONG, 30_000, 109.0, 10.0)
    assert due(rounds, 111.0) == [other]
    assert due(rounds, 119.0) == [reborn]


def test_a_released_hold_is_never_due(rounds: Rounds) -> None:
    """[L8] From before its release is sent; twice is once."""
    hold = a_hold()
    rounds.enter(hold, PROLONG, 30_000, 100.0, 10.0)
    rounds.remove(hold)
    rounds.remove(hold)
    assert due(rounds, 200.0) == []


def test_a_crowd_is_renewed_in_batches(rounds: Rounds) -> None:
    """A thousand leases aren't one write that holds up the server."""
    holds = [a_hold() for _ in range(BATCH + 1)]
    for hold in holds:
        rounds.enter(hold, PROLONG, 30_000, 100.0, 10.0)
    assert due(rounds, 110.0) == holds[:BATCH]
    assert due(rounds, 110.0) == holds[BATCH:]


def test_a_dead_hold_is_not_kept(rounds: Rounds) -> None:
    """[H6] The janitor's is not the reference that keeps it."""
    rounds.enter(a_hold(), PROLONG, 30_000, 100.0, 10.0)
    assert due(rounds, 200.0) == [None]


def test_a_hold_whose_answer_took_long_waits_behind_nobody(rounds: Rounds) -> None:
    """[L10] Taken before another one, and entered after it: it is due first all the same."""
    fast, slow = a_hold(), a_hold()
    rounds.enter(fast, PROLONG, 30_000, 105.0, 10.0)
    rounds.enter(slow, PROLONG, 30_000, 100.0, 10.0)
    assert rounds.first() == 110.0
    assert due(rounds, 112.0) == [slow]
    assert due(rounds, 115.0) == [fast]
