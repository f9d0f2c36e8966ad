"""What a mutex promises on every backend and behind both faces: exclusion, answers, waiting, release, keys, holders."""

from __future__ import annotations

import math
import os
import pickle
import socket
import time
from datetime import timedelta
from typing import Any

import pytest

from django_redis_locks import (
    LockAlreadyHeld,
    LockError,
    LockKeyError,
    LockNotAcquired,
    LockNotOwned,
    current_grant,
)
from django_redis_locks.core import clock
from django_redis_locks.core.tuning import DEFAULT
from tests.contract.matrix import PATIENCE, Caller, Face, eventually, inside

# Exclusion


def test_a_grant_is_true_and_excludes_others(face: Face, alice: Caller, bob: Caller) -> None:
    """While one caller holds the lock no other gets it, and afterwards the next one does."""
    lock = face.lock()
    grant = alice(lock.acquire)
    assert grant
    assert bob(lock.acquire, blocking=False) is None
    alice(grant.release)
    assert bob(lock.acquire, blocking=False)


def test_another_lock_object_of_the_same_key_is_the_same_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """The state is in the store, not in the object: two objects of one key exclude each other."""
    assert alice(face.lock().acquire)
    assert bob(face.lock(expire=5).acquire, blocking=False) is None
    assert bob(face.lock(key=f"{face.key}/other").acquire, blocking=False)


def test_half_an_owner_is_a_stranger_who_is_told_so_at_once(face: Face, alice: Caller) -> None:
    """[H5] The thread in another context, or the context in another task, neither owns the lock nor waits for itself."""
    lock = face.rlock()
    alice(lock.acquire)
    with face.commands() as commands:
        assert alice.halfway(lock.acquire, blocking=False) is None
        with pytest.raises(LockAlreadyHeld, match="holds it"):
            alice.halfway(lock.acquire)
    assert commands == []
    with pytest.raises(LockNotOwned):
        alice.halfway(lock.release)
    assert alice(lock.owned)


def test_the_owner_of_a_plain_lock_does_not_wait_for_himself(face: Face, alice: Caller) -> None:
    """[F5] A second blocking acquire raises at once, whatever the timeout; a non-blocking one is answered with None."""
    lock = face.lock()
    alice(lock.acquire)
    with face.commands() as commands:
        for how in ({}, {"timeout": 5}, {"timeout": 0}, {"timeout": -1}):
            with pytest.raises(LockAlreadyHeld):
                alice(lock.acquire, **how)
        assert alice(lock.acquire, blocking=False) is None
    assert commands == []


def test_a_released_or_lost_grant_does_not_count_as_held(face: Face, alice: Caller) -> None:
    """[F5] Its owner may acquire the lock again, and its late release harms nobody."""
    lock, short = face.lock(expire=30), face.lock(expire=0.05)
    released = alice(lock.acquire)
    alice(released.release)
    lost = alice(short.acquire)
    eventually(lambda: lost.lost)
    again = alice(lock.acquire, timeout=20)
    assert again.fence > lost.fence > released.fence
    alice(released.release)
    alice(again.ensure_held, confirm=True)


# Answers


def test_bare_acquire_raises_when_its_wait_is_over(face: Face, alice: Caller, bob: Caller) -> None:
    """[F1] A section after a bare acquire() never runs unlocked, and the error tells how it stands."""
    alice(face.lock(expire=30).acquire)
    with pytest.raises(LockNotAcquired) as caught:
        bob(face.lock(wait=0.1).acquire)
    error = caught.value
    assert 0.1 <= error.waited < 8
    assert 20 < error.retry_after <= 30
    assert error.holder.pid == os.getpid()
    assert (error.key, error.name, error.alias) == (face.key, "thing", "default")


@pytest.mark.exact("one attempt, which a delay makes an unanswered one")
def test_with_raises_when_the_wait_is_over(face: Face, alice: Caller, bob: Caller) -> None:
    """[F1] The body of a `with` never runs unlocked either."""
    alice(face.lock().acquire)
    with pytest.raises(LockNotAcquired), inside(bob, face.lock(wait=0)):
        pytest.fail("the body ran")


@pytest.mark.exact("counts commands")
@pytest.mark.parametrize("how", [{"blocking": False}, {"timeout": 0}, {"timeout": timedelta(0)}], ids=str)
def test_a_question_without_wait_is_one_command(face: Face, alice: Caller, bob: Caller, how: dict[str, Any]) -> None:
    """[L30] [H12] It is answered by exactly one attempt, whether the lock is free or not, and doesn't queue up."""
    lock = face.lock()
    for answer in (True, False):
        with face.commands() as commands:
            assert bool(bob(lock.acquire, **how)) is answer
        assert commands == ["lock/acquire"]
        if answer:
            bob(lock.release)
            alice(lock.acquire)
    waiting = face.start_waiting(face.caller(), lock, timeout=PATIENCE)
    assert bob(lock.acquire, **how) is None
    assert not waiting.done()
    alice(lock.release)
    assert waiting.result(PATIENCE)


def test_a_timeout_is_answered_with_none_when_it_is_over(face: Face, alice: Caller, bob: Caller) -> None:
    """[F1] [L30] Fractions count, and the wait is neither cut short nor begun again."""
    lock = face.lock()
    alice(lock.acquire)
    begin = time.monotonic()
    assert bob(lock.acquire, timeout=0.15) is None
    assert 0.15 <= time.monotonic() - begin < 8


@pytest.mark.parametrize(
    "how",
    [
        {"blocking": False, "timeout": 1},
        {"timeout": -2},
        {"timeout": -0.5},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"timeout": True},
        {"timeout": "1"},
    ],
    ids=str,
)
def test_senseless_waits_are_refused(face: Face, alice: Caller, how: dict[str, Any]) -> None:
    """[F2] A wait that can't be meant is a ValueError before anything is sent."""
    with face.commands() as commands, pytest.raises(ValueError, match=r"timeout|blocking"):
        alice(face.lock().acquire, **how)
    assert commands == []


# Waiting


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts on wake-ups")
def test_a_waiter_gets_the_lock_when_it_is_released(face: Face, alice: Caller, bob: Caller) -> None:
    """Within one process a release wakes the next one at once, without polling."""
    lock = face.lock()
    grant = alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=2 * PATIENCE)
    alice(grant.release)
    assert waiting.result(PATIENCE)


@pytest.mark.usefixtures("no_polling")
@pytest.mark.exact("counts commands")
def test_a_release_to_one_who_waits_here_asks_nobody(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [X1] The lock is handed over within the process: one question of the heir's is all that is sent. It is another
    hold, with a fence and a holder of its own, and nobody has lost anything."""
    lock = face.lock()
    first = alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=PATIENCE)
    eventually(lambda: face.quiet(lock))
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
    """[H3] [H12] On the terms that it asked for, longer or shorter than its predecessor's."""
    first = alice(face.lock(expire=20).acquire)
    waiting = face.start_waiting(bob, face.lock(expire=60), timeout=PATIENCE)
    alice(first.release)
    second = waiting.result(PATIENCE)
    assert 50 < second.remaining() <= 60
    assert 50 < alice(face.lock().holder).lease_left <= 60 + DEFAULT.local_reuse_window
    waiting = face.start_waiting(alice, face.lock(expire=5), timeout=PATIENCE)
    bob(second.release)
    assert waiting.result(PATIENCE).remaining() <= 5


@pytest.mark.exact("twenty milliseconds are no time for a second try")
def test_an_heir_whose_time_is_up_passes_the_lock_on(face: Face, alice: Caller, bob: Caller) -> None:
    """[H3] [L29] Handed over in the very moment: it is the next one's, or free, but never nobody's."""
    lock = face.lock(expire=30)
    for number in range(20):
        grant = alice(lock.acquire, timeout=5)
        short = face.start_waiting(bob, lock, timeout=0.02)
        eventually(lambda: clock.now() >= grant.hold.since + 0.019 + number * 0.0002)  # noqa: B023 - called here
        alice(grant.release)
        heir = short.result(PATIENCE)
        if heir is not None:
            bob(heir.release)
        eventually(lambda: not alice(lock.locked))


def test_minus_one_waits_for_ever(face: Face, alice: Caller, bob: Caller) -> None:
    """[F2] -1 waits beyond the lock's own wait, until it is free."""
    lock = face.lock(wait=0)
    grant = alice(lock.acquire)
    waiting = face.start_waiting(bob, lock, timeout=-1)
    assert not waiting.done()
    alice(grant.release)
    assert waiting.result(PATIENCE)


def test_waiters_of_a_process_are_served_in_their_order(face: Face, alice: Caller) -> None:
    """[H12] First come, first served among those who wait in one process."""
    lock = face.lock()
    grant, owner = alice(lock.acquire), alice
    callers = [face.caller() for _ in range(4)]
    waiting = [face.start_waiting(caller, lock, timeout=PATIENCE) for caller in callers]
    while waiting:
        owner(grant.release)
        first, owner = waiting.pop(0), callers.pop(0)
        grant = first.result(PATIENCE)
        assert not any(later.done() for later in waiting)


def test_a_waiter_who_gives_up_is_no_obstacle(face: Face, alice: Caller, bob: Caller) -> None:
    """[L29] [H22] The one behind a waiter whose time is over is served as if he had never been there."""
    lock = face.lock()
    grant = alice(lock.acquire)
    short = face.start_waiting(bob, lock, timeout=0.15)
    patient = face.start_waiting(face.caller(), lock, timeout=PATIENCE)
    assert short.result(PATIENCE) is None
    alice(grant.release)
    assert patient.result(PATIENCE)
    assert face.queued(lock) == 0


# Release


def test_a_grant_is_released_once_however_often_it_is_told(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] A second release of a grant does nothing, and surely doesn't free the next holder's lock."""
    lock = face.lock()
    grant = alice(lock.acquire)
    alice(grant.release)
    other = bob(lock.acquire, timeout=0)
    with face.commands() as commands:
        alice(grant.release)
    assert commands == []
    bob(other.ensure_held, confirm=True)


def test_only_its_owner_releases_a_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[L1] lock.release() of somebody who doesn't hold it is LockNotOwned, a RuntimeError, and frees nothing."""
    lock = face.lock()
    with pytest.raises(LockNotOwned):
        bob(lock.release)
    alice(lock.acquire)
    with pytest.raises(RuntimeError):
        bob(lock.release)
    assert alice(lock.owned)
    assert not bob(lock.owned)
    alice(lock.release)
    assert not bob(lock.locked)
    with pytest.raises(LockNotOwned):
        alice(lock.release)


def test_a_grant_is_released_from_anywhere(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5] grant.release() needs no owner: a grant may be handed on."""
    lock = face.lock()
    grant = alice(lock.acquire)
    bob(grant.release)
    assert not alice(lock.owned)
    assert bob(lock.acquire, timeout=0)
    with pytest.raises(LockNotOwned):
        alice(lock.release)


def test_with_holds_the_lock_while_its_body_runs(face: Face, alice: Caller, bob: Caller) -> None:
    """The body runs under the lock, its grant is the current one, and the lock is free however the body ends."""
    lock = face.lock()
    with inside(alice, lock) as grant:
        assert bob(lock.acquire, blocking=False) is None
        assert alice(current_grant) is grant
    assert alice(current_grant) is None
    assert not bob(lock.locked)
    with pytest.raises(ZeroDivisionError), inside(alice, lock):
        raise ZeroDivisionError
    assert not bob(lock.locked)


def test_a_grant_is_given_back_at_the_end_of_its_with(face: Face, alice: Caller, bob: Caller) -> None:
    """`with grant:` serves whoever was handed one."""
    lock = face.lock()
    with inside(bob, alice(lock.acquire)):
        assert bob(lock.locked)
    assert not bob(lock.locked)


def test_a_body_that_releases_its_own_grant_is_left_quietly(face: Face, alice: Caller) -> None:
    """[F4] [L4] The end of the `with` neither complains about a release that has been, nor hides the body's error."""
    lock = face.lock()
    with inside(alice, lock) as grant:
        alice(grant.release)
    with pytest.raises(ZeroDivisionError), inside(alice, lock) as grant:
        raise ZeroDivisionError(alice(grant.release))
    assert not alice(lock.locked)


# Keys


UNUSUAL = {
    "unicode": "smörgås/锁/🔒",
    "braces": "{user}.{1}",
    "spaces": " a b\tc\n",
    "percent": "100%~%7B",
    "nul": "a\0b",
    "10 kB": "x" * 10_000,
    "combining": "e\u0301",
}


@pytest.mark.parametrize("key", UNUSUAL.values(), ids=UNUSUAL)
def test_any_text_is_a_key(face: Face, alice: Caller, bob: Caller, key: str) -> None:
    """[F7] [L45] An unusual key works, excludes, and isn't taken for one that looks like it."""
    key = f"{face.key}{key}"
    lock = face.lock(key=key)
    alice(lock.acquire)
    assert bob(face.lock(key=key).acquire, blocking=False) is None
    assert bob(face.lock(key=f"{key}.").acquire, blocking=False)
    alice(lock.release)
    assert bob(face.lock(key=key).acquire, blocking=False)


@pytest.mark.parametrize("key", [None, "", b"bytes", 1, ("a",), "\ud800"], ids=repr)
def test_what_is_no_text_is_no_key(face: Face, key: Any) -> None:
    """[F7] It is refused where the lock is made, as LockKeyError, which is a ValueError."""
    with pytest.raises(LockKeyError) as caught:
        face.lock(key=key)
    assert isinstance(caught.value, ValueError)


# Holders and errors


def test_the_holder_is_told(face: Face, alice: Caller, bob: Caller) -> None:
    """[F18] Host, pid, thread or task, name, fence, since when and how long: as anybody sees it."""
    lock = face.lock(expire=30, name="things")
    assert bob(lock.holder) is None
    begin = time.time()
    grant = alice(lock.acquire)
    holder = bob(lock.holder)
    assert (holder.host, holder.pid, holder.name) == (socket.gethostname(), os.getpid(), "things")
    assert holder.thread.startswith("Task-" if face.is_async else "ThreadPoolExecutor")
    assert holder.fence == grant.fence
    assert begin - 0.1 < holder.since < time.time() + 0.1
    assert 20 < holder.lease_left <= 30
    assert bob(lock.locked)
    alice(grant.release)
    assert not bob(lock.locked)


@pytest.mark.parametrize(
    ("metadata", "told"), [([], ()), (["pid"], ("pid",)), (["name", "thread"], ("thread", "name"))], ids=str
)
def test_metadata_says_what_is_told_of_the_holder(
    face: Face, alice: Caller, metadata: list[str], told: tuple[str, ...]
) -> None:
    """[F18] What METADATA doesn't name isn't stored."""
    face.configure(METADATA=metadata)
    lock = face.lock()
    alice(lock.acquire)
    holder = alice(lock.holder)
    assert tuple(field for field in ("host", "pid", "thread", "name") if getattr(holder, field) is not None) == told


def test_the_secret_of_a_hold_is_not_told(face: Face, alice: Caller, bob: Caller) -> None:
    """Whoever saw the token could free the lock: it is in no holder, error or repr."""
    lock = face.lock(wait=0)
    grant = alice(lock.acquire)
    token = grant.hold.token
    assert len(token) >= 13
    with pytest.raises(LockNotAcquired) as caught:
        bob(lock.acquire)
    for shown in (bob(lock.holder), caught.value, vars(caught.value), grant, lock):
        assert token not in f"{shown!r} {shown}"


def test_locks_work_without_an_index(face: Face, alice: Caller, bob: Caller) -> None:
    """INDEX False costs the list of held locks and nothing else."""
    face.configure(INDEX=False)
    lock = face.lock()
    grant = alice(lock.acquire)
    assert bob(lock.acquire, blocking=False) is None
    alice(grant.extend, 60)
    assert bob(lock.holder).lease_left > 50
    alice(grant.release)
    assert bob(lock.acquire, blocking=False)


def test_errors_name_the_lock_and_keep_its_key_to_themselves(face: Face, alice: Caller, bob: Caller) -> None:
    """A filled key may be personal data: messages show the name, attributes have the key, and all of it pickles."""
    key = f"{face.key}:jane@example.org"
    lock = face.lock(key=key, name="profile", wait=0)
    errors: list[LockError] = []
    alice(lock.acquire)
    for caller, method in ((bob, lock.acquire), (bob, lock.release), (alice, lock.acquire)):
        with pytest.raises(LockError) as caught:
            caller(method)
        errors.append(caught.value)
    assert {type(error) for error in errors} == {LockNotAcquired, LockNotOwned, LockAlreadyHeld}
    for error in errors:
        assert "profile" in str(error)
        assert "jane" not in str(error)
        assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
        assert (error.key, error.name, error.alias) == (key, "profile", "default")
