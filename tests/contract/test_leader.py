"""The leader of several candidates: ``locks.leader()``."""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest

from django_redis_locks import Grant, Leader, LockKeyError, locks
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, on_memory, tasks_only, threads_only
from tests.probes.engine import Event

pytestmark = pytest.mark.exact("the requests of a campaign have the time-outs of production")

Happened = SimpleQueue[tuple[str, Grant]]


class Candidate:
    """A candidate with the calls that it gets."""

    def __init__(self, face: Face, caller: Caller, **options: Any) -> None:
        self.calls: Happened = SimpleQueue()
        self.leader: Leader = locks.leader(
            face.key,
            lambda grant: self.calls.put(("elected", grant)),
            lambda grant: self.calls.put(("lost", grant)),
            **options,
        )
        self.caller = caller

    def start(self) -> Future[Any]:
        self.campaign = self.caller.start(self.leader.run)
        return self.campaign

    def next(self, what: str) -> Grant:
        happened, grant = self.calls.get(timeout=PATIENCE)
        assert happened == what
        return grant

    def stop(self) -> None:
        self.leader.stop()
        self.campaign.result(PATIENCE)


def test_one_candidate_leads_until_it_stops_and_another_one_follows(
    face: Face, alice: Caller, bob: Caller, events: list[Event]
) -> None:
    """[L7] With a larger fence. A waiting candidate isn't reported as busy time and again."""
    first, second = Candidate(face, alice, note="on web-1"), Candidate(face, bob, name="follower")
    first.start()
    grant = first.next("elected")
    assert (grant.hold.renew_until, face.lock().holder().note) == (math.inf, "on web-1")
    assert (first.leader.leading, first.leader.grant, first.leader.key) == (True, grant, face.key)
    second.start()
    assert second.calls.empty()
    assert not second.leader.leading
    first.stop()
    assert first.next("lost") is grant
    assert (first.leader.leading, first.leader.grant, grant.held) == (False, None, False)
    assert second.next("elected").fence > grant.fence
    second.stop()
    second.next("lost")
    assert not face.lock().locked()
    assert "Contended" not in [type(event).__name__ for event in events]


@pytest.mark.usefixtures("frequent_renewal")
def test_leader_that_lost_its_lock_campaigns_again(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] on_lost is called once, when the loss is noticed."""
    candidate = Candidate(face, alice, expire=9)
    candidate.start()
    for _ in range(2):
        grant = candidate.next("elected")
        assert bob(face.lock().force_release)
        assert candidate.next("lost") is grant
    candidate.next("elected")
    candidate.stop()
    candidate.next("lost")
    assert candidate.calls.empty()


@threads_only
def test_loop_of_the_leader_ends_with_the_leadership(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] on_elected does the work itself. A LockLost that the loss causes isn't an error of the work."""
    turns: SimpleQueue[Grant] = SimpleQueue()

    def work(grant: Grant) -> None:
        turns.put(grant)
        while leader.leading:
            grant.ensure_held(confirm=True)

    leader = locks.leader(face.key, work)
    campaign = alice.start(leader.run)
    first = turns.get(timeout=PATIENCE)
    bob(face.lock().force_release, fence=first.fence)
    assert turns.get(timeout=PATIENCE).fence > first.fence
    leader.stop()
    campaign.result(PATIENCE)
    eventually(lambda: not bob(face.lock().locked))


@threads_only
@pytest.mark.usefixtures("frequent_renewal")
def test_candidate_campaigns_again_when_on_lost_has_returned(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] Otherwise on_lost would stop what the next on_elected has started."""
    works, losing, again = threading.Event(), threading.Event(), threading.Event()
    overlaps: SimpleQueue[bool] = SimpleQueue()

    def start(grant: Grant) -> None:
        if works.is_set():
            again.set()
        works.set()
        losing.wait(PATIENCE)

    def stop(grant: Grant) -> None:
        losing.set()
        overlaps.put(again.wait(0.3))
        works.clear()

    leader = locks.leader(face.key, start, stop, expire=9)
    campaign = alice.start(leader.run)
    assert works.wait(PATIENCE)
    assert bob(face.lock().force_release)
    assert overlaps.get(timeout=PATIENCE) is False
    eventually(works.is_set)
    leader.stop()
    campaign.result(PATIENCE)


@tasks_only
@pytest.mark.usefixtures("frequent_renewal")
def test_async_on_lost_is_awaited(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] When a loss is noticed, and before the leadership is given up. A campaign in a thread can't await it."""
    calls: SimpleQueue[str] = SimpleQueue()

    async def stop(grant: Grant) -> None:
        calls.put("begins")
        await asyncio.sleep(0.05)
        calls.put("ends")

    leader = locks.leader(face.key, lambda grant: calls.put("elected"), stop, expire=9)
    campaign = alice.start(leader.run)
    assert calls.get(timeout=PATIENCE) == "elected"
    assert bob(face.lock().force_release)
    assert [calls.get(timeout=PATIENCE) for _ in range(3)] == ["begins", "ends", "elected"]
    leader.stop()
    campaign.result(PATIENCE)
    assert [calls.get_nowait() for _ in range(2)] == ["begins", "ends"]
    with pytest.raises(TypeError, match=r"on_lost .* arun\(\)"):
        locks.leader(face.key, print, stop).run()
    hidden = locks.leader(face.key, lambda grant: hidden.stop(), lambda grant: stop(grant))  # noqa: PLW0108
    with pytest.raises(TypeError, match=r"on_lost .* arun\(\)"):
        hidden.run()
    assert calls.empty()
    assert not face.lock().locked()


@tasks_only
def test_on_elected_may_be_an_async_function(face: Face, alice: Caller) -> None:
    """[L7] A campaign in a thread can't await it."""
    elected: list[Grant] = []

    async def work(grant: Grant) -> None:
        elected.append(grant)
        leader.stop()

    leader = locks.leader(face.key, work)
    alice(leader.run)
    assert len(elected) == 1
    with pytest.raises(TypeError, match=r"arun\(\)"):
        locks.leader(face.key, work).run()
    assert not face.lock().locked()


def test_error_of_the_work_ends_the_leadership_and_the_campaign(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] The caller decides what to do; another candidate leads at once."""
    ended: list[Grant] = []

    def work(grant: Grant) -> None:
        raise ZeroDivisionError

    leader = locks.leader(face.key, work, ended.append)
    with pytest.raises(ZeroDivisionError):
        alice(leader.run)
    assert [grant.held for grant in ended] == [False]
    assert bob(face.lock().acquire, timeout=0)


def test_error_of_on_lost_ends_the_campaign_after_the_leadership_was_given_up(
    face: Face, alice: Caller, bob: Caller
) -> None:
    """[L7] Otherwise the lock would be renewed without end."""

    def lost(grant: Grant) -> None:
        raise ZeroDivisionError

    leader = locks.leader(face.key, lambda grant: leader.stop(), lost)
    with pytest.raises(ZeroDivisionError):
        alice(leader.run)
    assert bob(face.lock().acquire, timeout=0)


def test_stopped_candidate_returns_without_the_leadership(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] While it waits, and before it begins."""
    bob(face.lock().acquire)
    candidate = Candidate(face, alice)
    candidate.start()
    eventually(lambda: face.queued(face.lock()))
    candidate.stop()
    assert candidate.calls.empty()
    with face.commands() as commands:
        alice(candidate.leader.run)
    assert commands == []


@on_memory
def test_candidate_with_wrong_arguments_is_refused(face: Face) -> None:
    """[F2]"""
    for wrong in (None, "start", 5):
        with pytest.raises(ValueError, match="on_elected is called with the grant"):
            locks.leader(face.key, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_lost is called with the grant"):
        locks.leader(face.key, print, "stop")  # type: ignore[arg-type]
    with pytest.raises(LockKeyError):
        locks.leader("", print)
