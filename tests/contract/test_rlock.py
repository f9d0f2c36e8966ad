"""What a re-entrant lock promises on every backend and behind both faces: it is the same lock, and its owner may enter
it again for nothing."""

from __future__ import annotations

import pytest

from django_redis_locks import LockAlreadyHeld, LockLost, LockNotOwned, current_grant
from tests.contract.matrix import Caller, Face, eventually, inside


def test_lock_and_rlock_exclude_each_other(face: Face, alice: Caller, bob: Caller) -> None:
    """[F6] They share their state, in the store and in the process."""
    for mine, other in ((face.lock(), face.rlock()), (face.rlock(), face.lock())):
        with inside(alice, mine):
            assert bob(other.acquire, blocking=False) is None
            assert bob(other.holder) is not None
            assert alice(other.owned)
        assert not bob(other.locked)


def test_a_plain_lock_is_not_entered_by_the_owner_of_its_rlock(face: Face, alice: Caller) -> None:
    """[F5] [F6] Who holds the rlock would wait for himself; who holds the lock may enter by rlock()."""
    with inside(alice, face.rlock()):
        with pytest.raises(LockAlreadyHeld):
            alice(face.lock().acquire)
        assert alice(face.lock().acquire, blocking=False) is None
    with inside(alice, face.lock()) as outer, inside(alice, face.rlock()) as inner:
        assert inner.hold is outer.hold


def test_re_entry_is_free(face: Face, alice: Caller) -> None:
    """[L13] [F4] The same hold and fence, a grant of its own, and nothing is asked of the store."""
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


def test_the_last_release_frees(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] In whatever order: the lock is held until the last of its grants is given back."""
    lock = face.rlock()
    first, second, third = (alice(lock.acquire) for _ in range(3))
    for grant in (second, first, first, second):
        alice(grant.release)
        assert bob(lock.acquire, blocking=False) is None
    bob(third.release)
    assert bob(lock.acquire, blocking=False)


def test_lock_release_gives_back_the_newest_grant(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] One release for each acquire, and no more."""
    lock = face.rlock()
    grants = [alice(lock.acquire) for _ in range(3)]
    for grant in reversed(grants):
        assert alice(current_grant) is grant
        assert bob(lock.locked)
        alice(lock.release)
        assert grant.given_back
    assert not bob(lock.locked)
    with pytest.raises(LockNotOwned):
        alice(lock.release)


def test_each_with_gives_back_its_own_grant(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] A body that gives its grant back early ends its own entry, not the one around it."""
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


@pytest.mark.exact("counts commands")
def test_a_longer_inner_lease_extends_and_a_shorter_one_changes_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] [L11] The inner section has what it asked for; the outer one keeps what it had."""
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


def test_re_entry_into_a_lost_lock_is_lock_lost(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] The owner of a lock that ran out doesn't run beside the next holder."""
    lock = face.rlock(expire=30)
    grant = alice(face.rlock(expire=0.05).acquire)
    eventually(lambda: grant.lost)
    other = bob(lock.acquire, timeout=20)
    with face.commands() as commands, pytest.raises(LockLost):
        alice(lock.acquire)
    assert commands == []
    bob(other.release)
    with pytest.raises(LockLost):
        alice(lock.release)
    assert alice(lock.acquire, timeout=0)


def test_re_entry_that_finds_the_lock_taken_away_is_lock_lost(face: Face, alice: Caller, bob: Caller) -> None:
    """[H17] A longer inner lease asks the store, which knows."""
    outer = alice(face.rlock(expire=10).acquire)
    bob(face.rlock().force_release)
    with pytest.raises(LockLost):
        alice(face.rlock(expire=60).acquire)
    assert outer.lost


def test_only_the_owner_re_enters(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5] [L6] Another caller waits, whatever grants he was shown."""
    lock = face.rlock()
    grant = alice(lock.acquire)
    with inside(bob, grant):
        assert bob(lock.acquire, timeout=0.05) is None
    assert bob(lock.acquire, timeout=0)
