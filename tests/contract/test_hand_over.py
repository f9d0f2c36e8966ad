"""Locks that pass on within a process, from one who waits to the next, without the store being asked."""

from __future__ import annotations

import contextlib
from itertools import cycle, pairwise

import pytest

from django_redis_locks import Grant, LockLost, locks
from django_redis_locks.core.queues import Queues
from tests.contract.matrix import PATIENCE, Caller, Face, eventually
from tests.probes.tuning import Tune

HAND_OVERS = 16
"""How often in a row a lock stays within a process, at most."""


@pytest.fixture
def unhurried(tune: Tune) -> None:
    """However slow this machine is, the store was asked lately."""
    tune(local_reuse_window=60.0)


def second_and_third(face: Face, alice: Caller, bob: Caller, carol: Caller) -> tuple[Grant, Grant]:
    """Alice's lock goes to Bob, who asks the store, and from him to Carol, who needn't."""
    lock = face.lock()
    first = alice(lock.acquire)
    second, third = (face.start_waiting(caller, lock, timeout=PATIENCE) for caller in (bob, carol))
    eventually(lambda: face.quiet(lock))
    with face.commands() as commands:
        alice(first.release)
        before = second.result(PATIENCE)
        assert commands == ["lock/acquire"]
        bob(before.release)
        after = third.result(PATIENCE)
        assert commands == ["lock/acquire"]
    return before, after


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("counts commands")
def test_who_takes_over_may_go_on_unasked(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [H5] She is another holder: a fence of her own, which only she can give back. The store knows the one who asked."""
    carol = face.caller()
    lock = face.lock()
    second, third = second_and_third(face, alice, bob, carol)
    assert third.fence == second.fence + 1
    assert carol(lock.owned)
    assert not bob(lock.owned)
    assert not second.lost
    carol(third.ensure_held, confirm=True)
    assert third.remaining() == pytest.approx(30, abs=10)
    assert alice(lock.holder).fence == second.fence
    carol(third.release)
    assert not alice(lock.locked)
    assert alice(lock.acquire).fence > third.fence + 1


def renew_often(grant: Grant, tune: Tune) -> None:
    """From now on, and not before a test is through with what comes first."""
    janitor = locks["default"].engine._janitor
    mine = id(grant.hold)
    entry = janitor._rounds._new.get(mine) or janitor._rounds._known[mine]
    tune(renew_at=1 / 100)
    janitor.watch(grant.hold, entry.prolong, entry.lease)


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("counts commands")
def test_who_holds_it_for_longer_is_told_of(face: Face, alice: Caller, bob: Caller, tune: Tune) -> None:
    """[F18] With the first renewal the store knows her, since when, and her fence; and she goes on to hold it."""
    carol = face.caller()
    lock = face.lock()
    second, third = second_and_third(face, alice, bob, carol)
    assert alice(lock.holder).fence == second.fence
    asked = alice(lock.holder)
    renew_often(third, tune)
    eventually(lambda: alice(lock.holder).fence == third.fence)
    told = alice(lock.holder)
    assert told.since > asked.since - 0.002
    assert told.thread != asked.thread or face.is_async
    carol(third.ensure_held, confirm=True)
    assert alice(lock.force_release, fence=second.fence) is False
    carol(third.release)
    assert not alice(lock.locked)


@pytest.mark.exact("sends a command by itself")
def test_what_is_told_late_changes_nothing(face: Face, alice: Caller) -> None:
    """[L13] A copy of an earlier request, or one of somebody who had the lock before."""
    lock = face.lock()
    grant = alice(lock.acquire)
    before = alice(lock.holder)
    for token, fence, mine in ((grant.hold.token, grant.fence - 1, True), ("X" * 13, grant.fence + 1, False)):
        command = lock._tell(token, 1, fence=fence, since=0.0, about='["elsewhere"]')
        reply = lock.world.backend.call(command)
        assert command.read(reply) is mine
        after = alice(lock.holder)
        assert (after.fence, after.since, after.host) == (before.fence, before.since, before.host)
        assert after.lease_left > 20
    alice(grant.release)


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("counts commands")
def test_who_was_not_told_of_is_freed_by_force_all_the_same(face: Face, alice: Caller, bob: Caller) -> None:
    """[F10] With the fence that she has, or that the store shows."""
    carol = face.caller()
    lock = face.lock()
    second, third = second_and_third(face, alice, bob, carol)
    assert alice(lock.force_release, fence=second.fence - 1) is False
    assert alice(lock.force_release, fence=third.fence) is True
    with pytest.raises(LockLost):
        carol(third.release)


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("counts commands")
@pytest.mark.parametrize("why", ["another lease", "an extension", "it was long ago"])
def test_who_must_be_told_of(face: Face, alice: Caller, bob: Caller, why: str, tune: Tune) -> None:
    """[H3] Who asked for a lease of his own gets it from the store; and what the store says of a lock that is held for
    long is who holds it."""
    carol = face.caller()
    lock, hers = face.lock(), face.lock(expire=20 if why == "another lease" else 30)
    first = alice(lock.acquire)
    second, third = face.start_waiting(bob, lock, timeout=PATIENCE), face.start_waiting(carol, hers, timeout=PATIENCE)
    eventually(lambda: face.quiet(lock))
    alice(first.release)
    before = second.result(PATIENCE)
    if why == "it was long ago":
        tune(local_reuse_window=0.0)
    elif why == "an extension":
        bob(before.extend, 60)
    with face.commands() as commands:
        bob(before.release)
        after = third.result(PATIENCE)
    assert commands == ["lock/acquire"]
    assert alice(lock.holder).fence == after.fence > before.fence


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("needs an empty line")
def test_what_was_freed_by_force_is_not_passed_on(
    face: Face, alice: Caller, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H3] [F10] Who waits asks, even before the store's message comes: she isn't granted what its holder has no more."""
    monkeypatch.setattr(Queues, "wake", lambda *_: True)  # it never comes
    carol = face.caller()
    lock = face.lock()
    first = alice(lock.acquire)
    second = face.start_waiting(bob, lock, timeout=PATIENCE)
    eventually(lambda: face.quiet(lock))
    alice(first.release)
    held = second.result(PATIENCE)
    third = face.start_waiting(carol, lock, timeout=PATIENCE)
    eventually(lambda: face.quiet(lock))
    assert alice(lock.force_release) is True
    with contextlib.suppress(LockLost):
        bob(held.release)
    granted = third.result(PATIENCE)
    assert alice(lock.holder).fence == granted.fence
    carol(granted.release)


@pytest.mark.usefixtures("unhurried", "no_polling")
@pytest.mark.exact("counts commands")
def test_the_store_is_asked_now_and_then(face: Face, alice: Caller, bob: Caller) -> None:
    """[H4] Else a process that doesn't know of others who wait would keep the lock to itself. Fences grow by all means."""
    lock = face.lock()
    callers = cycle([alice, bob])
    here = next(callers)
    grants: list[Grant] = [here(lock.acquire)]
    asked = 0
    for _ in range(3 * HAND_OVERS):
        there = next(callers)
        waiting = face.start_waiting(there, lock, timeout=PATIENCE)
        eventually(lambda: face.quiet(lock))
        with face.commands() as commands:
            here(grants[-1].release)
            grants.append(waiting.result(PATIENCE))
        asked += commands.count("lock/acquire")
        here = there
    assert all(before.fence < after.fence for before, after in pairwise(grants))
    assert 0 < asked < HAND_OVERS  # of three times as many passes
    here(grants[-1].release)
    assert not alice(lock.locked)
