"""Calls for one key in one process share a load: one leads, and every follower gets the outcome, even if others are
interrupted."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any

import pytest

from django_redis_locks.cache.loading import singleflight
from django_redis_locks.cache.loading.singleflight import InflightLoad, LoadOutcome, SingleFlight
from django_redis_locks.core import clock
from django_redis_locks.core.wait_events import ThreadEvent
from tests.django.helpers import PATIENCE
from tests.waiting import eventually

FOLLOWER_COUNT = 12


class Followers:
    """Threads that wait for the outcome of an in-flight load."""

    def __init__(self) -> None:
        self.single_flight = SingleFlight()
        self.inflight = self.single_flight.join("k", InflightLoad())
        self.outcome = LoadOutcome("value")
        self.pool = ThreadPoolExecutor(FOLLOWER_COUNT)
        self.waits: list[Future[LoadOutcome | None]] = []

    def add(self, number: int, until: float = inf) -> None:
        for _ in range(number):
            before = len(self.inflight.events)
            self.waits.append(self.pool.submit(self.single_flight.follow, self.inflight, until))
            eventually(lambda before=before: len(self.inflight.events) > before)

    def finish(self) -> None:
        self.single_flight.finish("k", self.inflight, self.outcome)

    def all_have_it(self) -> bool:
        return [wait.result(PATIENCE) for wait in self.waits] == [self.outcome] * len(self.waits)


@pytest.fixture
def followers() -> Any:
    followers = Followers()
    yield followers
    followers.finish()
    for event in followers.inflight.events:
        event.set()
    followers.pool.shutdown()


class InterruptedEvent(ThreadEvent):
    """An event whose first waiters are interrupted by a signal during their wait."""

    interruptions = FOLLOWER_COUNT - 2
    made = asleep = 0

    def __init__(self) -> None:
        super().__init__()
        InterruptedEvent.made += 1
        self._interrupted = InterruptedEvent.made <= InterruptedEvent.interruptions

    def wait(self, seconds: float) -> None:
        InterruptedEvent.asleep += 1
        super().wait(seconds)
        if self._interrupted:
            raise KeyboardInterrupt


def test_interrupted_followers_do_not_keep_the_others(followers: Followers, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S22] Ctrl-C or a time limit ends the wait of one thread only."""
    monkeypatch.setattr(singleflight, "ThreadEvent", InterruptedEvent)
    monkeypatch.setattr(InterruptedEvent, "made", 0)
    monkeypatch.setattr(InterruptedEvent, "asleep", 0)
    for number in range(FOLLOWER_COUNT):
        followers.add(1)
        eventually(lambda number=number: InterruptedEvent.asleep == number + 1)
    followers.finish()
    interrupted, followers.waits = (
        followers.waits[: InterruptedEvent.interruptions],
        followers.waits[InterruptedEvent.interruptions :],
    )
    assert all(isinstance(wait.exception(PATIENCE), KeyboardInterrupt) for wait in interrupted)
    assert followers.all_have_it()


def test_follower_that_gives_up_leaves_no_event(followers: Followers) -> None:
    """Otherwise a load that never ends would collect events."""
    followers.add(2)
    assert followers.single_flight.follow(followers.inflight, clock.now() + 0.01) is None
    followers.add(2)
    assert len(followers.inflight.events) == 4
    followers.finish()
    assert followers.all_have_it()


def test_leader_interrupted_while_it_serializes_still_wakes_followers(
    followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader is interrupted while it serializes the value for the followers."""

    def serialize() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(followers.outcome, "serialize", serialize)
    followers.inflight.has_followers = True
    followers.add(3)
    with pytest.raises(KeyboardInterrupt):
        followers.finish()
    assert followers.all_have_it()


def test_follower_does_not_see_changes_by_the_leader_after_the_load(followers: Followers) -> None:
    codec: Any = pickle
    followers.outcome = LoadOutcome(["value"], values=codec)
    followers.inflight.has_followers = True
    followers.finish()
    followers.outcome.value.append("changed")
    assert followers.outcome.copy() == ["value"]


def test_one_of_many_concurrent_calls_leads() -> None:
    """[S52] [S20] `join` looks up and starts a load in one step."""
    single_flight, barrier = SingleFlight(), threading.Barrier(8)
    is_leader: list[int] = []
    before = sys.getswitchinterval()

    def add() -> None:
        for turn in range(200):
            barrier.wait(PATIENCE)
            if single_flight.join(f"k{turn}", own := InflightLoad()) is own:
                is_leader.append(turn)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for call in [pool.submit(add) for _ in range(8)]:
                call.result(PATIENCE)
    finally:
        sys.setswitchinterval(before)
    assert sorted(is_leader) == list(range(200))


def test_outcome_of_a_load_is_valid_for_followers_that_joined_before_its_as_of_time() -> None:
    """A later follower may have joined after an invalidation."""
    assert LoadOutcome("value").is_valid_since(5.0)
    assert LoadOutcome("value", as_of=5.0).is_valid_since(5.0)
    assert not LoadOutcome("value", as_of=5.0).is_valid_since(5.1)
    assert not LoadOutcome("value", leader_only=True).is_valid_since(5.0)


def test_end_of_a_forgotten_load_does_not_end_its_successor() -> None:
    single_flight = SingleFlight()
    old = single_flight.join("k", InflightLoad())
    single_flight.forget("k")
    new = single_flight.join("k", InflightLoad())
    assert new is not old
    single_flight.finish("k", old, LoadOutcome("old"))
    assert single_flight.join("k", InflightLoad()) is new


def test_load_depends_on_loads_that_it_waits_for_indirectly() -> None:
    first, second, third = InflightLoad(), InflightLoad(), InflightLoad()
    first.waits_for, second.waits_for = [second], [third]
    assert first.depends_on([third])
    assert not third.depends_on([first])


class RecordingEvent(ThreadEvent):
    """An event that records whether it was set."""

    woken = False

    def set(self) -> None:
        self.woken = True


def test_claim_of_a_load_is_taken_over_once_and_its_followers_are_woken() -> None:
    """A thread that blocks the loop of the leader executes the load in its place."""
    single_flight, follower = SingleFlight(), RecordingEvent()
    inflight = single_flight.join("k", InflightLoad())
    inflight.leader_loop = object()
    inflight.events.append(follower)
    claim: Any = object()
    single_flight.claimed(inflight, claim)
    assert follower.woken
    assert single_flight.take_over(inflight) is claim
    assert single_flight.take_over(inflight) is None
