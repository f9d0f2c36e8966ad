"""A forced release frees a lock of any holder, or only the hold with a given fence."""

from __future__ import annotations

import pytest

from django_redis_locks import LockLost
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import PATIENCE, Caller, Face, each_mutex, eventually, on_memory
from tests.probes.engine import RESERVED_FENCES, Event, ForceReleased, Lost, report_losses


def test_force_release_frees_the_lock_and_its_holder_loses_it(
    face: Face, alice: Caller, bob: Caller, events: list[Event]
) -> None:
    """[F10] The loss is reported once; the holder's release then raises LockLost."""
    lock = face.lock(expire=30)
    grant = alice(lock.acquire)
    assert bob(lock.force_release, reason="a test")
    assert [event.reason for event in events if isinstance(event, ForceReleased)] == ["a test"]
    assert not bob(lock.locked)
    with pytest.raises(LockLost):
        alice(grant.ensure_held, confirm=True)
    assert grant.lost
    with pytest.raises(LockLost):
        alice(grant.ensure_held)
    with pytest.raises(LockLost):
        alice(grant.release)
    assert not bob(lock.force_release)
    report_losses()
    assert [event.why for event in events if isinstance(event, Lost)] == ["taken"]


@each_mutex
@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_force_release_wakes_a_waiter_and_notifies_the_holder(face: Face, alice: Caller, bob: Caller) -> None:
    """[L24] [E15] A waiter of this process gets the lock at once, and the holder's loss is reported before its
    renewal."""
    lock = face.lock(expire=300)
    grant = alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=2 * PATIENCE)
    face.wait_until_registered(lock)
    face.caller()(lock.force_release)
    assert waiting.result(PATIENCE)
    eventually(lambda: grant.lost)


@on_memory
def test_force_release_is_noticed_by_a_holder_without_waiters(face: Face, manual_clock: ManualClock) -> None:
    """[E15] Its process subscribes a second after its first renewed lease began."""
    lock = face.lock(expire=300, renew=True)
    grant = face.caller()(lock.acquire)
    manual_clock.advance(2)
    face.caller()(lock.force_release)
    manual_clock.advance(1)
    assert grant.lost


@each_mutex
def test_force_release_with_a_fence_frees_only_that_hold(face: Face, alice: Caller, bob: Caller) -> None:
    """Not a later hold, and not any hold with the fence 0: only None means any holder. The next few fences are reserved
    for local hand-overs. After a lost reply the result may be wrong, but the lock isn't freed."""
    lock = face.lock()
    first = alice(lock.acquire)
    alice(first.release)
    grant = alice(lock.acquire)
    assert bob(lock.force_release, fence=first.fence) is False
    for fence in (0, -1, grant.fence - 1, grant.fence + RESERVED_FENCES + 1, 10**30):
        bob(lock.force_release, fence=fence)
        alice(grant.ensure_held, confirm=True)
    assert bob(lock.force_release, fence=grant.fence) is True
    assert not bob(lock.locked)
