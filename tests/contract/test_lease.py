"""The end, extension, renewal and loss of a lease."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from django_redis_locks import Grant, LockLost, clock, inspection
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import (
    PATIENCE,
    Caller,
    Face,
    each_mutex,
    eventually,
    inside,
    on_memory,
    threads_only,
    wait_for_renewal,
)
from tests.probes.engine import Event, Lost

# The end


@each_mutex
@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_a_fixed_lease_ends_and_the_waiter_gets_the_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[F8] [L17] Without any release; the holder detects it without a request."""
    lock = face.lock(expire=0.2)
    begin = time.monotonic()
    grant = alice(lock.acquire)
    assert not grant.lost or clock.now() > grant.hold.deadline
    assert face.start_waiting(bob, lock, timeout=2 * PATIENCE).result(PATIENCE)
    assert time.monotonic() - begin > 0.18
    assert grant.lost
    assert grant.remaining() == 0.0
    assert not alice(lock.owned)


def test_release_after_the_end_of_the_lease_raises_LockLost_once(face: Face, alice: Caller, bob: Caller) -> None:
    """[L1] [L14] The next holder's lock stays. [L4] [F12] LockLost doesn't replace an error of the body."""
    lock = face.lock(expire=0.05)
    grant = alice(lock.acquire)
    eventually(lambda: grant.lost)
    other = bob(face.lock(expire=30).acquire, timeout=20)
    with pytest.raises(LockLost) as caught:
        alice(grant.release)
    assert (caught.value.key, caught.value.name, caught.value.alias) == (face.key, "thing", "default")
    alice(grant.release)
    bob(other.ensure_held, confirm=True)
    bob(other.release)
    with pytest.raises(LockLost), inside(alice, lock):
        eventually(lambda: not bob(lock.locked))
    with pytest.raises(ZeroDivisionError), inside(alice, lock):
        raise ZeroDivisionError(eventually(lambda: not bob(lock.locked)))


# Extension


def test_extend_never_shortens_a_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[F10] [H2] The lease ends that many seconds from now, or later if it already does."""
    grant = alice(face.lock(expire=30).acquire)
    alice(grant.extend, 0.1)
    assert grant.remaining() > 20
    assert bob(face.lock().holder).lease_left > 20
    alice(grant.extend, 60)
    assert 50 < grant.remaining() < 60
    assert bob(face.lock().holder).lease_left > 50


def test_extend_of_a_released_or_lost_grant_raises_LockLost(face: Face, alice: Caller) -> None:
    """[L3] The lease doesn't start again."""
    lock = face.lock(expire=0.05)
    grant = alice(lock.acquire)
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost):
        alice(grant.extend, 60)
    grant = alice(face.lock(expire=30).acquire, timeout=20)
    alice(grant.release)
    with pytest.raises(LockLost):
        alice(grant.extend, 60)
    eventually(lambda: not alice(lock.locked))  # a late copy of a request may have been granted it for a moment


# Renewal


@pytest.mark.usefixtures("frequent_renewal")
def test_a_renewed_lock_outlives_its_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[F8] Renewed repeatedly, with renew=True or with the lease of the alias."""
    face.configure(EXPIRE=9)
    asked = face.lock(key=f"{face.key}/asked", expire=9, renew=True)
    usual = face.lock(key=f"{face.key}/usual")
    grants = [alice(asked.acquire), alice(usual.acquire)]
    for _ in range(2):
        wait_for_renewal(bob, asked, usual)
    assert bob(asked.acquire, timeout=0) is None
    assert bob(usual.acquire, timeout=0) is None
    for grant in grants:
        assert 0 < grant.remaining() <= 9
        alice(grant.ensure_held, confirm=True)
        alice(grant.release)
    assert bob(asked.acquire, timeout=0)


@on_memory
def test_renewal_ends_after_MAX_HOLD(
    face: Face,
    alice: Caller,
    bob: Caller,
    events: list[Event],
    caplog: pytest.LogCaptureFixture,
    manual_clock: ManualClock,
) -> None:
    """[F13] [L7] With a warning when the renewal stops, and a loss with its reason when the lease then ends."""
    face.configure(EXPIRE=30, MAX_HOLD=60)
    lock = face.lock()
    grant = alice(lock.acquire)
    manual_clock.advance(59)
    alice(grant.ensure_held, confirm=True)
    manual_clock.advance(40)
    assert grant.lost
    assert [event.why for event in events if isinstance(event, Lost)] == ["max_hold"]
    warnings = [record for record in caplog.records if "MAX_HOLD" in record.getMessage()]
    assert [(record.levelname, record.lock_name) for record in warnings] == [("WARNING", lock.name)]
    assert bob(lock.acquire, timeout=0)


@on_memory
def test_max_hold_of_the_call_site_replaces_MAX_HOLD(
    face: Face, alice: Caller, bob: Caller, manual_clock: ManualClock
) -> None:
    """[F13] [L7] With -1 the lease is renewed without end, and the hold is never overdue."""
    face.configure(EXPIRE=30, MAX_HOLD=60)
    endless, short = face.rlock(max_hold=-1), face.lock(f"{face.key}/short", max_hold=30)
    grants = [alice(lock.acquire) for lock in (endless, endless, short)]
    manual_clock.advance(65)
    assert [grant.held for grant in grants] == [True, True, False]
    manual_clock.advance(600)
    alice(grants[0].ensure_held, confirm=True)
    found = bob(inspection.find, face.key)
    assert (found.state, found.holder.max_hold) == ("held", math.inf)


@pytest.mark.usefixtures("frequent_renewal")
def test_renewal_continues_while_the_grant_of_an_ended_owner_is_referenced(face: Face, bob: Caller) -> None:
    """[H6] [L7] It depends on the grant, not on the thread or task that acquired it. Without the grant it ends, since
    nothing can release the lock."""
    face.configure(EXPIRE=9)
    lock = face.lock()
    owner = face.caller()
    grant = owner(lock.acquire)
    owner.close()
    wait_for_renewal(bob, lock)
    assert bob(lock.acquire, timeout=0) is None
    hold = weakref.ref(grant.hold)
    del grant
    eventually(lambda: [gc.collect(), hold()][1] is None)  # the renewal may have a reference at this moment


@on_memory
@threads_only
def test_block_of_a_generator_is_renewed_when_the_thread_it_began_in_has_ended(
    face: Face, bob: Caller, manual_clock: ManualClock
) -> None:
    """[L4] The rest of its body runs in another thread, under the lock."""
    lock = face.lock()

    def produce() -> Iterator[None]:
        with lock:
            yield

    produced = produce()
    owner = face.caller()
    owner(next, produced)
    owner.close()
    for _ in range(10):
        manual_clock.advance(10)
    assert bob(lock.acquire, timeout=0) is None
    assert next(produced, "end") == "end"
    assert bob(lock.acquire, timeout=0)


# Loss


def test_on_lost_is_called_when_the_renewal_finds_the_lock_taken(face: Face, alice: Caller, bob: Caller) -> None:
    """[L3] [F11] During the body, with the grant, once."""
    lost: list[Grant] = []
    in_loop: list[bool] = []

    def on_lost(grant: Grant) -> None:
        in_loop.append(asyncio._get_running_loop() is not None)
        lost.append(grant)

    lock = face.lock(expire=0.3, renew=True, on_lost=on_lost)
    grant = alice(lock.acquire)
    bob(lock.force_release)
    eventually(lambda: lost)
    assert lost == [grant]
    assert grant.lost
    assert in_loop == [face.is_async], "in the loop of the task, or in the thread of notices"
    with pytest.raises(LockLost):
        alice(grant.release)
    assert lost == [grant]


@on_memory
def test_on_lost_is_called_at_the_end_of_a_fixed_lease_and_not_after_a_release(
    face: Face, alice: Caller, events: list[Event], manual_clock: ManualClock
) -> None:
    """[F11] [H23] Once, at the end of the extended lease. [L8] A lease that ends after the release isn't a loss."""
    lost: list[Grant] = []
    for options in ({"renew": True}, {}):
        alice(alice(face.lock(expire=10, on_lost=lost.append, **options).acquire).release)
    grant = alice(face.lock(expire=10, on_lost=lost.append).acquire)
    manual_clock.advance(5)
    alice(grant.extend, 20)
    manual_clock.advance(19)
    assert lost == []
    manual_clock.advance(2)
    eventually(lambda: lost)  # a task's callback runs in its loop
    manual_clock.advance(60)
    assert lost == [grant]
    assert grant.lost
    assert [event.fence for event in events if isinstance(event, Lost)] == [grant.fence]


def test_on_lost_with_cancel_cancels_the_acquiring_task(face: Face, alice: Caller, bob: Caller) -> None:
    """[F11] A thread can't be cancelled, so its acquire refuses the option."""
    lock = face.lock(expire=0.15, renew=True, on_lost="cancel")
    if not face.is_async:
        with pytest.raises(ValueError, match="cancel"):
            alice(lock.acquire)
        return
    held = threading.Event()

    async def work() -> Any:
        async with lock:
            held.set()
            await asyncio.Event().wait()

    future = alice.start(work)
    assert held.wait(PATIENCE)
    bob(lock.force_release)
    with pytest.raises((CancelledError, asyncio.CancelledError)):
        future.result(PATIENCE)


def test_lock_without_auto_release_lasts_for_its_lease_and_reports_no_loss(
    face: Face, alice: Caller, events: list[Event]
) -> None:
    """[E3] Its caller doesn't own it: another acquire sends a request. A late release raises LockLost without an event.
    Blocks, which would release it, and contradicting options are refused."""
    lock = face.lock(expire=30, auto_release=False)
    grant = alice(lock.acquire, timeout=0)
    assert alice(lock.acquire, timeout=0) is None
    assert not alice(lock.owned)
    for block in (lock.__enter__, grant.__enter__):
        with pytest.raises(TypeError, match="a block releases at its end"):
            alice(block)
    alice(grant.release)
    grant = alice(lock.acquire)
    alice(lock.force_release)
    with pytest.raises(LockLost, match="taken"):
        alice(grant.release)
    assert [event for event in events if isinstance(event, Lost)] == []
    for wrong, message in (
        ({}, "give it an expire="),
        ({"expire": 5, "renew": True}, "neither renew=True"),
        ({"expire": 5, "hold": "transaction"}, "nor hold="),
        ({"expire": 5, "on_lost": print}, "on_lost is never called"),
    ):
        with pytest.raises(TypeError, match=message):
            face.lock(auto_release=False, **wrong)
    with pytest.raises(ValueError, match="auto_release is True or False"):
        face.lock(expire=5, auto_release=None)
    with pytest.raises(TypeError, match="an rlock has no argument 'auto_release'; there are"):
        face.rlock(expire=5, auto_release=False)
