"""The re-entrant lock: the same lock as the mutex, but its owner may acquire it again."""

from __future__ import annotations

import pytest

from django_redis_locks import LockAlreadyHeld, LockLost, LockNotOwned, current_grant
from tests.contract.matrix import Caller, Face, eventually, inside, wait_for_renewal


def test_lock_and_rlock_exclude_each_other(face: Face, alice: Caller, bob: Caller) -> None:
    """[F6] They share their state in the store and in the process."""
    for mine, other in ((face.lock(), face.rlock()), (face.rlock(), face.lock())):
        with inside(alice, mine):
            assert bob(other.acquire, blocking=False) is None
            assert bob(other.holder) is not None
            assert alice(other.owned)
        assert not bob(other.locked)


def test_a_plain_lock_inside_its_rlock_raises_LockAlreadyHeld(face: Face, alice: Caller) -> None:
    """[F5] [F6] Its owner would wait for itself. An rlock inside its plain lock re-enters."""
    with inside(alice, face.rlock()):
        with pytest.raises(LockAlreadyHeld):
            alice(face.lock().acquire)
        assert alice(face.lock().acquire, blocking=False) is None
    with inside(alice, face.lock()) as outer, inside(alice, face.rlock()) as inner:
        assert inner.hold is outer.hold


def test_re_entry_sends_no_request(face: Face, alice: Caller) -> None:
    """[L13] [F4] It has the same hold and fence, and a grant of its own."""
    lock = face.rlock()
    outer = alice(lock.acquire)
    with face.commands() as commands:
        grants = [alice(lock.acquire, **how) for how in ({}, {"blocking": False}, {"timeout": 0}, {"timeout": 1})]
        grants.append(alice(lock.__enter__))
        assert {grant.hold for grant in grants} == {outer.hold}
        assert {grant.fence for grant in grants} == {outer.fence}
        assert len({id(grant) for grant in [outer, *grants]}) == 6
        alice(lock.__exit__, None, None, None)
        for grant in grants:
            alice(grant.release)
    assert commands == []
    alice(outer.ensure_held, confirm=True)


# Release


def test_the_last_release_frees_the_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] The grants may be released in any order; the lock's release ends the newest one."""
    lock = face.rlock()
    first, second, third = (alice(lock.acquire) for _ in range(3))
    for grant in (second, first, first, second):
        alice(grant.release)
        assert bob(lock.acquire, blocking=False) is None
    bob(third.release)
    assert bob(lock.acquire, blocking=False)
    bob(lock.release)
    grants = [alice(lock.acquire) for _ in range(3)]
    for grant in reversed(grants):
        assert alice(current_grant) is grant
        assert bob(lock.locked)
        alice(lock.release)
        assert grant.released
    assert not bob(lock.locked)
    with pytest.raises(LockNotOwned):
        alice(lock.release)


def test_each_with_releases_its_own_grant(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] A body that releases its grant early ends its own entry, not the one around it."""
    lock = face.rlock()
    with inside(alice, lock) as outer:
        with inside(alice, lock) as inner:
            alice(inner.release)
        assert bob(lock.acquire, blocking=False) is None
        alice(outer.ensure_held, confirm=True)
        with inside(alice, lock), pytest.raises(ZeroDivisionError), inside(alice, lock):
            raise ZeroDivisionError
        assert bob(lock.acquire, blocking=False) is None
    assert bob(lock.acquire, blocking=False)


# Leases


@pytest.mark.exact("counts commands")
def test_re_entry_with_a_longer_lease_extends_and_a_shorter_one_changes_nothing(
    face: Face, alice: Caller, bob: Caller
) -> None:
    """[H17] [L11] The inner section has the requested lease; the outer one keeps its own."""
    outer = alice(face.rlock(expire=10).acquire)
    with face.commands() as commands:
        inner = alice(face.rlock(expire=60).acquire)
    assert commands == ["lock/renew"]
    assert inner.hold is outer.hold
    assert bob(face.lock().holder).lease_left > 40
    with face.commands() as commands:
        alice(face.rlock(expire=5).acquire)
    assert commands == []
    assert outer.remaining() > 40
    assert bob(face.lock().holder).lease_left > 40


@pytest.mark.usefixtures("frequent_renewal")
def test_a_renewed_re_entry_into_a_fixed_lease_is_renewed(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [L11] Although the outer section isn't renewed."""
    face.configure(EXPIRE=9)
    outer = alice(face.rlock(expire=9).acquire)
    inner = alice(face.rlock().acquire)
    wait_for_renewal(bob, face.lock())
    alice(inner.ensure_held, confirm=True)
    alice(inner.release)
    alice(outer.release)
    assert bob(face.lock().acquire, timeout=0)


@pytest.mark.usefixtures("frequent_renewal")
@pytest.mark.exact("counts commands")
def test_a_fixed_re_entry_into_a_renewed_lock_has_its_full_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [L11] In one round trip, and the renewal continues without shortening it."""
    face.configure(EXPIRE=9)
    outer = alice(face.rlock().acquire)
    with face.commands() as commands:
        inner = alice(face.rlock(expire=90).acquire)
        alice(face.rlock(expire=20).acquire)
    assert commands == ["lock/renew"]
    canary = face.lock(key=f"{face.key}/canary")
    alice(canary.acquire)
    for _ in range(2):
        wait_for_renewal(bob, canary)  # so the other one was renewed as well, by 9 s each time
    assert bob(face.lock().holder).lease_left > 70
    assert outer.remaining() > 70
    assert outer.hold.deadline == inner.hold.deadline
    bob(face.rlock().force_release)  # re-entry with a longer lease asks the store
    with pytest.raises(LockLost):
        alice(face.rlock(expire=300).acquire)
    assert outer.lost


# Loss


def test_re_entry_into_a_lost_lock_raises_LockLost(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [F5] With any arguments, since the outer section runs without the lock. The release that raises LockLost
    ends the lost hold; a plain lock can be acquired before that."""
    lock, rlock = face.lock(expire=30), face.rlock(expire=30)
    grant = alice(face.rlock(expire=0.05).acquire)
    eventually(lambda: grant.lost)
    other = bob(rlock.acquire, timeout=20)
    with face.commands() as commands:
        for how in ({}, {"blocking": False}, {"timeout": 0}, {"timeout": 5}, {"timeout": -1}):
            with pytest.raises(LockLost, match="expired"):
                alice(rlock.acquire, **how)
        with pytest.raises(LockLost), inside(alice, rlock):
            pytest.fail("the body ran")
        assert not alice(rlock.owned)
    assert commands == []
    bob(other.release)
    plain = alice(lock.acquire, timeout=20)
    alice(plain.release)
    with pytest.raises(LockLost):
        alice(rlock.release)
    assert alice(rlock.acquire, timeout=20)
