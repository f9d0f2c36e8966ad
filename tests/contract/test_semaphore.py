"""Semaphores: permits with leases of their own, first come, first served."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_redis_locks import LockKeyError, LockLost, LockNotAcquired, LockNotOwned, Semaphore, inspection, locks
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside, on_memory, wait_until_prolonged

pytestmark = pytest.mark.needs("semaphores")

measures_time = pytest.mark.exact("measures a wait")


def semaphore(face: Face, limit: int = 2, **options: Any) -> Semaphore:
    return locks.semaphore(face.key, limit, **options)


@pytest.fixture
def carol(face: Face) -> Caller:
    return face.caller()


# Permits


def test_no_more_permits_are_held_than_the_limit(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    """[L37] Each hold has a fence, a lease and a holder of its own."""
    lock = semaphore(face)
    first, second = alice(lock.acquire), bob(lock.acquire)
    assert carol(lock.acquire, timeout=0) is None
    assert carol(lock.locked)
    assert first.fence < second.fence
    assert [holder.fence for holder in carol(lock.holders)] == [first.fence, second.fence]
    alice(first.release)
    assert carol(lock.available) == 1
    third = carol(lock.acquire, timeout=PATIENCE)
    assert third.fence > second.fence


def test_waiter_that_gets_a_permit_keeps_its_note(face: Face, alice: Caller, bob: Caller) -> None:
    """Also when the short lease of its grant is extended, which describes the holder once more."""
    first, lock = alice(semaphore(face, 1).acquire), semaphore(face, 1, expire=30, note="import")
    waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
    alice(first.release)
    grant = waiting.result(PATIENCE)
    eventually(lambda: alice(lock.holders)[0].lease_left > 10)
    assert [(holder.fence, holder.note) for holder in alice(lock.holders)] == [(grant.fence, "import")]


def test_caller_may_have_several_holds_and_releases_the_newest(face: Face, alice: Caller) -> None:
    lock = semaphore(face, 3)
    first, second = alice(lock.acquire), alice(lock.acquire)
    assert first is not second
    alice(lock.release)
    assert second.released
    assert alice(lock.owned)
    assert [holder.fence for holder in alice(lock.holders)] == [first.fence]
    alice(lock.release)
    assert alice(lock.available) == 3
    with pytest.raises(LockNotOwned):
        alice(lock.release)
    assert alice(lock.available) == 3


def test_permit_that_is_released_twice_is_given_back_once(face: Face, alice: Caller, bob: Caller) -> None:
    lock = semaphore(face)
    grant = alice(lock.acquire)
    bob(lock.acquire)
    alice(grant.release)
    alice(grant.release)
    assert bob(lock.available) == 1


def test_several_permits_are_acquired_and_released_together(face: Face, alice: Caller, bob: Caller) -> None:
    lock = semaphore(face, 3)
    grant = alice(lock.acquire, permits=2)
    assert [holder.permits for holder in bob(lock.holders)] == [2]
    assert bob(lock.acquire, timeout=0, permits=2) is None
    assert bob(lock.acquire, timeout=PATIENCE)
    assert bob(lock.available) == 0
    alice(grant.release)
    assert bob(lock.available) == 2


def test_block_holds_one_permit(face: Face, alice: Caller) -> None:
    lock = semaphore(face)
    with inside(alice, lock), inside(alice, lock):
        assert alice(lock.locked)
    assert alice(lock.available) == 2


def test_wait_that_is_over_raises_with_a_holder(face: Face, alice: Caller, bob: Caller) -> None:
    lock = semaphore(face, 1, wait=0)
    grant = alice(lock.acquire)
    with pytest.raises(LockNotAcquired) as refused:
        bob(lock.acquire)
    assert refused.value.holder is not None
    assert refused.value.holder.fence == grant.fence
    assert 0 < refused.value.retry_after <= 30


# Waiting


@pytest.mark.usefixtures("no_polling")
@measures_time
def test_waiters_get_permits_in_the_order_of_their_arrival(
    face: Face, alice: Caller, bob: Caller, carol: Caller
) -> None:
    """[L37] A request for two permits isn't overtaken by one for a single permit that is free, neither by a waiter nor by a
    new caller."""
    lock = semaphore(face)
    grants = [alice(lock.acquire), alice(lock.acquire)]
    large = face.start_waiting(bob, lock, timeout=PATIENCE, permits=2)
    face.wait_until_registered(lock)
    small = face.start_waiting(carol, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    alice(grants[0].release)
    assert alice(lock.acquire, timeout=0) is None
    assert not large.done()
    assert not small.done()
    alice(grants[1].release)
    grant = large.result(PATIENCE)
    assert not small.done()
    bob(grant.release)
    assert small.result(PATIENCE)


@pytest.mark.usefixtures("no_polling")
@measures_time
def test_release_of_several_permits_wakes_as_many_waiters_as_fit(
    face: Face, alice: Caller, bob: Caller, carol: Caller
) -> None:
    """Each waiter gets its permit with the message, so it sends no request."""
    lock = semaphore(face)
    grant = alice(lock.acquire, permits=2)
    waiting = [face.start_waiting(caller, lock, timeout=PATIENCE) for caller in (bob, carol)]
    face.wait_until_registered(lock)
    with face.commands() as commands:
        alice(grant.release)
        assert all(future.result(PATIENCE) for future in waiting)
    assert commands == ["permits/release"]


def test_cancelled_waiter_lets_the_next_one_pass(face: Face, alice: Caller, bob: Caller, carol: Caller) -> None:
    lock = semaphore(face)
    alice(lock.acquire)
    large = face.start_waiting(bob, lock, timeout=1, permits=2)
    small = face.start_waiting(carol, lock, timeout=PATIENCE)
    assert large.result(PATIENCE) is None
    assert small.result(PATIENCE)


# Leases


@measures_time
def test_permits_of_a_holder_that_is_gone_are_free_after_its_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[L37] A crash gives permits back, and leaves those of other holders."""
    lock = semaphore(face)
    kept = alice(lock.acquire)
    alice(semaphore(face, expire=0.2, auto_release=False).acquire)
    assert bob(lock.acquire, timeout=0) is None
    grant = bob(lock.acquire, timeout=PATIENCE)
    assert {holder.fence for holder in bob(lock.holders)} == {kept.fence, grant.fence}


@measures_time
def test_late_release_of_an_ended_hold_gives_no_permit_of_another_back(face: Face, alice: Caller, bob: Caller) -> None:
    """[L37] Its lease was the last one to end, while the limit is kept."""
    lock = semaphore(face, expire=0.2, renew=False)
    alice(lock.set_limit, 2)
    late = alice(lock.acquire, permits=2)
    eventually(lambda: bob(lock.available) == 2)
    bob(semaphore(face).acquire, timeout=PATIENCE)
    with pytest.raises(LockLost):
        alice(late.release)
    assert bob(lock.available) == 1


@measures_time
def test_renewal_of_one_holder_extends_no_other_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[L36] [L37] A dead holder isn't kept alive by the renewals of the others."""
    lock = semaphore(face, expire=0.6, renew=True)
    grant = alice(lock.acquire)
    dead = bob(semaphore(face, expire=0.6, auto_release=False).acquire)

    def left(fence: int) -> float:
        return next((holder.lease_left for holder in alice(lock.holders) if holder.fence == fence), 0.0)

    wait_until_prolonged(lambda: left(grant.fence))
    eventually(lambda: dead.fence not in [holder.fence for holder in alice(lock.holders)])
    assert left(grant.fence) > 0
    assert alice(lock.available) == 1


def test_extend_and_confirm_concern_the_own_hold(face: Face, alice: Caller, bob: Caller) -> None:
    lock = semaphore(face, expire=20)
    first, second = alice(lock.acquire), bob(lock.acquire)
    alice(first.extend, 60)
    alice(first.ensure_held, confirm=True)
    left = {holder.fence: holder.lease_left for holder in alice(lock.holders)}
    assert left[first.fence] > 50
    assert left[second.fence] <= 20


# The limit


def test_limit_is_changed_for_all_clients(face: Face, alice: Caller, bob: Caller) -> None:
    """[L37] Holds beyond a smaller limit stay, and none is granted until enough are given back."""
    lock = semaphore(face)
    first, second = alice(lock.acquire), alice(lock.acquire)
    bob(lock.set_limit, 1)
    assert bob(lock.limit) == 1
    assert bob(lock.available) == 0
    alice(first.release)
    assert bob(lock.acquire, timeout=0) is None
    with pytest.raises(ValueError, match="limit of 1, set by"):
        bob(lock.acquire, timeout=0, permits=2)
    alice(second.release)
    assert bob(lock.acquire, timeout=PATIENCE)
    assert bob(semaphore(face, 9).limit) == 1


@pytest.mark.usefixtures("no_polling")
@measures_time
def test_larger_limit_grants_permits_to_waiters(face: Face, alice: Caller, bob: Caller) -> None:
    lock = semaphore(face, 1)
    alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    alice(lock.set_limit, 2)
    assert waiting.result(PATIENCE)


def test_smallest_limit_of_the_holders_wins_with_one_warning(
    face: Face, alice: Caller, bob: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """[L37] Clients disagree about the limit while one of them is deployed."""
    name = f"limits {face.key} {face.is_async}"
    large, small = semaphore(face, 3, name=name), semaphore(face, 1, name=name)
    with caplog.at_level(logging.WARNING, "django_redis_locks"):
        first = alice(large.acquire)
        assert bob(small.acquire, timeout=0) is None
        second = alice(large.acquire)
        alice(first.release)
        alice(second.release)
        third = bob(small.acquire)
        assert alice(large.acquire, timeout=0) is None
        assert alice(large.limit) == 1
        bob(third.release)
        assert alice(large.limit) == 3
    assert [record.args[0] for record in caplog.records if "has a limit of" in record.msg] == [name]


@on_memory
@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "3", None, 10**10])
def test_limit_is_a_positive_number(face: Face, alice: Caller, limit: Any) -> None:
    with pytest.raises(ValueError, match="limit is a whole number"):
        locks.semaphore(face.key, limit)
    with pytest.raises(ValueError, match="limit is a whole number"):
        alice(semaphore(face).set_limit, limit)


@pytest.mark.parametrize("permits", [0, 3, True, 1.5])
def test_wrong_number_of_permits_raises_and_changes_nothing(face: Face, alice: Caller, permits: Any) -> None:
    lock = semaphore(face)
    with face.commands() as commands, pytest.raises(ValueError, match="from 1 to the limit of 2"):
        alice(lock.acquire, timeout=0, permits=permits)
    assert commands == []
    assert alice(lock.available) == 2


# Other kinds, forced releases, inspection


def test_other_kind_under_the_key_is_refused_and_changes_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """[L37] The error names both kinds."""
    lock, mutex = semaphore(face), face.lock()
    grant = alice(lock.acquire)
    for attempt in (mutex.acquire, mutex.holder):
        with pytest.raises(LockKeyError, match="as a lock: its key holds a lock of kind semaphore"):
            bob(attempt)
    assert not bob(mutex.force_release)
    assert [holder.fence for holder in alice(lock.holders)] == [grant.fence]
    alice(grant.release)
    grant = bob(mutex.acquire)
    for attempt in (lock.acquire, lock.holders):
        with pytest.raises(LockKeyError, match="as a semaphore: its key holds a lock of kind lock"):
            alice(attempt)
    with pytest.raises(LockKeyError):
        alice(lock.set_limit, 3)
    bob(grant.ensure_held, confirm=True)
    bob(grant.release)


def test_forced_release_ends_one_hold_or_all_of_them(face: Face, alice: Caller, bob: Caller) -> None:
    lock = semaphore(face, 3)
    first, second, third = (alice(lock.acquire) for _ in range(3))
    assert bob(lock.force_release, fence=second.fence)
    assert not bob(lock.force_release, fence=second.fence)
    assert [holder.fence for holder in bob(lock.holders)] == [first.fence, third.fence]
    with pytest.raises(LockLost):
        alice(second.release)
    alice(first.ensure_held, confirm=True)
    assert bob(lock.force_release)
    assert bob(lock.holders) == []
    assert not bob(lock.force_release)
    for grant in (first, third):
        with pytest.raises(LockLost):
            alice(grant.release)


def test_semaphore_is_listed_with_its_holders(face: Face, alice: Caller) -> None:
    face.isolate()
    lock = semaphore(face, 3)
    first = alice(lock.acquire, permits=2)
    second = alice(lock.acquire)
    (info,) = alice(inspection.held).rows
    assert (info.kind, info.state, info.limit) == ("semaphore", "held", 3)
    assert [(holder.fence, holder.permits) for holder in info.holders] == [(first.fence, 2), (second.fence, 1)]
    assert alice(inspection.find, face.key).holders[0].fence == first.fence
    assert alice(inspection.force_release, face.key, fence=first.fence)
    assert [holder.fence for holder in alice(inspection.find, face.key).holders] == [second.fence]
    assert alice(inspection.force_release, face.key)
    assert alice(inspection.held).rows == []
