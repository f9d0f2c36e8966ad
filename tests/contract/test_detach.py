"""A hold that moves to another owner: ``grant.detach()`` and ``locks.attach(text)``."""

from __future__ import annotations

import math

import pytest

from django_redis_locks import (
    Grant,
    LockAlreadyHeld,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
    current_grant,
    inspection,
    locks,
)
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside, on_memory, wait_for_renewal
from tests.probes.engine import Event

pytestmark = pytest.mark.needs("detach")


def test_a_detached_hold_goes_on_at_another_owner_under_the_same_fence(
    face: Face, alice: Caller, bob: Caller, events: list[Event]
) -> None:
    """[L7] It is held all the time. The first owner has nothing any more: no ownership, no grant, no release."""
    lock = face.lock(expire=30, note="for Ada", name="import")
    with inside(alice, lock) as grant:
        text = alice(grant.detach)
        assert (grant.held, grant.released, grant.lost) == (False, True, False)
        assert (alice(lock.owned), alice(current_grant)) == (False, None)
        with pytest.raises(LockNotOwned):
            alice(lock.release)
        with pytest.raises(LockLost, match="released"):
            alice(grant.detach)
        holder = alice(lock.holder)
        assert (holder.fence, holder.pid, holder.thread) == (grant.fence, None, "detached")
        assert alice(lock.acquire, timeout=0) is None
    with inside(bob, bob(locks.attach, text)) as attached:
        assert (attached.key, attached.name, attached.fence) == (face.key, "import", grant.fence)
        assert bob(lock.owned)
        assert bob(current_grant) is attached
        assert bob(lock.holder).note == "for Ada"
        assert 20 < attached.remaining() <= 30
        alice(grant.release)
        bob(attached.ensure_held, confirm=True)
    assert not alice(lock.locked)
    names = [type(event).__name__ for event in events]
    assert names == ["Acquired", "Detached", "Contended", "Acquired", "Released"]


def test_a_text_is_good_for_one_attach(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] Also after the attached grant was released, and after a forced release."""
    lock = face.lock(expire=30)
    grant = alice(lock.acquire)
    text = alice(grant.detach)
    attached = bob(locks.attach, text)
    for _ in range(2):
        with pytest.raises(LockLost, match="was done before") as caught:
            alice(locks.attach, text)
        assert (caught.value.key, caught.value.name) == (face.key, "thing")
        bob(attached.ensure_held, confirm=True)
    again = bob(attached.detach)
    with pytest.raises(LockLost):
        alice(locks.attach, text)
    alice(alice(locks.attach, again).release)
    with pytest.raises(LockLost):
        alice(locks.attach, again)
    text = alice(alice(lock.acquire, timeout=PATIENCE).detach)
    assert bob(lock.force_release)
    with pytest.raises(LockLost):
        alice(locks.attach, text)


@pytest.mark.exact("measures a lease")
def test_the_lease_of_the_journey_is_asked_for_and_not_renewed(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] It isn't shorter than what is left of the lease of the lock. Once attached, the lock has its own lease again,
    also a shorter one."""
    lock = face.lock(expire=30, renew=True)
    text = alice(alice(lock.acquire).detach, expire=600)
    assert 590 < bob(lock.holder).lease_left <= 600
    attached = bob(locks.attach, text)
    assert 20 < bob(lock.holder).lease_left <= 30
    text = bob(attached.detach, expire=0.05)
    assert 20 < bob(lock.holder).lease_left <= 30
    attached = alice(locks.attach, text)
    alice(attached.release)
    brief = face.lock(f"{face.key}/brief", expire=0.2)
    text = alice(alice(brief.acquire).detach)
    eventually(lambda: not alice(brief.locked))
    with pytest.raises(LockLost, match="lease has ended"):
        alice(locks.attach, text)
    assert not alice(brief.locked)


@pytest.mark.usefixtures("frequent_renewal")
def test_an_attached_hold_is_renewed_if_the_lock_was(face: Face, alice: Caller, bob: Caller) -> None:
    """[F8] [L7] With its limit. A fixed lease stays fixed."""
    renewed, fixed = face.lock(expire=9, renew=True, max_hold=-1), face.lock(f"{face.key}/fixed", expire=9)
    texts = [alice(alice(lock.acquire).detach) for lock in (renewed, fixed)]
    grants: list[Grant] = [bob(locks.attach, text) for text in texts]
    wait_for_renewal(alice, renewed)
    assert alice(renewed.holder).max_hold == math.inf
    assert [grant.hold.renew_until for grant in grants] == [math.inf, 0.0]


@on_memory
def test_on_lost_is_given_again_when_attaching(
    face: Face, alice: Caller, bob: Caller, manual_clock: ManualClock
) -> None:
    """[F11] [L7] A callable can't travel: that of the lock isn't called after detaching."""
    here: list[Grant] = []
    there: list[Grant] = []
    texts = [alice(alice(face.lock(f"{face.key}/{n}", expire=10, on_lost=here.append).acquire).detach) for n in "ab"]
    attached = bob(locks.attach, texts[0], on_lost=there.append)
    bob(locks.attach, texts[1])
    manual_clock.advance(11)
    assert (here, there) == ([], [attached])


def test_waiters_get_a_lock_that_was_detached_when_it_is_released(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] Also those that expected it from the process that detached it."""
    lock = face.lock(expire=60)
    grant = alice(lock.acquire)
    carol = face.caller()
    waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
    attached = carol(locks.attach, alice(grant.detach))
    assert not waiting.done()
    carol(attached.release)
    later = waiting.result(PATIENCE)
    assert later.fence > grant.fence
    bob(later.ensure_held, confirm=True)


def test_only_the_last_grant_of_an_rlock_detaches_it(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] Otherwise the outer block would go on without its lock. Attached, it may be entered again."""
    rlock = face.rlock()
    with inside(alice, rlock):
        inner = alice(rlock.acquire)
        with face.commands() as commands, pytest.raises(LockAlreadyHeld, match="entered 2 times"):
            alice(inner.detach)
        assert commands == []
        alice(inner.release)
        text = alice(alice(current_grant).detach)
    with inside(bob, bob(locks.attach, text)) as attached, inside(bob, rlock) as again:
        assert again.fence == attached.fence


def test_permits_of_a_semaphore_move_together(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] [L37] None is free on the way. The other holds of the owner stay. The text gives its lease back when it is
    attached: the others' leases are theirs."""
    semaphore = locks.semaphore(face.key, limit=4, expire=60)
    kept, moved = alice(semaphore.acquire), alice(semaphore.acquire, permits=2)
    text = alice(moved.detach, 500)
    assert bob(semaphore.available) == 1
    attached = bob(locks.attach, text)
    assert (attached.fence, bob(semaphore.available)) == (moved.fence, 1)
    assert [(holder.fence, holder.permits) for holder in bob(semaphore.holders)] == [(kept.fence, 1), (moved.fence, 2)]
    assert bob(semaphore.holders)[1].lease_left <= 60
    with pytest.raises(LockLost, match="was done before"):
        alice(locks.attach, text)
    bob(attached.release)
    assert bob(semaphore.available) == 3
    alice(kept.ensure_held, confirm=True)


def test_both_sides_of_an_rwlock_move(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] [L35] A writer stays a writer, and may read at its new owner. What is left of a writer that only reads now is
    a reader."""
    lock = locks.rwlock(face.key, expire=60)
    attached = bob(locks.attach, alice(alice(lock.write.acquire).detach))
    assert (bob(lock.write.owned), bob(lock.write.locked), bob(lock.read.locked)) == (True, True, False)
    reads = bob(lock.read.acquire)
    assert alice(lock.read.acquire, timeout=0) is None
    bob(attached.release)
    attached = alice(locks.attach, bob(reads.detach))
    assert (alice(lock.read.owned), alice(lock.write.locked)) == (True, False)
    bob(bob(lock.read.acquire, timeout=0).release)
    alice(attached.release)
    assert not alice(lock.read.locked)


@on_memory
def test_what_cannot_be_detached_or_attached_is_refused_without_a_request(
    face: Face, alice: Caller, bob: Caller
) -> None:
    """[L5] [L7] Each with the reason, and the lock stays as it was."""
    left = alice(face.lock(f"{face.key}/left", expire=60, auto_release=False).acquire)
    deferred = alice(face.lock(f"{face.key}/deferred", hold="transaction").acquire)
    grant = alice(face.lock().acquire)
    text = alice(alice(face.lock(f"{face.key}/sent", expire=60).acquire).detach)
    with face.commands() as commands:
        for kept, reason in ((left, "auto_release=False"), (deferred, 'hold="transaction"')):
            with pytest.raises(TypeError, match=reason):
                alice(kept.detach)
            assert kept.held
        for wrong in (0, -1, "5", True):
            with pytest.raises(ValueError, match="expire must be"):
                alice(grant.detach, wrong)
        middle = len(text) // 2
        damaged = text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]
        for wrong in ("", "x", text[:-4], text + "AAAA", damaged, f"lock1.{grant.hold.token}", "lock1.é"):
            with pytest.raises(ValueError, match=r"isn't a text that grant\.detach\(\) returned"):
                bob(locks.attach, wrong)
        for wrong in (None, text.encode(), grant):
            with pytest.raises(TypeError, match="takes the text"):
                bob(locks.attach, wrong)
        with pytest.raises(ValueError, match="on_lost is None"):
            bob(locks.attach, text, on_lost="stop")
    assert commands == []
    assert grant.held
    bob(bob(locks.attach, text).release)


def test_a_text_of_another_alias_is_refused_by_name(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7]"""
    face.add_alias("other")
    text = alice(alice(face.lock().acquire).detach)
    with pytest.raises(ValueError, match=r"of alias 'default': write locks\['default'\]\.attach"):
        bob(locks["other"].attach, text)
    bob(bob(locks.attach, text).release)


def test_a_detached_lock_is_listed_as_held_and_belongs_to_no_process(face: Face, alice: Caller) -> None:
    """[L7] So ``release_dead`` leaves it alone when the process that detached it has ended."""
    face.isolate()
    grant = alice(face.lock(expire=60).acquire)
    alice(grant.detach)
    (row,) = alice(inspection.held).rows
    assert (row.key, row.state, row.fence, row.holder.pid) == (face.key, "held", grant.fence, None)
    with pytest.raises(LockNotAcquired, match=r"held by .* detached"):
        alice(face.lock(wait=0).acquire)
