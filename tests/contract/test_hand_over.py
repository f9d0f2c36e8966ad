"""Hand-over: a release passes the lock to a waiter of the same process, which may adopt it without a request."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest

from django_redis_locks import Grant, LockLost, diagnosis
from tests.contract.matrix import PATIENCE, Caller, Face, eventually
from tests.probes.engine import RESERVED_FENCES, ignore_wake_ups, restart_renewal, store_late_copy
from tests.probes.tuning import Tune

HAND_OVERS = 16
"""The maximum number of hand-overs in a row while other processes wait."""

counts_commands = pytest.mark.exact("counts commands")


@pytest.fixture
def slow_machine(tune: Tune) -> None:
    """On a slow machine, too, the last confirmation of the store counts as recent."""
    tune(local_reuse_window=60.0)


def second_and_third(face: Face, alice: Caller, bob: Caller, carol: Caller) -> tuple[Grant, Grant]:
    """Alice hands her lock over to Bob, which sends a request, and Bob to Carol, which doesn't."""
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


# The first hand-over


@pytest.mark.usefixtures("no_polling")
@counts_commands
def test_release_to_a_local_waiter_sends_only_the_acquire_of_the_waiter(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [X1] The new hold has its own fence and holder, and the old one isn't lost."""
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


def test_handed_over_lock_has_the_lease_of_its_new_holder(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [H12] Longer or shorter than that of the previous holder. After a lost reply the store grants the lock instead,
    for some seconds, until the maintenance thread extends the lease."""
    first = alice(face.lock(expire=20).acquire)
    waiting = face.start_waiting(bob, face.lock(expire=60), timeout=PATIENCE)
    alice(first.release)
    second = waiting.result(PATIENCE)
    eventually(lambda: 50 < second.remaining() <= 60)
    assert 50 < alice(face.lock().holder).lease_left <= 60 + 0.02
    waiting = face.start_waiting(alice, face.lock(expire=5), timeout=PATIENCE)
    bob(second.release)
    assert waiting.result(PATIENCE).remaining() <= 5


# Hand-overs without a request


@pytest.mark.usefixtures("slow_machine", "no_polling")
@counts_commands
def test_second_handover_sends_no_request(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [H5] The new holder has a fence that the first waiter reserved, and only it can release. The store still
    shows the previous holder."""
    face.isolate()
    counter, *_ = alice(diagnosis.fences)
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


@pytest.mark.usefixtures("slow_machine", "no_polling")
@counts_commands
@pytest.mark.parametrize("renewed", [True, False])
def test_first_renewal_after_a_local_handover_stores_the_holder(
    face: Face, alice: Caller, bob: Caller, tune: Tune, *, renewed: bool
) -> None:
    """[F18] With its start and its fence. [F10] [E15] Before and after that, a forced release frees it by its own
    fence, not by that of the previous holder: while the store shows that one, the process confirms."""
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
def test_late_copy_of_the_first_renewal_changes_nothing(face: Face, alice: Caller) -> None:
    """[L13] A late copy of the holder's request, or of a former holder's."""
    lock = face.lock()
    grant = alice(lock.acquire)
    before = alice(lock.holder)
    for token, fence, ours in ((grant.hold.token, grant.fence - 1, True), ("X" * 13, grant.fence + 1, False)):
        assert store_late_copy(lock, token, fence) is ours
        after = alice(lock.holder)
        assert (after.fence, after.host) == (before.fence, before.host)
        assert after.since == pytest.approx(before.since, abs=0.005)  # the clocks of several servers
        assert after.lease_left > 20
    alice(grant.release)


@pytest.mark.usefixtures("slow_machine", "no_polling")
@counts_commands
@pytest.mark.parametrize("why", ["another lease", "an extension", "the store was asked long ago", "not kept"])
def test_handover_needs_a_request_for_another_lease_or_a_long_hold(
    face: Face, alice: Caller, bob: Caller, why: str, tune: Tune
) -> None:
    """[H3] A waiter with another lease gets it from the store, and the store must show the holder of a long hold. [E15]
    Without renewal the process keeps no entry to confirm a fence."""
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


@pytest.mark.usefixtures("slow_machine", "no_polling")
@pytest.mark.exact("needs an empty queue")
def test_a_lock_freed_by_force_is_not_handed_over(
    face: Face, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H3] [F10] The waiter sends a request, even before the store's message arrives: the previous hold is lost."""
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


@pytest.mark.usefixtures("slow_machine", "no_polling")
@counts_commands
def test_handovers_send_a_request_at_intervals(face: Face, alice: Caller, bob: Caller) -> None:
    """[H4] Otherwise a process unaware of other processes' waiters would keep the lock. Every fence is greater."""
    lock = face.lock()
    holder, first, second = alice, bob, face.caller()
    grants: list[Grant] = [holder(lock.acquire)]
    waiting = face.start_waiting(first, lock, timeout=PATIENCE)
    face.wait_until_registered(lock)
    asked = 0
    for _ in range(3 * HAND_OVERS):
        behind = face.start_waiting(second, lock, timeout=PATIENCE)
        with face.commands() as commands:
            holder(grants[-1].release)
            grants.append(waiting.result(PATIENCE))
        asked += commands.count("lock/acquire")
        holder, first, second, waiting = first, second, holder, behind
    assert all(before.fence < after.fence for before, after in pairwise(grants))
    assert 0 < asked < HAND_OVERS  # of three times as many hand-overs
    holder(grants[-1].release)
    first(waiting.result(PATIENCE).release)
    assert not alice(lock.locked)
