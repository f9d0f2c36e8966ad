"""Who owns a grant: a thread or task *and* a context. Whoever has only one of the two is a stranger."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async

from django_redis_locks import Lock, LockAlreadyHeld, LockNotOwned, current_grant, locks
from django_redis_locks.core import owners
from django_redis_locks.core.constants import REMEMBER
from django_redis_locks.core.grant import State
from django_redis_locks.core.owners import Registry, me, mint_token, registry

_numbers = count()


@pytest.fixture
def lock() -> Lock:
    return locks.lock(f"unit:{next(_numbers)}", expire=30, wait=0)


@pytest.fixture
def rlock(lock: Lock) -> Lock:
    return locks.rlock(lock.key, expire=30, wait=0)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """One thread that serves all: an executor's."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def refused(lock: Lock, why: str) -> None:
    """The caller is a stranger who would wait for himself."""
    assert not lock.owned()
    assert lock.acquire(blocking=False) is None
    with pytest.raises(LockAlreadyHeld, match=why):
        lock.acquire(timeout=-1)
    with pytest.raises(LockNotOwned):
        lock.release()


async def arefused(lock: Lock, why: str) -> None:
    assert not lock.owned()
    assert await lock.aacquire(blocking=False) is None
    with pytest.raises(LockAlreadyHeld, match=why):
        await lock.aacquire(timeout=-1)
    with pytest.raises(LockNotOwned):
        await lock.arelease()


# Strangers and owners


def test_i_am_my_thread_or_my_task() -> None:
    """[H5] The running task; the thread outside of one, also in a callback of a loop."""
    seen: list[Any] = []

    async def main() -> None:
        seen.append(me() is asyncio.current_task())
        asyncio.get_running_loop().call_soon(lambda: seen.append(me() is threading.current_thread()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert me() is threading.main_thread()
    asyncio.run(main())
    assert seen == [True, True]


def test_two_requests_in_one_thread_are_strangers(rlock: Lock, thread: ThreadPoolExecutor) -> None:
    """[F3] [H5a] Without this the second request would re-enter the first one's lock: both run in the executor's thread."""
    first, second = contextvars.Context(), contextvars.Context()
    grant = thread.submit(first.run, rlock.acquire).result()
    thread.submit(second.run, refused, rlock, "share an executor's thread").result()
    assert thread.submit(first.run, rlock.owned).result()
    thread.submit(first.run, rlock.release).result()
    assert grant.given_back


def test_a_child_task_is_a_stranger(rlock: Lock) -> None:
    """[H5b] It inherits the context, and runs beside its parent."""

    async def main() -> None:
        async with rlock as grant:
            await asyncio.create_task(arefused(rlock, "started this one"))
            assert current_grant() is grant
            async with rlock as inner:
                assert inner.hold is grant.hold

    asyncio.run(main())


def test_a_thread_of_to_thread_is_a_stranger(rlock: Lock) -> None:
    """[H5b] It inherits the context too, of a task or of a thread."""

    async def main() -> None:
        async with rlock:
            await asyncio.to_thread(refused, rlock, "started this one")

    asyncio.run(main())
    with rlock:
        context = contextvars.copy_context()
        worker = ThreadPoolExecutor(1)
        worker.submit(context.run, refused, rlock, "started this one").result()
        worker.shutdown()


def test_a_plain_thread_just_waits(rlock: Lock, thread: ThreadPoolExecutor) -> None:
    """[H5] With neither context nor identity it is anybody: busy, and no reproach."""
    with rlock:
        assert thread.submit(rlock.acquire, timeout=0).result() is None


def test_hops_of_one_request_are_one_owner(rlock: Lock) -> None:
    """[H5] sync_to_async brings the context there and back: acquire in one hop, re-enter and release in others."""

    async def request() -> None:
        async with ThreadSensitiveContext():
            outer = await sync_to_async(rlock.acquire)()
            inner = await sync_to_async(rlock.acquire)()
            assert inner.hold is outer.hold
            assert await sync_to_async(rlock.owned)()
            await sync_to_async(rlock.release)()
            await sync_to_async(rlock.release)()
            assert outer.given_back

    asyncio.run(request())


def test_hops_of_two_requests_are_strangers(rlock: Lock) -> None:
    """[F3] [H5a] Outside Django's per-request context all their synchronous code shares one thread."""

    async def first(held: asyncio.Event, done: asyncio.Event) -> None:
        await sync_to_async(rlock.acquire)()
        held.set()
        await done.wait()
        await sync_to_async(rlock.release)()

    async def second(held: asyncio.Event, done: asyncio.Event) -> None:
        await held.wait()
        await sync_to_async(refused)(rlock, "share an executor's thread")
        done.set()

    async def main() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(first(*events), second(*events))

    asyncio.run(main())
    assert rlock.acquire(timeout=0)
    rlock.release()


def test_a_with_belongs_to_its_context(lock: Lock, thread: ThreadPoolExecutor) -> None:
    """[H5] Its end in another context gives back nothing that was begun here."""
    with lock as grant:
        with pytest.raises(LockNotOwned):
            thread.submit(lock.__exit__, None, None, None).result()
        assert not grant.given_back


# The registry


def test_a_released_grant_is_forgotten(lock: Lock) -> None:
    """Nothing of a lock is left in the process after its release."""
    before = len(registry)
    with lock as grant:
        assert len(registry) == before + 1
        assert registry.knows(lock.place)
    assert len(registry) == before
    assert not registry.knows(lock.place)
    gone = weakref.ref(grant.hold)
    del grant
    gc.collect()
    assert gone() is None


def test_a_grant_is_kept_while_its_owner_lives(lock: Lock, thread: ThreadPoolExecutor) -> None:
    """[H6] A caller who keeps no grant still holds the lock, and releases it by name."""
    thread.submit(lock.acquire).result()
    gc.collect()
    assert thread.submit(lock.owned).result()
    thread.submit(lock.release).result()
    assert not lock.locked()


def test_current_grant_is_the_innermost_that_is_held(lock: Lock) -> None:
    """Released from elsewhere it isn't current any more."""
    other = locks.lock(f"{lock.key}/other")
    assert current_grant() is None
    with lock as outer:
        with other as inner:
            assert current_grant() is inner
            inner.release()
            assert current_grant() is outer
        assert current_grant() is outer
    assert current_grant() is None


@pytest.fixture
def crowded() -> Registry:
    """A registry at the limit from which it looks for forgotten grants."""
    crowded = Registry()
    context = contextvars.copy_context()
    for number in range(Registry.FEW):
        grant = locks.lock(f"crowd:{number}:{next(_numbers)}", expire=30).acquire()
        registry.forget(grant)
        context.run(crowded.keep, grant)
    return crowded


def one_more(crowded: Registry) -> Any:
    grant = locks.lock(f"crowd:{next(_numbers)}", expire=30).acquire()
    registry.forget(grant)
    contextvars.copy_context().run(crowded.keep, grant)
    return grant


def test_live_grants_get_another_chance(crowded: Registry) -> None:
    """However many there are: a live grant isn't forgotten."""
    for _ in range(2 * Registry.FEW):
        one_more(crowded)
    assert len(crowded) == 3 * Registry.FEW


@pytest.mark.parametrize("end", ["gone", "dead", "old"])
def test_a_grant_that_nobody_can_need_is_forgotten(crowded: Registry, end: str) -> None:
    """Released elsewhere, its owner dead, or lost an hour ago: the registry doesn't grow for ever."""
    oldest = next(iter(crowded._grants.values()))
    if end == "gone":
        oldest.hold.state = State.GONE
    elif end == "dead":
        oldest.hold.owner = weakref.ref(threading.Thread())
    else:
        oldest.hold.deadline -= 30 + REMEMBER
    one_more(crowded)
    assert len(crowded) == Registry.FEW
    assert oldest.id not in crowded._grants
    assert not crowded.knows(oldest.hold.place)


# Tokens


def test_tokens_differ() -> None:
    """In one process by their count, in two by their prefix."""
    assert len({mint_token() for _ in range(1000)}) == 1000
    assert owners._Tokens().mint() != owners._Tokens().mint()


# Forks


def in_child(function: Callable[[], Any]) -> Any:
    """What it returns in a forked child; its exception as text."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns that there are threads
        child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - it is told
                result = repr(error)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(result, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pickle.load(pipe)
    os.waitpid(child, 0)
    return result


def test_a_forked_child_holds_nothing_of_its_parent(lock: Lock) -> None:
    """[H18] [F16] [L47] Lost, not owned, released without a word to the store; and one warning."""

    def look() -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with grant:
                seen = [grant.lost, grant.remaining(), lock.owned(), repr(grant)[-5:-1]]
            grant.release()
            lock.__exit__(None, None, None)
        return seen, [(warning.category, "forked" in str(warning.message)) for warning in caught]

    with lock as grant:
        seen, caught = in_child(look)
        grant.ensure_held(confirm=True)
        assert lock.owned()
    assert seen == [True, 0.0, False, "lost"]
    assert caught == [(RuntimeWarning, True)]


def test_a_forked_child_has_secrets_of_its_own() -> None:
    """[H18] No token of the child is one of the parent, whoever mints first."""
    theirs = in_child(lambda: [mint_token() for _ in range(3)])
    ours = [mint_token() for _ in range(3)]
    assert not {token[:12] for token in theirs} & {token[:12] for token in ours}


def test_a_fork_unseen_by_python_changes_the_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """[H18] A C extension forks without the hooks of Python: the process id tells."""
    tokens = owners._Tokens()
    before = tokens.mint()
    monkeypatch.setattr(tokens, "_pid", -1)
    assert tokens.mint()[:12] != before[:12]


def test_a_forked_child_uses_locks_of_its_own(lock: Lock) -> None:
    """[H18] Although another thread held the registry's mutex when the process forked."""

    def use() -> Any:
        other = locks.lock(f"{lock.key}/child", expire=30)
        with other as grant:
            return grant.lost, other.owned(), other.locked()

    with registry._mutex:
        assert in_child(use) == (False, True, True)
