"""The owner of a grant: a thread or task *and* a context. A caller with only one of the two isn't the owner."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async

from django_redis_locks import Lock, LockAlreadyHeld, LockNotOwned, current_grant, locks
from django_redis_locks.core import grant_stack, owners
from django_redis_locks.core.owners import current_owner
from django_redis_locks.core.registry import Registry, registry

_numbers = count()


@pytest.fixture
def lock() -> Lock:
    return locks.lock(f"unit:{next(_numbers)}", expire=30, wait=0)


@pytest.fixture
def rlock(lock: Lock) -> Lock:
    return locks.rlock(lock.key, expire=30, wait=0)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """An executor with one thread."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def assert_not_owner(lock: Lock, why: str) -> None:
    """The caller doesn't own the lock, and would wait for itself."""
    assert not lock.owned()
    assert lock.acquire(blocking=False) is None
    with pytest.raises(LockAlreadyHeld, match=why):
        lock.acquire(timeout=-1)
    with pytest.raises(LockNotOwned):
        lock.release()


# Owners


def test_current_owner_is_the_thread_or_the_task() -> None:
    """[H5] The running task; outside of a task the thread, also in a callback of a loop."""
    seen: list[Any] = []

    async def main() -> None:
        seen.append(current_owner() is asyncio.current_task())
        asyncio.get_running_loop().call_soon(lambda: seen.append(current_owner() is threading.current_thread()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert current_owner() is threading.main_thread()
    asyncio.run(main())
    assert seen == [True, True]


def test_two_requests_in_one_thread_are_different_owners(rlock: Lock, thread: ThreadPoolExecutor) -> None:
    """[F3] [H5a] Both run in the executor's thread: the second request must not re-enter the lock of the first one."""
    first, second = contextvars.Context(), contextvars.Context()
    grant = thread.submit(first.run, rlock.acquire).result()
    thread.submit(second.run, assert_not_owner, rlock, "share an executor's thread").result()
    assert thread.submit(first.run, rlock.owned).result()
    thread.submit(first.run, rlock.release).result()
    assert grant.released


def test_sync_hops_of_one_request_are_one_owner(rlock: Lock) -> None:
    """[H5] sync_to_async keeps the context: acquire in one call, re-enter and release in others."""

    async def request() -> None:
        async with ThreadSensitiveContext():
            outer = await sync_to_async(rlock.acquire)()
            inner = await sync_to_async(rlock.acquire)()
            assert inner.hold is outer.hold
            assert await sync_to_async(rlock.owned)()
            await sync_to_async(rlock.release)()
            await sync_to_async(rlock.release)()
            assert outer.released

    asyncio.run(request())


# The registry


def test_released_grant_is_not_registered(lock: Lock) -> None:
    """The process keeps nothing of a lock after its release."""
    before = len(registry)
    with lock as grant:
        assert len(registry) == before + 1
        assert lock.lock_id in registry.known
    assert len(registry) == before
    assert lock.lock_id not in registry.known
    gone = weakref.ref(grant.hold)
    del grant
    gc.collect()
    assert gone() is None


def test_grant_is_registered_if_the_collector_releases_the_other_one_meanwhile(lock: Lock) -> None:
    """It may end an abandoned generator, whose block had lost the lock, at any step."""

    class CollectedTable(dict[Any, Any]):
        def __contains__(self, lock_id: object) -> bool:
            return self.pop(lock_id, None) is not None

    with lock as grant:
        fresh = Registry()
        fresh._by_lock = CollectedTable({lock.lock_id: [grant]})
        contextvars.copy_context().run(fresh.register, grant)
        assert fresh.at(lock.lock_id) == [grant]


def test_grant_is_kept_while_its_owner_lives(lock: Lock, thread: ThreadPoolExecutor) -> None:
    """[H6] A caller that keeps no reference to its grant still holds the lock, and can release it by name."""
    thread.submit(lock.acquire).result()
    gc.collect()
    assert thread.submit(lock.owned).result()
    thread.submit(lock.release).result()
    assert not lock.locked()


def test_current_grant_is_the_innermost_that_is_held(lock: Lock) -> None:
    """A grant that was released isn't current."""
    other = locks.lock(f"{lock.key}/other")
    assert current_grant() is None
    with lock as outer:
        with other as inner:
            assert current_grant() is inner
            inner.release()
            assert current_grant() is outer
        assert current_grant() is outer
    assert current_grant() is None


@pytest.mark.parametrize("used", [False, True])
def test_expired_hold_is_forgotten_unless_its_grant_is_referenced(lock: Lock, used: bool) -> None:
    """[E3] A block or a variable can still report the loss; a grant without references can't be released any more."""
    grant = lock.acquire()
    hold = grant.hold
    kept = grant if used else None
    del grant
    assert registry.forget_unused(hold) is not used
    assert (lock.lock_id in registry.known) is used
    assert lock.owned() is used
    if kept:
        kept.release()
    else:
        lock.force_release()


def test_context_forgets_released_grants_at_its_next_acquire(lock: Lock) -> None:
    """[E3] Any number of them, released in any context."""

    def many_leases() -> None:
        grants = [locks.lock(f"crowd:{next(_numbers)}", expire=30).acquire() for _ in range(1000)]
        with lock as inside:
            grants += [locks.lock(f"crowd:{next(_numbers)}", expire=30).acquire() for _ in range(1000)]
            contextvars.Context().run(lambda: [grant.release() for grant in grants])
            locks.lock(f"crowd:{next(_numbers)}", expire=30).acquire().release()
            assert list(grant_stack.entries()) == [inside]

    contextvars.Context().run(many_leases)


def test_end_of_a_block_keeps_the_older_grants_of_its_context(lock: Lock) -> None:
    """[E3] Its cost doesn't depend on the number of grants in the context."""

    def blocks() -> None:
        for _ in range(3):
            locks.lock(f"below:{next(_numbers)}", expire=30).acquire()
        below = grant_stack.top.get()
        with lock:
            above = locks.lock(f"above:{next(_numbers)}", expire=30).acquire()
        assert grant_stack.top.get() == (above.id, below, 4)
        assert grant_stack.top.get()[1] is below  # type: ignore[index]

    contextvars.Context().run(blocks)


def test_block_that_ends_in_another_context_frees_its_lock(lock: Lock, rlock: Lock) -> None:
    """[F4] Also if that context has the entry of an earlier block, or the lock was entered again without a block."""
    first, second = contextvars.copy_context(), contextvars.copy_context()
    for begin, end in (first, second), (second, first):
        begin.run(lock.__enter__)
        end.run(lock.__exit__, None, None, None)
        assert not lock.locked()
    with lock:
        copy = contextvars.copy_context()
    first.run(lock.__enter__)
    copy.run(lock.__exit__, None, None, None)
    assert not lock.locked()
    first.run(rlock.__enter__)
    inner = first.run(rlock.acquire)
    second.run(rlock.__exit__, None, None, None)
    assert inner.held
    inner.release()
    assert not lock.locked()


class Interrupted(BaseException):
    """The exception of a signal handler."""


def interrupt(*_: object) -> None:
    raise Interrupted


def test_signal_during_a_liveness_check_ends_no_thread(
    lock: Lock, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H6] Up to CPython 3.12, a signal handler that raises inside Thread.is_alive() marks a running thread as ended:
    the main thread must not call it."""
    grant = thread.submit(lock.acquire).result()
    monkeypatch.setattr(threading.Thread, "is_alive", interrupt)
    assert owners.is_alive(grant.hold)
    with pytest.raises(LockNotOwned):
        lock.__exit__(None, None, None)
    monkeypatch.undo()
    thread.submit(grant.release).result()
    dead = threading.Thread(target=lambda: seen.append(lock.acquire()))
    seen: list[Any] = []
    dead.start()
    dead.join()
    assert not owners.is_alive(seen[0].hold)
    seen[0].release()


class InterruptedAfterRemoval(dict[Any, Any]):
    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        raise Interrupted


def test_grant_left_in_one_table_by_a_signal_is_dropped(lock: Lock) -> None:
    """[L16] A signal may come between the updates of the two tables; a second call completes them."""
    tables = Registry()
    grant = lock.acquire()
    tables.register(grant)
    tables._grants = InterruptedAfterRemoval(tables._grants)
    with pytest.raises(Interrupted):
        tables.forget(grant)
    tables._grants = dict(tables._grants)
    tables.forget(grant)
    assert grant.hold.lock_id not in tables.known
    tables.register(grant)
    tables._by_lock.pop(grant.hold.lock_id)
    tables.forget(grant)
    assert len(tables) == 0
    grant.release()
