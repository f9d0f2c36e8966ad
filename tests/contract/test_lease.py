"""What a lease promises on every backend and behind both faces: it ends, it is renewed, it is lost, and that is told."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import pytest

from django_redis_locks import Grant, LockLost
from django_redis_locks.core import clock, events
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside, prolonged

# The end of a lease


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_a_fixed_lease_ends_and_the_lock_is_free(face: Face, alice: Caller, bob: Caller) -> None:
    """[F8] [L17] Whoever waits gets it then, without anybody's release; the holder knows without asking."""
    lock = face.lock(expire=0.2)
    begin = time.monotonic()
    grant = alice(lock.acquire)
    assert not grant.lost or clock.now() > grant.hold.deadline
    assert face.start_waiting(bob, lock, timeout=2 * PATIENCE).result(PATIENCE)
    assert time.monotonic() - begin > 0.18
    assert grant.lost
    assert grant.remaining() == 0.0
    assert not alice(lock.owned)


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_a_lease_that_ends_is_noticed_by_who_queued_before_it_began(face: Face, alice: Caller, bob: Caller) -> None:
    """[L24] The next in the queue expects to be woken by the holder, and doesn't count on it."""
    first = alice(face.lock().acquire)
    short = face.start_waiting(bob, face.lock(expire=0.1), timeout=PATIENCE)
    patient = face.start_waiting(face.caller(), face.lock(), timeout=2 * PATIENCE)
    alice(first.release)
    assert short.result(PATIENCE)
    assert patient.result(PATIENCE)


def test_a_release_after_the_lease_is_lock_lost(face: Face, alice: Caller, bob: Caller) -> None:
    """[L1] [L14] It is told once, and the next holder's lock stays."""
    lock = face.lock(expire=0.05)
    grant = alice(lock.acquire)
    eventually(lambda: grant.lost)
    other = bob(face.lock(expire=30).acquire, timeout=20)
    with pytest.raises(LockLost) as caught:
        alice(grant.release)
    assert (caught.value.key, caught.value.name, caught.value.alias) == (face.key, "thing", "default")
    alice(grant.release)
    bob(other.ensure_held, confirm=True)


def test_with_tells_a_loss_only_if_its_body_raised_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """[L4] [F12] The exit raises LockLost, but never in the place of the body's own error."""
    lock = face.lock(expire=0.05)

    def outlast_the_lease() -> float:
        return eventually(lambda: not bob(lock.locked))

    with pytest.raises(LockLost), inside(alice, lock):
        outlast_the_lease()
    with pytest.raises(ZeroDivisionError), inside(alice, lock):
        raise ZeroDivisionError(outlast_the_lease())


# Renewal


@pytest.mark.usefixtures("often")
def test_a_renewed_lock_outlives_its_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[F8] Renewed if told so, or if the lease is the alias's own: it ends later, and later."""
    face.configure(EXPIRE=9)
    told = face.lock(key=f"{face.key}/told", expire=9, renew=True)
    usual = face.lock(key=f"{face.key}/usual")
    grants = [alice(told.acquire), alice(usual.acquire)]
    for _ in range(2):
        prolonged(bob, told, usual)
    assert bob(told.acquire, timeout=0) is None
    assert bob(usual.acquire, timeout=0) is None
    for grant in grants:
        assert 0 < grant.remaining() <= 9
        alice(grant.ensure_held, confirm=True)
        alice(grant.release)
    assert bob(told.acquire, timeout=0)


def losses_of(grant: Grant, happened: list[events.Event]) -> list[str]:
    return [event.why for event in happened if isinstance(event, events.Lost) and event.fence == grant.fence]


@pytest.mark.usefixtures("often")
def test_max_hold_ends_the_renewal(
    face: Face, alice: Caller, bob: Caller, happened: list[events.Event], caplog: pytest.LogCaptureFixture
) -> None:
    """[F13] [L7] A warning when it stops, `lost` with its reason when the lease then ends, and the lock is free."""
    face.configure(EXPIRE=0.05, MAX_HOLD=0.1)
    lock, other = face.lock(expire=1.5, renew=True), face.lock(expire=30)
    losses: list[str] = []
    for _ in range(5):  # a machine that stands still may end the lease before anybody looks for how long it was held
        caplog.clear()
        grant = alice(lock.acquire, timeout=20)
        assert bob(other.acquire, timeout=20)
        assert clock.now() > grant.hold.since + 1.5
        bob(other.release)
        eventually(lambda: losses_of(grant, happened))  # noqa: B023 - called here
        losses = losses_of(grant, happened)
        if losses != ["expired"]:
            break
    assert losses == ["max_hold"]
    assert grant.lost
    warnings = [record for record in caplog.records if "MAX_HOLD" in record.getMessage()]
    assert [(record.levelname, record.lock_key) for record in warnings] == [("WARNING", face.key)]


def test_the_lock_of_a_dead_owner_ends_with_its_lease(face: Face, bob: Caller) -> None:
    """[H6] [L7] Nobody can release it any more, so nobody renews it."""
    face.configure(EXPIRE=0.1)
    lock = face.lock()
    owner = face.caller()
    hold = weakref.ref(owner(lock.acquire).hold)
    owner.close()
    assert bob(lock.acquire, timeout=20)
    eventually(lambda: [gc.collect(), hold()][1] is None)  # the renewal may be looking at it just now


@pytest.mark.usefixtures("often")
def test_a_grant_outlives_its_dead_owner_in_other_hands(face: Face, bob: Caller) -> None:
    """[H6] Renewal follows the grant, not the thread or task that acquired it."""
    face.configure(EXPIRE=9)
    lock = face.lock()
    owner = face.caller()
    grant = owner(lock.acquire)
    owner.close()
    prolonged(bob, lock)
    assert bob(lock.acquire, timeout=0) is None
    bob(grant.release)
    assert bob(lock.acquire, timeout=0)


# Extension


def test_extend_never_shortens_a_lease(face: Face, alice: Caller, bob: Caller) -> None:
    """[F10] [H2] The lease ends so many seconds from now, or later if it did anyway."""
    grant = alice(face.lock(expire=30).acquire)
    alice(grant.extend, 0.1)
    assert grant.remaining() > 20
    assert bob(face.lock().holder).lease_left > 20
    alice(grant.extend, 60)
    assert 50 < grant.remaining() < 60
    assert bob(face.lock().holder).lease_left > 50


@pytest.mark.parametrize("expire", [0, -1, 0.001, "5", None, float("nan"), True], ids=repr)
def test_a_senseless_extension_is_refused(face: Face, alice: Caller, expire: Any) -> None:
    """[F2] It is a ValueError, and nothing is sent."""
    grant = alice(face.lock().acquire)
    with face.commands() as commands, pytest.raises(ValueError, match="expire"):
        alice(grant.extend, expire)
    assert commands == []


def test_a_grant_that_is_over_is_not_extended(face: Face, alice: Caller) -> None:
    """[L3] Released or lost, it is LockLost, and the lease isn't begun again."""
    lock = face.lock(expire=0.05)
    grant = alice(lock.acquire)
    eventually(lambda: grant.lost)
    with pytest.raises(LockLost):
        alice(grant.extend, 60)
    grant = alice(face.lock(expire=30).acquire, timeout=20)
    alice(grant.release)
    with pytest.raises(LockLost):
        alice(grant.extend, 60)
    assert not alice(lock.locked)


# Force


def test_a_forced_release_frees_whoever_holds_it(
    face: Face, alice: Caller, bob: Caller, happened: list[events.Event]
) -> None:
    """[F10] The holder's own knowledge is local until he asks; his release then is LockLost."""
    lock = face.lock(expire=30)
    grant = alice(lock.acquire)
    assert bob(lock.force_release, reason="a test")
    assert [event.reason for event in happened if isinstance(event, events.ForceReleased)] == ["a test"]
    assert not bob(lock.locked)
    assert grant.remaining() > 0
    alice(grant.ensure_held)
    with pytest.raises(LockLost):
        alice(grant.ensure_held, confirm=True)
    assert grant.lost
    with pytest.raises(LockLost):
        alice(grant.ensure_held)
    with pytest.raises(LockLost):
        alice(grant.release)
    assert not bob(lock.force_release)
    assert [event.why for event in happened if isinstance(event, events.Lost)] == ["taken"]


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_a_forced_release_wakes_who_waits(face: Face, alice: Caller, bob: Caller) -> None:
    """[L24] Who waits in this process gets the lock at once."""
    lock = face.lock(expire=30)
    alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=2 * PATIENCE)
    face.caller()(lock.force_release)
    assert waiting.result(PATIENCE)


def test_force_takes_only_the_hold_that_was_meant(face: Face, alice: Caller, bob: Caller) -> None:
    """With a fence only that hold is freed, not one that came since."""
    lock = face.lock()
    first = alice(lock.acquire)
    alice(first.release)
    second = alice(lock.acquire)
    assert bob(lock.force_release, fence=first.fence) is False
    alice(second.ensure_held, confirm=True)
    assert bob(lock.force_release, fence=second.fence) is True
    assert not bob(lock.locked)


# Fences


def test_the_fence_rises_with_every_hold_of_a_key(face: Face, alice: Caller, bob: Caller) -> None:
    """[H1] [L41] Across release, expiry and force, whoever acquires."""
    long, short = face.lock(expire=30), face.lock(expire=0.02)
    fences: list[int] = []
    for caller in (alice, bob, face.caller()):
        grant = caller(long.acquire, timeout=20)
        caller(grant.release)
        forced = caller(long.acquire)
        caller(long.force_release)
        with pytest.raises(LockLost):
            caller(forced.release)
        expired = caller(short.acquire)
        fences += [grant.fence, forced.fence, expired.fence]
    assert fences == sorted(set(fences))


# Loss


def test_a_loss_is_noticed_while_the_body_runs(face: Face, alice: Caller, bob: Caller) -> None:
    """[L3] [F11] The renewal finds out that the lock was taken away, and calls back with the grant."""
    told: list[Grant] = []
    where: list[bool] = []

    def on_lost(grant: Grant) -> None:
        where.append(asyncio._get_running_loop() is not None)
        told.append(grant)

    lock = face.lock(expire=0.3, renew=True, on_lost=on_lost)
    grant = alice(lock.acquire)
    bob(lock.force_release)
    eventually(lambda: told)
    assert told == [grant]
    assert grant.lost
    assert where == [face.is_async], "in the loop of the task, or in the thread of the renewal"
    with pytest.raises(LockLost):
        alice(grant.release)
    assert told == [grant]


def test_a_fixed_lease_tells_its_end_if_asked(face: Face, alice: Caller) -> None:
    """[F11] [H23] Once, at the end of the lease as it stands then."""
    extended = False
    while not extended:  # a machine that stands still at the wrong moment ends the first lease
        told: list[Grant] = []
        begin = time.monotonic()
        grant = alice(face.lock(expire=0.1, on_lost=told.append).acquire, timeout=20)
        with suppress(LockLost):
            alice(grant.extend, 0.2)
            extended = True
    eventually(lambda: told)
    assert time.monotonic() - begin > 0.19
    assert told == [grant]
    assert grant.lost


@pytest.mark.exact("its leases are over before a connection is made anew")
def test_no_loss_is_told_of_what_was_released(face: Face, alice: Caller, happened: list[events.Event]) -> None:
    """[L8] A lease that ends after the release is nobody's loss."""
    told: list[Grant] = []
    lost: list[Grant] = []
    for options in ({"renew": True}, {}):
        grant = alice(face.lock(expire=0.05, on_lost=told.append, **options).acquire)
        try:
            alice(grant.release)
        except LockLost:  # the machine stood still for longer than the lease
            lost.append(grant)
    canary = alice(face.lock(expire=0.1, on_lost=told.append).acquire, timeout=20)
    eventually(lambda: canary in told)
    assert [grant for grant in told if grant not in lost] == [canary]
    assert len([event for event in happened if isinstance(event, events.Lost)]) == 1 + len(lost)


def test_cancel_ends_the_body_of_a_task(face: Face, alice: Caller, bob: Caller) -> None:
    """[F11] on_lost="cancel" cancels the task that acquired the lock; a thread can't be, so there it is refused."""
    lock = face.lock(expire=0.15, renew=True, on_lost="cancel")
    if not face.is_async:
        with pytest.raises(ValueError, match="cancel"):
            alice(lock.acquire)
        return
    held = threading.Event()

    async def work() -> None:
        async with lock:
            held.set()
            await asyncio.Event().wait()

    future = alice.start(work)
    assert held.wait(PATIENCE)
    bob(lock.force_release)
    with pytest.raises((CancelledError, asyncio.CancelledError)):
        future.result(PATIENCE)


@pytest.mark.parametrize("on_lost", ["stop", 1, True], ids=repr)
def test_a_senseless_on_lost_is_refused(face: Face, on_lost: Any) -> None:
    """[F11] None, "cancel" or a callable."""
    with pytest.raises(ValueError, match="on_lost"):
        face.lock(on_lost=on_lost)


@pytest.mark.exact("a release whose first answer is lost is told as unconfirmed")
def test_what_happens_is_told(face: Face, alice: Caller, bob: Caller, happened: list[events.Event]) -> None:
    """Acquired, given up, released: each once, with what the signals and metrics need."""
    lock = face.lock(name="things", wait=0)
    with inside(alice, lock) as grant:
        assert bob(lock.acquire, timeout=0) is None
    assert [type(event) for event in happened] == [events.Acquired, events.Contended, events.Released]
    assert {(event.key, event.name, event.alias) for event in happened} == {(face.key, "things", "default")}
    assert (happened[0].fence, happened[2].fence, happened[2].confirmed) == (grant.fence, grant.fence, True)
