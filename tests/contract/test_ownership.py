"""The owner of a lock: one thread or task, in its own context and its own process."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from django_redis_locks import Grant, LockAlreadyHeld, LockLost, LockNotOwned
from tests.contract.matrix import Caller, Face, eventually, inside, threads_only, twin
from tests.forks import in_child

# Threads, tasks and contexts


def test_another_caller_with_the_grant_waits(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5] [L6] A reference to the grant doesn't make a caller the owner."""
    lock = face.rlock()
    grant = alice(lock.acquire)
    with inside(bob, grant):
        assert bob(lock.acquire, timeout=0.05) is None
    assert bob(lock.acquire, timeout=0)


def test_caller_with_half_of_the_owners_identity_is_refused_at_once(face: Face, alice: Caller) -> None:
    """[H5] A caller with only the same thread, or only the same context, neither owns the lock nor waits for itself."""
    lock = face.rlock()
    alice(lock.acquire)
    with face.commands() as commands:
        assert alice.as_half_owner(lock.acquire, blocking=False) is None
        with pytest.raises(LockAlreadyHeld, match="holds it"):
            alice.as_half_owner(lock.acquire)
        with pytest.raises(LockNotOwned):
            alice.as_half_owner(lock.release)
    assert commands == []
    assert alice(lock.owned)


def in_copied_context(face: Face, alice: Caller, bob: Caller) -> Callable[..., Any]:
    """Call in Bob's thread or task, in a copy of Alice's context, such as ``asyncio.to_thread`` makes."""
    context = alice(contextvars.copy_context)

    def call(method: Callable[..., Any], **how: Any) -> Any:
        async def child() -> Any:
            return await asyncio.get_running_loop().create_task(twin(method)(**how), context=context)

        return bob(child) if face.is_async else bob(partial(context.run, method, **how))

    return call


def test_a_copied_context_owns_nothing(face: Face, alice: Caller, bob: Caller) -> None:
    """[H5b] It would wait for the caller that started it, so a blocking acquire raises at once; but not after that
    grant is released or lost, although the context still contains it."""
    lock = face.rlock(expire=30)
    grant = alice(lock.acquire)
    call = in_copied_context(face, alice, bob)
    with face.commands() as commands:
        assert call(lock.acquire, blocking=False) is None
        for how in ({}, {"timeout": 0}, {"timeout": -1}):
            with pytest.raises(LockAlreadyHeld, match="the task or thread that started this one holds it"):
                call(lock.acquire, **how)
        with pytest.raises(LockNotOwned):
            call(lock.release)
    assert commands == []
    alice(grant.ensure_held, confirm=True)
    alice(grant.release)
    bob(call(lock.acquire, timeout=20).release)
    lost = alice(face.rlock(expire=0.05).acquire, timeout=20)
    call = in_copied_context(face, alice, bob)
    eventually(lambda: lost.lost)
    assert call(lock.acquire, timeout=20)


def test_task_that_its_parent_does_not_wait_for_may_wait_for_its_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[L7] With wait_for_parent; also of an rlock, which it doesn't re-enter. The parent still re-enters it."""
    lock, rlock = face.lock(wait_for_parent=True, expire=30), face.rlock(wait_for_parent=True, expire=30)
    for asked in (lock, rlock):
        grant = alice(rlock.acquire)
        call = in_copied_context(face, alice, bob)
        assert call(asked.acquire, blocking=False) is None
        assert call(asked.acquire, timeout=0.01) is None
        alice(alice(rlock.acquire).release)
        alice(grant.release)
        later = call(asked.acquire, timeout=20)
        assert later.fence > grant.fence
        bob(later.release)


@threads_only
def test_a_thread_never_waits_for_itself(face: Face, alice: Caller) -> None:
    """[H5] wait_for_parent doesn't change that: its other context can't release the lock while it waits."""
    lock = face.lock(wait_for_parent=True)
    alice(lock.acquire)
    with pytest.raises(LockAlreadyHeld, match="holds it"):
        alice.as_half_owner(lock.acquire)
    with pytest.raises(LockAlreadyHeld, match="the caller holds it already"):
        alice(lock.acquire)


def test_exit_of_a_with_block_that_never_began_raises_LockNotOwned(face: Face, alice: Caller, bob: Caller) -> None:
    """[F4] It doesn't end another caller's block, and doesn't replace an exception in flight."""
    lock = face.lock()
    with inside(alice, lock) as grant:
        with pytest.raises(LockNotOwned):
            bob(lock.__exit__, None, None, None)
        bob(lock.__exit__, ValueError, ValueError("on its way"), None)
        alice(grant.ensure_held, confirm=True)
    with pytest.raises(LockNotOwned):
        alice(lock.__exit__, None, None, None)


# Processes


def here(face: Face, method: Callable[..., Any], *args: Any) -> Any:
    """Call in a forked child. The parent's loop doesn't run there, so a coroutine must finish without suspending."""
    result = (twin(method) if face.is_async else method)(*args)
    if not face.is_async:
        return result
    with pytest.raises(StopIteration) as end:
        result.send(None)
    return end.value.value


@pytest.mark.parametrize("entries", [1, 2])
def test_release_in_a_forked_child_does_nothing(face: Face, alice: Caller, bob: Caller, entries: int) -> None:
    """[F16] [H18] [L47] In the child the grant is lost, and its release warns once."""
    lock = face.rlock(expire=30)
    grants = [alice(lock.acquire) for _ in range(entries)]

    def use(grant: Grant) -> None:
        assert grant.lost
        assert grant.remaining() == 0.0
        for method, *args in ((grant.ensure_held,), (grant.extend, 60)):
            with pytest.raises(LockLost, match="forked"):
                here(face, method, *args)
        for expected in ([RuntimeWarning], []):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                here(face, grant.release)
            assert [warning.category for warning in caught] == expected

    def child() -> None:
        with face.commands() as commands:
            for grant in grants:
                use(grant)
            assert not lock.owned()
            with pytest.raises(LockNotOwned):
                here(face, lock.release)
        assert commands == []

    alice(partial(in_child, child))
    for grant in grants:
        assert bob(lock.acquire, blocking=False) is None
        alice(grant.ensure_held, confirm=True)
        alice(grant.release)
    assert not bob(lock.locked)


def test_with_block_that_ends_in_a_forked_child_keeps_the_lock(face: Face, alice: Caller, bob: Caller) -> None:
    """[F16] The child leaves its parent's block without an error."""
    lock = face.lock(expire=30)

    def child() -> None:
        for end in (lock.__exit__, grant.__exit__):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                here(face, end, None, None, None)
            assert len(caught) == (end == lock.__exit__)

    with inside(alice, lock) as grant:
        alice(partial(in_child, child))
        assert bob(lock.acquire, blocking=False) is None
        alice(grant.ensure_held, confirm=True)
    assert not bob(lock.locked)
