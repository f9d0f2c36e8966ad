"""The mutex on every backend, with both APIs: exclusion, results, waiting, release, keys, holders.

``test_cpython_lock_tests.py`` tests the promises of ``threading.Lock``.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
import time
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from django_redis_locks import (
    Lock,
    LockAlreadyHeld,
    LockError,
    LockLost,
    LockNotAcquired,
    LockNotOwned,
)
from tests.contract.matrix import PATIENCE, Caller, Face, each_mutex, eventually, inside

# Exclusion


def test_lock_objects_of_one_key_are_one_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """The state is in the store, not in the object."""
    assert alice(face.lock().acquire)
    assert bob(face.lock(expire=5).acquire, blocking=False) is None
    assert bob(face.lock(key=f"{face.key}/other").acquire, blocking=False)


def test_acquire_by_the_owner_of_a_plain_lock_raises_LockAlreadyHeld(face: Face, alice: Caller) -> None:
    """[F5] At once, with any timeout; a non-blocking acquire returns None."""
    lock = face.lock()
    alice(lock.acquire)
    with face.commands() as commands:
        for how in ({}, {"timeout": 5}, {"timeout": 0}, {"timeout": -1}):
            with pytest.raises(LockAlreadyHeld):
                alice(lock.acquire, **how)
        assert alice(lock.acquire, blocking=False) is None
    assert commands == []


def test_acquire_after_a_released_or_lost_grant_succeeds(face: Face, alice: Caller) -> None:
    """[F5] Neither counts as held, and a late release of the first grant frees nothing."""
    lock, short = face.lock(expire=30), face.lock(expire=0.05)
    released = alice(lock.acquire)
    alice(released.release)
    lost = alice(short.acquire)
    eventually(lambda: lost.lost)
    again = alice(lock.acquire, timeout=20)
    assert again.fence > lost.fence > released.fence
    alice(released.release)
    alice(again.ensure_held, confirm=True)


class Counter:
    """A counter that isn't atomic: two holders at once would lose an update."""

    def __init__(self) -> None:
        self.value = 0
        self.fences: list[int] = []

    def work(self, lock: Lock, rounds: int) -> None:
        for _ in range(rounds):
            with lock as grant:
                value = self.value
                time.sleep(0)
                self.value = value + 1
                self.fences.append(grant.fence)

    async def awork(self, lock: Lock, rounds: int) -> None:
        for _ in range(rounds):
            async with lock as grant:
                value = self.value
                await asyncio.sleep(0)
                self.value = value + 1
                self.fences.append(grant.fence)


@each_mutex
def test_many_callers_lose_no_update(face: Face) -> None:
    """Six callers, twenty times each: 120 updates, and the fences rise in their order. Processes are in
    tests/chaos/fuzz."""
    lock, counter = face.lock(wait=2 * PATIENCE), Counter()
    futures = [face.caller().start(counter.work, lock, 20) for _ in range(6)]
    for future in futures:
        future.result(3 * PATIENCE)
    assert counter.value == 120
    assert counter.fences == sorted(set(counter.fences))


# Results


def test_acquire_or_with_after_its_wait_raises_LockNotAcquired(face: Face, alice: Caller, bob: Caller) -> None:
    """[F1] The code after it never runs without the lock. The error has the holder and the rest of its lease."""
    alice(face.lock(expire=30).acquire)
    with pytest.raises(LockNotAcquired) as caught:
        bob(face.lock(wait=0.1).acquire)
    error = caught.value
    assert 0.1 <= error.waited < 8
    assert 20 < error.retry_after <= 30
    assert error.holder.pid == os.getpid()
    with pytest.raises(LockNotAcquired), inside(bob, face.lock(wait=0.1)):
        pytest.fail("the body ran")


@pytest.mark.exact("counts commands")
def test_acquire_without_wait_sends_one_command(face: Face, alice: Caller, bob: Caller) -> None:
    """[L30] [H12] Whether or not the lock is free. It doesn't queue behind waiters."""
    lock = face.lock()
    for how in ({"blocking": False}, {"timeout": 0}, {"timeout": timedelta(0)}):
        for answer in (True, False):
            with face.commands() as commands:
                assert bool(bob(lock.acquire, **how)) is answer, how
            assert commands in (["lock/acquire"], ["lock/acquire_fair"]), how
            if answer:
                bob(lock.release)
                alice(lock.acquire)
        waiter = face.caller()
        waiting = face.start_waiting(waiter, lock, timeout=PATIENCE)
        assert bob(lock.acquire, **how) is None
        assert not waiting.done()
        alice(lock.release)
        assert waiting.result(PATIENCE)
        waiter(lock.release)


def test_a_timedelta_is_accepted_wherever_seconds_are(face: Face, alice: Caller, bob: Caller) -> None:
    """[F2] For timeouts and leases."""
    grant = alice(face.lock(expire=timedelta(minutes=2)).acquire, timeout=timedelta(seconds=10))
    assert 110 < bob(face.lock().holder).lease_left <= 120
    assert bob(face.lock(wait=timedelta(0)).acquire, timeout=timedelta(milliseconds=20)) is None
    for lease in (timedelta(minutes=4), 315_360_000):  # ten years is the longest lease
        alice(grant.extend, lease)
        assert grant.remaining() > 0.95 * bob(face.lock().holder).lease_left > 220


# Waiting


def test_waiters_with_an_endless_timeout_get_the_lock(face: Face, alice: Caller) -> None:
    """[F2] Longer than the lock's own wait and the range of clocks; for the head of the queue and the waiters behind
    it."""
    lock = face.lock(wait=0)
    alice(lock.acquire)
    timeouts = [-1, threading.TIMEOUT_MAX * 2, 1e100, timedelta.max]
    callers = [face.caller() for _ in timeouts]
    waiting = [
        face.start_waiting(caller, lock, timeout=timeout) for caller, timeout in zip(callers, timeouts, strict=True)
    ]
    assert face.queued(lock) == len(timeouts)
    alice(lock.release)
    for caller, future in zip(callers, waiting, strict=True):
        assert future.result(PATIENCE)
        caller(lock.release)


def test_waiters_of_one_process_are_served_in_their_order(face: Face, alice: Caller) -> None:
    """[H12] First in, first out."""
    lock = face.lock()
    grant, owner = alice(lock.acquire), alice
    callers = [face.caller() for _ in range(4)]
    waiting = []
    for caller in callers:
        waiting.append(face.start_waiting(caller, lock, timeout=PATIENCE))
        face.wait_until_registered(lock)
    while waiting:
        owner(grant.release)
        first, owner = waiting.pop(0), callers.pop(0)
        grant = first.result(PATIENCE)
        assert not any(later.done() for later in waiting)


# Release


def test_a_second_release_of_a_grant_does_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] It doesn't free the next holder's lock."""
    lock = face.lock()
    grant = alice(lock.acquire)
    alice(grant.release)
    other = bob(lock.acquire, timeout=0)
    with face.commands() as commands:
        alice(grant.release)
    assert commands == []
    bob(other.ensure_held, confirm=True)


def test_with_block_on_a_grant_releases_it_once_in_any_caller(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] [L4] A body may release it earlier; the end of the block doesn't replace the body's error."""
    lock = face.lock()
    with inside(bob, alice(lock.acquire)):
        assert bob(lock.locked)
    assert not bob(lock.locked)
    with inside(alice, lock) as grant:
        alice(grant.release)
    with pytest.raises(ZeroDivisionError), inside(alice, lock) as grant:
        raise ZeroDivisionError(alice(grant.release))
    assert not alice(lock.locked)


def test_with_block_on_a_grant_that_is_not_held_raises_LockLost_before_its_body(
    face: Face, alice: Caller, bob: Caller
) -> None:
    """[L1] ``with lock as lock`` in a loop enters the grant of the previous iteration."""
    lock = face.lock()
    released, lost = alice(lock.acquire), None
    alice(released.release)
    lost = alice(lock.acquire)
    alice(lock.force_release, "test")
    with pytest.raises(LockLost):
        alice(lost.ensure_held, confirm=True)
    for grant in (released, lost):
        with face.commands() as commands, pytest.raises(LockLost), inside(bob, grant):
            pytest.fail("the body runs without the lock")
        assert {*commands} <= {"lock/adopt"}, "but for the look at what was forced"


def test_second_with_block_on_one_grant_raises_LockAlreadyHeld(face: Face, alice: Caller, bob: Caller) -> None:
    """[L1] The end of the inner block would free the lock during the outer one."""
    lock = face.lock()
    with inside(alice, lock) as grant:
        for caller in (alice, bob):
            with pytest.raises(LockAlreadyHeld), inside(caller, grant):
                pytest.fail("two blocks hold one grant")
        alice(grant.ensure_held, confirm=True)
    taken = alice(lock.acquire)
    with inside(alice, taken), pytest.raises(LockAlreadyHeld), inside(bob, taken):
        pytest.fail("two blocks hold one grant")


# Keys


class Model(str, Enum):  # noqa: UP042 - a StrEnum would be formatted as its text, this one isn't
    ORDER = "order:1"


def test_any_text_is_a_key(face: Face, alice: Caller, bob: Caller) -> None:
    """[F7] [L45] An unusual key excludes other callers, and isn't confused with a similar one. A member of a str enum,
    or a SafeString, is the key of its text."""
    unusual = ["smörgås/锁/🔒", "{user}.{1}", " a b\tc\n", "100%~%7B", "a\0b", "x" * 10_000, "e\u0301"]
    for key in (f"{face.key}{text}" for text in unusual):
        lock = face.lock(key=key)
        alice(lock.acquire)
        assert bob(face.lock(key=key).acquire, blocking=False) is None, key
        assert bob(face.lock(key=f"{key}.").acquire, blocking=False), key
        alice(lock.release)
        assert bob(face.lock(key=key).acquire, blocking=False), key
    lock = face.lock(key=Model.ORDER)
    assert lock.name == "order"
    alice(lock.acquire)
    assert bob(face.lock(key="order:1").acquire, blocking=False) is None
    assert bob(face.lock(key=str(Model.ORDER)).acquire, blocking=False)


# Holders and errors


def test_holder_of_a_held_lock_has_every_field(face: Face, alice: Caller, bob: Caller) -> None:
    """[F18] Host, pid, thread or task, name, fence, start and rest of the lease, for any caller."""
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
    alice(grant.release)
    for stored in ([], ["pid"], ["thread", "name"]):  # other fields than those in METADATA aren't stored
        face.configure(METADATA=stored)
        grant = alice(face.lock().acquire)
        holder = bob(lock.holder)
        alice(grant.release)
        assert [name for name in ("host", "pid", "thread", "name") if getattr(holder, name) is not None] == stored


def test_errors_show_the_name_and_neither_key_nor_token(face: Face, alice: Caller, bob: Caller) -> None:
    """A key may contain personal data, and the token can free the lock. An attribute has the key, and errors pickle."""
    key = f"{face.key}:jane@example.org"
    lock = face.lock(key=key, name="profile", wait=0)
    errors: list[LockError] = []
    grant = alice(lock.acquire)
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
    for shown in (bob(lock.holder), *errors, *map(vars, errors), grant, lock):
        assert grant.hold.token not in f"{shown!r} {shown}"


# Options and events


def test_a_lock_without_an_index_works(face: Face, alice: Caller, bob: Caller) -> None:
    """With INDEX False only the list of held locks is missing."""
    face.configure(INDEX=False)
    lock = face.lock()
    grant = alice(lock.acquire)
    assert bob(lock.acquire, blocking=False) is None
    alice(grant.extend, 60)
    assert bob(lock.holder).lease_left > 50
    alice(grant.release)
    assert bob(lock.acquire, blocking=False)


@pytest.mark.exact("a release whose first reply is lost is reported as unconfirmed")
def test_each_event_is_reported_once(face: Face, alice: Caller, bob: Caller, events: list[Any]) -> None:
    """Acquired, contended and released, with the fields for signals and metrics."""
    lock = face.lock(name="things", wait=0)
    with inside(alice, lock) as grant:
        assert bob(lock.acquire, timeout=0) is None
    assert [type(event).__name__ for event in events] == ["Acquired", "Contended", "Released"]
    assert {(event.key, event.name, event.alias) for event in events} == {(face.key, "things", "default")}
    assert (events[0].fence, events[2].fence, events[2].confirmed) == (grant.fence, grant.fence, True)
