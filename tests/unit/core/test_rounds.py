"""The order in which leases are renewed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redis_locks.core.effects import Command, Place
from django_redis_locks.core.hold import Hold
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


# A release or an acquire within the same thread: a signal handler's, or of a generator that the collector ends. The mutex
# lets it in at any moment.


class Round(dict[int, Any]):
    """A round in which something happens, once, in the middle of one of its methods."""

    def __init__(self, round: dict[int, Any], method: str, happens: Callable[[], object]) -> None:
        super().__init__(round)
        self._method = method
        self._happens = happens

    def happen(self, method: str) -> None:
        if method == self._method:
            self._method = ""
            self._happens()

    def pop(self, *which: Any) -> Any:
        self.happen("pop")
        return super().pop(*which)

    def items(self) -> Any:
        for entry in super().items():
            self.happen("items")
            yield entry

    def values(self) -> Any:
        return Values(self, super().values())


class Values:
    def __init__(self, round: Round, values: Any) -> None:
        self._round = round
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        entries = iter(self._values)
        self._round.happen("items")
        return entries

    def __reversed__(self) -> Iterator[Any]:
        entries = reversed(self._values)
        self._round.happen("reversed")
        return entries


@pytest.fixture
def crowd(rounds: Rounds) -> list[Hold]:
    """Three holds in a round of ten seconds, and one in a round of twenty."""
    holds = [a_hold(key) for key in "abcd"]
    for hold, period in zip(holds, (10.0, 10.0, 10.0, 20.0), strict=True):
        rounds.enter(hold, PROLONG, 30_000, 100.0, period)
    return holds


def meanwhile(rounds: Rounds, method: str, happens: Callable[[], object]) -> None:
    rounds._rounds[10.0] = Round(rounds._rounds[10.0], method, happens)


def test_an_acquire_in_the_middle_of_a_release(rounds: Rounds, crowd: list[Hold]) -> None:
    """[H13] It may open a round of its own."""
    other = a_hold()
    meanwhile(rounds, "pop", lambda: rounds.enter(other, PROLONG, 30_000, 100.0, 5.0))
    rounds.remove(crowd[3])
    assert due(rounds, 200.0) == [*crowd[:3], other]


def test_an_acquire_in_the_middle_of_the_janitors_look(rounds: Rounds, crowd: list[Hold]) -> None:
    """[H13] The thread of all locks mustn't stumble over it."""
    other = a_hold()
    meanwhile(rounds, "items", lambda: rounds.enter(other, PROLONG, 30_000, 100.0, 5.0))
    assert rounds.first() == 110.0
    assert rounds.first() == 105.0


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_release_in_the_middle_of_a_renewal(rounds: Rounds, crowd: list[Hold], victim: int) -> None:
    """[H13] [L10] If that stumbled, what it had taken out by then would never be renewed again."""
    meanwhile(rounds, "items", lambda: rounds.remove(crowd[victim]))
    assert due(rounds, 200.0) == [hold for hold in crowd if hold is not crowd[victim]]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_release_in_the_middle_of_an_acquire(rounds: Rounds, crowd: list[Hold], victim: int) -> None:
    """[H13] Of the hold that the new one is compared with, or of another."""
    last = a_hold()
    meanwhile(rounds, "reversed", lambda: rounds.remove(crowd[victim]))
    rounds.enter(last, PROLONG, 30_000, 101.0, 10.0)
    assert due(rounds, 112.0) == [*(hold for hold in crowd[:3] if hold is not crowd[victim]), last]


def test_what_a_signal_handler_raises_is_heard(rounds: Rounds, crowd: list[Hold]) -> None:
    """[L16] Whatever it is: a worker's time limit may be a RuntimeError."""

    def handler() -> None:
        raise RuntimeError("the time limit")

    meanwhile(rounds, "reversed", handler)
    with pytest.raises(RuntimeError, match="the time limit"):
        rounds.enter(a_hold(), PROLONG, 30_000, 101.0, 10.0)
