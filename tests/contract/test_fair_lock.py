"""The fair lock: first come, first served, among all threads and tasks of all processes; and in all else a lock.

tests/chaos/test_fair_lock.py has several processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from django_redis_locks import Lock, LockAlreadyHeld, LockNotAcquired, inspection, locks
from tests.contract.matrix import PATIENCE, Caller, Face, Task, Thread, eventually, inside
from tests.probes.django import kind_of

pytestmark = [pytest.mark.needs("fair"), pytest.mark.parametrize("kind", ["fair_lock"], indirect=True)]

keeps_places = pytest.mark.exact("without a reply to its first request, a waiter may be registered behind later ones")


@pytest.fixture
def crowd(loop: asyncio.AbstractEventLoop) -> Iterator[list[Caller]]:
    """Threads and tasks, alternately."""
    callers: list[Caller] = [kind(loop) for _ in range(4) for kind in (Thread, Task)]
    yield callers
    for caller in callers:
        caller.close()


def in_line(lock: Lock) -> int:
    """The number of waiters that are registered in the store."""
    return inspection.find(lock.key).waiting


@keeps_places
@pytest.mark.usefixtures("no_polling")
def test_threads_and_tasks_are_served_in_the_order_of_their_arrival(
    face: Face, alice: Caller, crowd: list[Caller]
) -> None:
    """[L32] Whatever freed the lock grants it to the first in line; the others sleep on. A pass takes two requests: one
    registered the waiter, and one is the release."""
    lock = face.lock()
    grant, owner = alice(lock.acquire), alice
    with face.commands() as commands:
        waiting = []
        for caller in crowd:
            waiting.append(face.start_waiting(caller, lock, timeout=PATIENCE))
            face.wait_until_registered(lock)
    assert commands.count("lock/acquire_fair") <= len(crowd) + 2  # the first one subscribes
    with face.commands() as commands:
        for caller, future in zip(crowd, waiting, strict=True):
            owner(grant.release)
            grant, owner = future.result(PATIENCE), caller
        owner(grant.release)
    assert set(commands) <= {"lock/release"}
    assert not alice(lock.locked)
    assert in_line(lock) == 0


@keeps_places
def test_releasing_caller_that_comes_again_waits_behind_the_others(face: Face, alice: Caller, bob: Caller) -> None:
    """[L32] Also if it comes before the next holder knows of its grant."""
    lock = face.lock()
    for _ in range(3):
        first = alice(lock.acquire)
        waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
        face.wait_until_registered(lock)
        alice(first.release)
        assert alice(lock.acquire, blocking=False) is None
        again = alice.start(lock.acquire, timeout=PATIENCE)
        second = waiting.result(PATIENCE)
        assert not again.done()
        bob(second.release)
        assert again.result(PATIENCE).fence > second.fence > first.fence
        alice(lock.release)


@keeps_places
def test_lock_whose_lease_has_ended_goes_to_the_first_waiter_and_to_no_newcomer(
    face: Face, alice: Caller, bob: Caller
) -> None:
    """[L32] [L17] The newcomer asks more often than all waiters."""
    alice(face.lock(expire=0.5).acquire)
    lock, newcomer, last = face.lock(expire=20), face.caller(), face.caller()
    first = face.start_waiting(bob, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    second = face.start_waiting(last, lock, timeout=PATIENCE)
    while not first.done():
        assert newcomer(lock.acquire, blocking=False) is None
    assert not second.done()
    bob(first.result(PATIENCE).release)
    assert second.result(PATIENCE)


@keeps_places
@pytest.mark.usefixtures("no_polling")
def test_waiter_that_gives_up_delays_no_other(face: Face, alice: Caller, bob: Caller) -> None:
    """[L32] [L33] [L30] It leaves nothing in line."""
    lock = face.lock()
    grant = alice(lock.acquire)
    hasty = face.start_waiting(bob, lock, timeout=0.3)
    face.wait_until_registered(lock)
    patient = face.caller()
    waiting = face.start_waiting(patient, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    assert hasty.result(PATIENCE) is None
    assert in_line(lock) == 1
    alice(grant.release)
    patient(waiting.result(PATIENCE).release)
    with pytest.raises(LockNotAcquired), inside(alice, lock):
        bob(face.lock(wait=0.05).acquire)
    assert in_line(lock) == 0


def test_fair_lock_is_the_lock_of_its_key(face: Face, alice: Caller, bob: Caller) -> None:
    """[F6] It excludes lock and rlock, which may be used to look at it, or to free it by force."""
    fair, plain = face.lock(expire=30), locks.lock(face.key)
    assert repr(fair) == "<FairLock 'thing' of 'default'>"
    with inside(alice, fair) as grant:
        assert bob(locks.rlock(face.key).acquire, blocking=False) is None
        for other in (plain, fair):
            assert bob(other.acquire, blocking=False) is None
            with pytest.raises(LockAlreadyHeld):
                alice(other.acquire)
        assert bob(plain.holder).fence == grant.fence
        alice(grant.extend, 300)
        assert bob(plain.holder).lease_left > 200
        alice(grant.ensure_held, confirm=True)
    moved = bob(locks.attach, alice(alice(fair.acquire).detach))
    assert kind_of(moved) == "FairLock"
    bob(moved.release)
    with inside(alice, plain):
        waiting = face.start_waiting(bob, fair, timeout=PATIENCE)
    assert waiting.result(PATIENCE)
    assert alice(plain.force_release)
    eventually(lambda: not alice(fair.locked))
