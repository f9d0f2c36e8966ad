"""A waiter gets the lock by the release of another process, without a request of its own."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks import Grant, LockNotAcquired
from django_redis_locks.core.hold import validity
from tests.unit.primitives.scenario import Scenario

GRANT_LEASE = 3.0


def nothing() -> None:
    """What happens while the waiter sends its first requests."""


def acquire_by_grant(scenario: Scenario, seconds: float = 0.0, **options: Any) -> Grant:
    """Acquire the lock that another process releases, ``seconds`` after the waiter was registered."""
    holder = scenario.other.hold()

    def free() -> None:
        scenario.time.time += seconds
        scenario.other.free(holder)

    scenario.process.waits = [nothing, nothing, free]
    grant = scenario.process.lock(**{"renew": False, "wait": 5, **options}).acquire()
    assert grant is not None
    return grant


def value_of(scenario: Scenario) -> Any:
    """The lock in the store."""
    return scenario.process.backend._store.find(scenario.process.lock().keys.lock)


def renew(scenario: Scenario) -> None:
    """Let the maintenance thread renew what is due."""
    scenario.process._maintenance._renewals.run()


def test_waiter_enters_without_a_request(scenario: Scenario) -> None:
    """[H9] [H14] With a fence of its own, which is in the store. Until the lock is confirmed its lease ends three
    seconds after the last request, whenever the message arrives."""
    began = scenario.time.time
    grant = acquire_by_grant(scenario, seconds=0.5)
    assert scenario.process.effects.count("lock/acquire") == 3  # the last one registered the process
    assert (value_of(scenario).token, value_of(scenario).fence) == (grant.hold.token, grant.fence)
    assert grant.hold.deadline == pytest.approx(began + validity(1000 * GRANT_LEASE))
    grant.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("options", [{"renew": True}, {"expire": 20}], ids=["renewed", "fixed"])
def test_granted_lock_is_confirmed_in_the_background(scenario: Scenario, options: dict[str, Any]) -> None:
    """[H6] Once, if its lease is fixed; it then lasts as long as if the store had been asked."""
    grant = acquire_by_grant(scenario, seconds=0.5, **options)
    acquired, lease = scenario.time.time, options.get("expire", 10)
    scenario.time.time += 0.05
    renew(scenario)
    last = acquired if "expire" in options else scenario.time.time
    assert acquired + validity(1000 * lease) <= grant.hold.deadline <= last + lease
    assert value_of(scenario).ends >= grant.hold.deadline
    assert not value_of(scenario).unclaimed
    deadline = grant.hold.deadline
    scenario.time.time += 4
    renew(scenario)
    assert (grant.hold.deadline > deadline) is options.get("renew", False)
    grant.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("outcome", ["lost", "late"])
def test_token_of_an_unanswered_request_is_not_registered_again(scenario: Scenario, outcome: str) -> None:
    """[H2] [H9] The cleanup after it would free the lock that is granted to the token, and removes what its late copy
    registers."""
    scenario.process.backend.outcomes["lock/acquire"] = ["ok", "ok", outcome]
    grant = acquire_by_grant(scenario)
    scenario.process.execute_due_jobs()
    scenario.process.wait_until_idle()
    assert (value_of(scenario).token, scenario.process.backend._store.queues) == (grant.hold.token, {})
    grant.release()
    assert scenario.leftovers() == []


def test_short_lease_is_granted_for_its_own_length(scenario: Scenario) -> None:
    """A holder that dies keeps no lock for longer than it requested."""
    grant = acquire_by_grant(scenario, expire=1)
    assert value_of(scenario).ms_left() <= 1000
    grant.release()
    assert scenario.leftovers() == []


def test_lock_that_is_kept_until_its_lease_ends_is_claimed_by_a_request(scenario: Scenario) -> None:
    """Nothing would confirm it later. It gets exactly its lease."""
    grant = acquire_by_grant(scenario, expire=1, auto_release=False)
    assert scenario.process.effects.count("lock/acquire") == 4
    assert not value_of(scenario).unclaimed
    assert value_of(scenario).ms_left() == pytest.approx(1020)
    grant.release()
    scenario.forget()


def test_waiter_that_gives_up_gets_no_grant(scenario: Scenario) -> None:
    """[H9] Its last request removes it from the store's wait queue, so the lock is free when it is released."""
    holder = scenario.other.hold()
    with pytest.raises(LockNotAcquired):
        scenario.process.lock(wait=1).acquire()
    scenario.other.free(holder)
    assert value_of(scenario) is None
    assert scenario.leftovers() == []


def test_lock_freed_by_force_before_it_is_adopted_is_requested_again(scenario: Scenario) -> None:
    """[F10] [E15] Its waiter may be slow to run, and another process holds the lock by then."""
    held = [scenario.other.hold()]

    def force() -> None:
        scenario.other.free(held[0])
        assert scenario.other.lock().force_release()
        held.append(scenario.other.hold())

    scenario.process.waits = [nothing, nothing, force, lambda: scenario.other.free(held[1])]
    grant = scenario.process.lock(wait=5).acquire()
    assert not held[1].live
    assert grant.fence > held[1].fence
    grant.release()
    assert scenario.leftovers() == []


def test_granted_lock_is_freed_by_its_fence_at_once(scenario: Scenario) -> None:
    """[F10] It can't have been handed over, so no process is asked for its fence."""
    holder, freed = scenario.other.hold(), []

    def force() -> None:
        scenario.other.free(holder)
        freed.append(scenario.other.lock().force_release(fence=value_of(scenario).fence))

    scenario.process.waits = [nothing, nothing, force]
    before = scenario.time.time
    grant = scenario.process.lock(wait=5).acquire()
    assert freed == [True]
    assert scenario.time.time == before
    grant.release()
    assert scenario.leftovers() == []


def test_message_of_an_ended_grant_frees_no_later_one(scenario: Scenario) -> None:
    """[H2] [H9] The queue has registered again with the same token, and the message of the first grant is late."""
    grant = acquire_by_grant(scenario)
    scenario.process.engine.on_message(f"1,{grant.hold.token},{grant.fence - 1}", scenario.process.lock().keys.lock)
    scenario.process.wait_until_idle()
    assert value_of(scenario).token == grant.hold.token
    grant.release()
    assert scenario.leftovers() == []


def test_reentry_confirms_the_lease_of_the_outer_grant(scenario: Scenario) -> None:
    """[H17] The renewal of the inner entry replaces the confirmation."""
    outer = acquire_by_grant(scenario, reentrant=True, expire=60)
    inner = scenario.process.lock(reentrant=True, expire=2, renew=True).acquire()
    assert inner is not None
    inner.release()
    for _ in range(5):
        scenario.time.time += 2
        renew(scenario)
    assert not outer.lost
    assert value_of(scenario).ends > scenario.time.time + 40
    outer.release()
    assert scenario.leftovers() == []


@pytest.mark.parametrize("how", ["extend", "leave", "reenter"])
def test_grant_extended_by_its_caller_is_confirmed(scenario: Scenario, how: str) -> None:
    """[H6] The store then has the holder that adopted the lock, and its fence without the mark of an unclaimed grant."""
    grant = acquire_by_grant(scenario, expire=20, reentrant=True)
    if how == "extend":
        grant.extend(60)
    elif how == "leave":
        scenario.process.lock().leave_grant(grant)
    else:
        scenario.process.lock(reentrant=True, expire=30).acquire()
    assert not value_of(scenario).unclaimed
    scenario.forget()


def test_left_grant_lasts_its_whole_lease(scenario: Scenario) -> None:
    """A rate limit, whose call has ended before the lease was extended."""
    lock = scenario.process.lock()
    lock.leave_grant(acquire_by_grant(scenario, expire=60))
    assert value_of(scenario).ms_left() > 59_000
    scenario.forget()
