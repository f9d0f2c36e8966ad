"""Hand-over: a release passes the lock to a waiter of the same process, and not every heir asks the store."""

from __future__ import annotations

import contextlib
from itertools import cycle, pairwise

import pytest

from django_redis_locks import Grant, LockLost, diagnosis
from tests.contract.matrix import PATIENCE, Caller, Face, eventually
from tests.probes.engine import RESERVED_FENCES, ignore_wake_ups, restart_renewal, store_late_copy
from tests.probes.tuning import Tune

HAND_OVERS = 16
"""How many times in a row a lock stays within a process, at most."""

counts_commands = pytest.mark.exact("counts commands")


@pytest.fixture
def unhurried(tune: Tune) -> None:
    """However slow this machine is, the store was asked lately."""
    tune(local_reuse_window=60.0)


def second_and_third(face: Face, alice: Caller, bob: Caller, carol: Caller) -> tuple[Grant, Grant]:
    """Alice's lock goes to Bob, which asks the store, and from there to Carol, which needn't."""
    lock = face.lock()
    first = alice(lock.acquire)
    second, third = (face.start_waiting(caller, lock, timeout=PATIENCE) for caller in (bob, carol))
    face.wait_until_registered(lock)
    with face.commands() as commands:
        alice(first.release)
        before = second.result(PATIENCE)
        assert commands == ["lock/acquire"]
        bob(before.release)
        after = third.result(PATIENCE)
        assert commands == ["lock/acquire"]
    return before, after


# The first heir


@pytest.mark.usefixtures("no_polling")
@counts_commands
def test_release_to_a_local_waiter_sends_only_the_acquire_of_the_heir(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [X1] It is another hold, with a fence and a holder of its own, and no loss."""
    lock = face.lock()
    first = alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    with face.commands() as commands:
        alice(first.release)
        second = waiting.result(PATIENCE)
    assert commands == ["lock/acquire"]
    assert second.fence > first.fence
    assert bob(lock.holder).fence == second.fence
    assert not alice(lock.owned)
    bob(second.ensure_held, confirm=True)
    assert not first.lost


def test_the_heir_has_a_lease_of_its_own(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [H12] As it asked for, longer or shorter than its predecessor's."""
    first = alice(face.lock(expire=20).acquire)
    waiting = face.start_waiting(bob, face.lock(expire=60), timeout=PATIENCE)
    alice(first.release)
    second = waiting.result(PATIENCE)
    assert 50 < second.remaining() <= 60
    assert 50 < alice(face.lock().holder).lease_left <= 60 + 0.02
    waiting = face.start_waiting(alice, face.lock(expire=5), timeout=PATIENCE)
    bob(second.release)
    assert waiting.result(PATIENCE).remaining() <= 5


# Heirs that don't ask the store


@pytest.mark.usefixtures("unhurried", "no_polling")
@counts_commands
def test_the_second_heir_holds_the_lock_without_asking_the_store(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [H5] It is another holder, with a fence that the first heir reserved, and only it can release. The store shows
    the first heir."""
    face.isolate()
    (counter,) = alice(diagnosis.fences)
    alice(diagnosis.raise_fences, counter.clock + 3_600_000_000)  # an hour, so that fences are counted
    carol = face.caller()
    lock = face.lock()
    second, third = second_and_third(face, alice, bob, carol)
    assert third.fence == second.fence + 1
    assert (carol(lock.owned), bob(lock.owned), second.lost) == (True, False, False)
    carol(third.ensure_held, confirm=True)
    assert third.remaining() == pytest.approx(30, abs=10)
    assert alice(lock.holder).fence == second.fence
    carol(third.release)
    assert not alice(lock.locked)
    assert alice(lock.acquire).fence > second.fence + RESERVED_FENCES


@pytest.mark.usefixtures("unhurried", "no_polling")
@counts_commands
@pytest.mark.parametrize("renewed", [True, False])
def test_the_first_renewal_stores_the_second_heir_as_holder(
    face: Face, alice: Caller, bob: Caller, tune: Tune, *, renewed: bool
) -> None:
    """[F18] With its begin and its fence. [F10] [E15] A forced release frees it with its fence, and not with that of the first
    heir, before and after that: if the store shows that, the process is asked."""
    carol = face.caller()
    lock = face.lock()
    second, third = second_and_third(face, alice, bob, carol)
    before = alice(lock.holder)
    assert before.fence == second.fence
    if renewed:
        tune(renewal_share=1 / 100)
        restart_renewal(third)
        eventually(lambda: alice(lock.holder).fence == third.fence)
        after = alice(lock.holder)
        assert after.since > before.since - 0.002
        assert after.thread != before.thread or face.is_async
        carol(third.ensure_held, confirm=True)
    assert alice(lock.force_release, fence=second.fence) is False
    assert alice(lock.force_release, fence=third.fence) is True
    with pytest.raises(LockLost):
        carol(third.release)


@pytest.mark.exact("sends a command by itself")
def test_a_late_copy_of_that_renewal_changes_nothing(face: Face, alice: Caller) -> None:
    """[L13] An earlier request of the holder, or one of a former holder."""
    lock = face.lock()
    grant = alice(lock.acquire)
    before = alice(lock.holder)
    for token, fence, ours in ((grant.hold.token, grant.fence - 1, True), ("X" * 13, grant.fence + 1, False)):
        assert store_late_copy(lock, token, fence) is ours
        after = alice(lock.holder)
        assert (after.fence, after.since, after.host) == (before.fence, before.since, before.host)
        assert after.lease_left > 20
    alice(grant.release)


@pytest.mark.usefixtures("unhurried", "no_polling")
@counts_commands
@pytest.mark.parametrize("why", ["another lease", "an extension", "the store was asked long ago", "not kept"])
def test_an_heir_asks_the_store_when_it_must(face: Face, alice: Caller, bob: Caller, why: str, tune: Tune) -> None:
    """[H3] An heir with a lease of its own gets it from the store; and the store shows the holder of a lock that is held
    for long. [E15] What the process doesn't keep couldn't be asked for its fence."""
    carol = face.caller()
    lock = face.lock()
    other = face.lock(expire=20 if why == "another lease" else 30, auto_release=why != "not kept")
    first = alice(lock.acquire)
    second, third = face.start_waiting(bob, lock, timeout=PATIENCE), face.start_waiting(carol, other, timeout=PATIENCE)
    face.wait_until_registered(lock)
    alice(first.release)
    before = second.result(PATIENCE)
    if why == "the store was asked long ago":
        tune(local_reuse_window=0.0)
    elif why == "an extension":
        bob(before.extend, 60)
    with face.commands() as commands:
        bob(before.release)
        after = third.result(PATIENCE)
    assert commands == ["lock/acquire"]
    assert alice(lock.holder).fence == after.fence > before.fence
    carol(after.release)


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("needs an empty queue")
def test_a_lock_freed_by_force_is_not_handed_over(
    face: Face, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H3] [F10] The heir asks, even before the store's message arrives: its predecessor has nothing to pass on."""
    ignore_wake_ups(monkeypatch)
    carol = face.caller()
    lock = face.lock()
    first = alice(lock.acquire)
    second = face.start_waiting(bob, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    alice(first.release)
    held = second.result(PATIENCE)
    third = face.start_waiting(carol, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    assert alice(lock.force_release) is True
    with contextlib.suppress(LockLost):
        bob(held.release)
    granted = third.result(PATIENCE)
    assert alice(lock.holder).fence == granted.fence
    carol(granted.release)


@pytest.mark.usefixtures("unhurried", "no_polling")
@counts_commands
def test_heirs_ask_the_store_now_and_then(face: Face, alice: Caller, bob: Caller) -> None:
    """[H4] Else a process that doesn't know of other processes' waiters would keep the lock. Every fence is greater."""
    lock = face.lock()
    callers = cycle([alice, bob])
    here = next(callers)
    grants: list[Grant] = [here(lock.acquire)]
    asked = 0
    for _ in range(3 * HAND_OVERS):
        there = next(callers)
        waiting = face.start_waiting(there, lock, timeout=PATIENCE)
        face.wait_until_registered(lock)
        with face.commands() as commands:
            here(grants[-1].release)
            grants.append(waiting.result(PATIENCE))
        asked += commands.count("lock/acquire")
        here = there
    assert all(before.fence < after.fence for before, after in pairwise(grants))
    assert 0 < asked < HAND_OVERS  # of three times as many hand-overs
    here(grants[-1].release)
    assert not alice(lock.locked)
