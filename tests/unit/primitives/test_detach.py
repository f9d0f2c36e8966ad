"""Detach and attach with replies that are lost or late, and with interruptions."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from django_redis_locks import Grant, LockBackendError, LockLost
from tests.unit.primitives.scenario import Scenario, VirtualClock


def acquire(scenario: Scenario) -> Grant:
    grant = scenario.process.lock(expire=30, renew=True).acquire(timeout=0)
    assert grant is not None
    return grant


@pytest.mark.parametrize("fate", ["lost", "dropped", "late", "loading"])
def test_repeated_request_of_one_call_has_one_result(scenario: Scenario, fate: str) -> None:
    """[H2] [L12] A late copy changes nothing."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = [fate]
    text = grant.detach()
    scenario.other.backend.outcomes["lock/transfer"] = [fate]
    attached = scenario.other.locks.attach(text)
    scenario.process.wait_until_idle()
    scenario.other.wait_until_idle()
    attached.ensure_held(confirm=True)
    assert attached.fence == grant.fence
    attached.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("first", ["lost", "down"])
def test_detach_without_a_reply_keeps_the_hold_and_may_be_repeated(scenario: Scenario, first: str) -> None:
    """[L7] Whether or not it was carried out, the second call returns a text that works."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        grant.detach()
    assert (grant.held, grant.hold in scenario.process.renewed[1:]) == (True, True)
    scenario.process.backend.outcomes.clear()
    scenario.time.time += 3
    scenario.other.locks.attach(grant.detach()).release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("first", ["lost", "late", "down"])
def test_release_after_a_detach_without_a_reply_frees_the_lock(scenario: Scenario, first: str) -> None:
    """[L7] Also if it was carried out: then there is no text, and the lock would stay until its lease ends."""
    grant = acquire(scenario)
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        grant.detach()
    scenario.process.backend.outcomes.clear()
    scenario.time.time += 3
    with contextlib.suppress(LockLost):
        grant.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("first", ["lost", "late", "down"])
def test_text_is_usable_again_after_an_attach_without_a_reply(scenario: Scenario, first: str) -> None:
    """[L7] If it was carried out, that is undone in the background, also for a late copy."""
    text = acquire(scenario).detach(expire=600)
    scenario.process.backend.outcomes["lock/transfer"] = [first, "refused"]
    with pytest.raises(LockBackendError):
        scenario.process.locks.attach(text)
    scenario.process.backend.outcomes.clear()
    scenario.process.backend.execute_late_requests()
    scenario.process.execute_due_jobs()
    attached = scenario.other.locks.attach(text)
    scenario.process.wait_until_idle()
    attached.ensure_held(confirm=True)
    attached.release()
    assert scenario.leftovers() == []


def test_attach_whose_answer_takes_longer_than_the_lease_raises(scenario: Scenario) -> None:
    """[H3] The lock may have another holder by then."""
    text = acquire(scenario).detach()
    scenario.process.backend.delays = [31.0]
    with pytest.raises(LockLost, match="longer than the lease"):
        scenario.process.locks.attach(text)


def test_interrupted_detach_leaves_a_grant_that_releases_the_lock(time: VirtualClock) -> None:
    """[L7] At any effect, before or after it was performed."""
    for number, performed in itertools.product(range(3), (False, True)):
        scenario = Scenario(time)
        grant = acquire(scenario)
        scenario.process.interruption = len(scenario.process.effects) + number, performed, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            grant.detach()
        scenario.process.interruption = None
        with contextlib.suppress(LockLost):
            grant.release()
        assert scenario.leftovers() == [], (number, performed)


def test_interrupted_attach_leaves_a_text_that_attaches_the_lock(time: VirtualClock) -> None:
    """[L7] At any effect, before or after it was performed."""
    for number, performed in itertools.product(range(2), (False, True)):
        scenario = Scenario(time)
        text = acquire(scenario).detach()
        scenario.process.interruption = len(scenario.process.effects) + number, performed, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            scenario.process.locks.attach(text)
        scenario.process.interruption = None
        scenario.process.execute_due_jobs()
        scenario.other.locks.attach(text).release()
        assert scenario.leftovers() == [], (number, performed)
