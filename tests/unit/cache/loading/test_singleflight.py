"""Calls of one key in one process share a load: one leads, and no follower is forgotten, whatever interrupts another one."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any

import pytest

from django_redis_locks.cache.loading import singleflight as module
from django_redis_locks.cache.loading.singleflight import InflightLoad, LoadOutcome, SingleFlight
from django_redis_locks.core import clock
from django_redis_locks.core.wakeup import ThreadEvent
from tests.django.helpers import PATIENCE
from tests.waiting import eventually

CROWD = 12


class Crowd:
    """Threads that follow a flight."""

    def __init__(self) -> None:
        self.single_flight = SingleFlight()
        self.inflight, self.leads = self.single_flight.join("k")
        self.outcome = LoadOutcome("value")
        self.pool = ThreadPoolExecutor(CROWD)
        self.waits: list[Future[LoadOutcome | None]] = []

    def come(self, number: int, until: float = inf) -> None:
        for _ in range(number):
            before = len(self.inflight.events)
            self.waits.append(self.pool.submit(self.single_flight.follow, self.inflight, until))
            eventually(lambda before=before: len(self.inflight.events) > before)

    def finish(self) -> None:
        self.single_flight.finish("k", self.inflight, self.outcome)

    def all_have_it(self) -> bool:
        return [wait.result(PATIENCE) for wait in self.waits] == [self.outcome] * len(self.waits)


@pytest.fixture
def crowd() -> Any:
    crowd = Crowd()
    yield crowd
    crowd.finish()
    for gate in crowd.inflight.events:
        gate.set()
    crowd.pool.shutdown()


class Struck(ThreadEvent):
    """A signal strikes the first ones who came, in their sleep."""

    victims = CROWD - 2
    made = asleep = 0

    def __init__(self) -> None:
        super().__init__()
        Struck.made += 1
        self._struck = Struck.made <= Struck.victims

    def wait(self, seconds: float) -> None:
        Struck.asleep += 1
        super().wait(seconds)
        if self._struck:
            raise KeyboardInterrupt


def test_interrupted_followers_do_not_keep_the_others(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S22] Ctrl-C, or a time limit, ends the wait of one thread and no other's."""
    monkeypatch.setattr(module, "ThreadEvent", Struck)
    monkeypatch.setattr(Struck, "made", 0)
    monkeypatch.setattr(Struck, "asleep", 0)
    for number in range(CROWD):
        crowd.come(1)
        eventually(lambda number=number: Struck.asleep == number + 1)
    crowd.finish()
    struck, crowd.waits = crowd.waits[: Struck.victims], crowd.waits[Struck.victims :]
    assert all(isinstance(wait.exception(PATIENCE), KeyboardInterrupt) for wait in struck)
    assert crowd.all_have_it()


def test_follower_that_gives_up_leaves_no_gate(crowd: Crowd) -> None:
    """Else a load that takes for ever would gather gates."""
    crowd.come(2)
    assert crowd.single_flight.follow(crowd.inflight, clock.now() + 0.01) is None
    crowd.come(2)
    assert len(crowd.inflight.events) == 4
    crowd.finish()
    assert crowd.all_have_it()


def test_leader_interrupted_while_it_serializes_still_wakes_followers(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader is interrupted while the value is packed for the others."""

    def serialize() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(crowd.outcome, "serialize", serialize)
    crowd.inflight.has_followers = True
    crowd.come(3)
    with pytest.raises(KeyboardInterrupt):
        crowd.finish()
    assert crowd.all_have_it()


def test_follower_does_not_see_what_the_leader_changes_after_landing(crowd: Crowd) -> None:
    codec: Any = pickle
    crowd.outcome = LoadOutcome(["value"], values=codec)
    crowd.inflight.has_followers = True
    crowd.finish()
    crowd.outcome.value.append("changed")
    assert crowd.outcome.copy() == ["value"]


def test_one_of_many_concurrent_calls_leads() -> None:
    """[S52] [S20] To look and to begin is one step."""
    single_flight, barrier = SingleFlight(), threading.Barrier(8)
    leads: list[int] = []
    before = sys.getswitchinterval()

    def come() -> None:
        for turn in range(200):
            barrier.wait(PATIENCE)
            if single_flight.join(f"k{turn}")[1]:
                leads.append(turn)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for call in [pool.submit(come) for _ in range(8)]:
                call.result(PATIENCE)
    finally:
        sys.setswitchinterval(before)
    assert sorted(leads) == list(range(200))


def test_result_of_a_load_is_for_followers_that_came_before_it_was_certainly_true() -> None:
    """A follower that came later may come after an invalidation."""
    assert LoadOutcome("value").is_valid_since(5.0)
    assert LoadOutcome("value", as_of=5.0).is_valid_since(5.0)
    assert not LoadOutcome("value", as_of=5.0).is_valid_since(5.1)
    assert not LoadOutcome("value", leader_only=True).is_valid_since(5.0)


def test_load_that_was_forgotten_does_not_end_the_one_that_began_since() -> None:
    single_flight = SingleFlight()
    old, _ = single_flight.join("k")
    single_flight.forget("k")
    new, leads = single_flight.join("k")
    assert leads
    single_flight.finish("k", old, LoadOutcome("old"))
    assert single_flight.join("k") == (new, False)


def test_load_needs_what_it_waits_for_by_way_of_another_one() -> None:
    first, second, third = InflightLoad(), InflightLoad(), InflightLoad()
    first.waits_for, second.waits_for = [second], [third]
    assert first.depends_on([third])
    assert not third.depends_on([first])


class Woken(ThreadEvent):
    """Tells whether it was set."""

    woken = False

    def set(self) -> None:
        self.woken = True


def test_claim_of_a_load_is_taken_over_once_and_its_followers_are_woken() -> None:
    """A thread whose own loop leads the load carries it out in its place."""
    single_flight, follower = SingleFlight(), Woken()
    inflight, _ = single_flight.join("k")
    inflight.leader_loop = object()
    inflight.events.append(follower)
    claim: Any = object()
    single_flight.claimed(inflight, "token", claim)
    assert follower.woken
    assert single_flight.take_over(inflight) == ("token", claim)
    assert single_flight.take_over(inflight) is None
