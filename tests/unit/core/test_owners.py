"""Who owns a grant: a thread or task *and* a context. Whoever has only one of the two is a stranger."""

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
from django_redis_locks.core import owners
from django_redis_locks.core.hold import State
from django_redis_locks.core.owners import Registry, me, registry
from django_redis_locks.core.tuning import INDEX_RETENTION

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
    """The caller is a stranger that would wait for itself."""
    assert not lock.owned()
    assert lock.acquire(blocking=False) is None
    with pytest.raises(LockAlreadyHeld, match=why):
        lock.acquire(timeout=-1)
    with pytest.raises(LockNotOwned):
        lock.release()


# Strangers and owners


def test_current_owner_is_the_thread_or_the_task() -> None:
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


def test_two_requests_in_one_thread_are_different_owners(rlock: Lock, thread: ThreadPoolExecutor) -> None:
    """[F3] [H5a] Without this the second request would re-enter the first one's lock: both run in the executor's thread."""
    first, second = contextvars.Context(), contextvars.Context()
    grant = thread.submit(first.run, rlock.acquire).result()
    thread.submit(second.run, refused, rlock, "share an executor's thread").result()
    assert thread.submit(first.run, rlock.owned).result()
    thread.submit(first.run, rlock.release).result()
    assert grant.given_back


def test_sync_hops_of_one_request_are_one_owner(rlock: Lock) -> None:
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


# The registry


def test_released_grant_is_not_registered(lock: Lock) -> None:
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


def test_grant_is_kept_while_its_owner_lives(lock: Lock, thread: ThreadPoolExecutor) -> None:
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


def test_registry_over_its_limit_keeps_live_grants(crowded: Registry) -> None:
    """However many there are: a live grant isn't forgotten. [H6] Nor one that is renewed for a dead owner, since the check
    may have been misinformed: the janitor lets go of those."""
    oldest = next(iter(crowded._grants.values()))
    oldest.hold.owner = weakref.ref(threading.Thread())
    for _ in range(2 * Registry.FEW):
        one_more(crowded)
    assert len(crowded) == 3 * Registry.FEW
    assert oldest.id in crowded._grants
    assert crowded.knows(oldest.hold.place)


@pytest.mark.parametrize("end", ["gone", "dead", "old"])
def test_registry_over_its_limit_drops_dead_grants(crowded: Registry, end: str) -> None:
    """Released elsewhere, lost after its owner died, or lost an hour ago: the registry doesn't grow for ever."""
    oldest = next(iter(crowded._grants.values()))
    if end == "gone":
        oldest.hold.state = State.GONE
    elif end == "dead":
        oldest.hold.owner = weakref.ref(threading.Thread())
    if end != "gone":
        oldest.hold.deadline -= 30 + INDEX_RETENTION * (end == "old")
    one_more(crowded)
    assert len(crowded) == Registry.FEW
    assert oldest.id not in crowded._grants
    assert not crowded.knows(oldest.hold.place)


class Strike(BaseException):
    """What a signal handler raises."""


def struck(*_: object) -> None:
    raise Strike


def test_signal_during_a_liveness_check_makes_no_thread_dead(
    lock: Lock, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[H6] Up to CPython 3.12 a handler that raises inside of Thread.is_alive() does: so none of our callers who may hear
    signals asks there."""
    grant = thread.submit(lock.acquire).result()
    monkeypatch.setattr(threading.Thread, "is_alive", struck)
    assert owners.alive(grant.hold)
    with pytest.raises(LockNotOwned):
        lock.__exit__(None, None, None)
    monkeypatch.undo()
    thread.submit(grant.release).result()
    dead = threading.Thread(target=lambda: seen.append(lock.acquire()))
    seen: list[Any] = []
    dead.start()
    dead.join()
    assert not owners.alive(seen[0].hold)
    seen[0].release()


class StruckAfterPop(dict[int, Any]):
    def pop(self, *which: Any) -> Any:
        super().pop(*which)
        struck()


def test_signal_during_housekeeping_loses_no_grant(crowded: Registry) -> None:
    """[L16] It strikes in the middle of putting the oldest grant behind the others."""
    oldest = next(iter(crowded._grants.values()))
    crowded._grants = StruckAfterPop(crowded._grants)
    with pytest.raises(Strike):
        one_more(crowded)
    crowded._grants = dict(crowded._grants)
    assert oldest.id in crowded._grants
    assert crowded.newest(oldest.hold.place) is None, "another context's"
    crowded.forget(oldest)
    assert not crowded.knows(oldest.hold.place)


def test_grant_left_in_one_table_by_a_signal_is_dropped(crowded: Registry) -> None:
    """[L16] A strike may come between the two tables, when it is forgotten or kept; once more is enough."""
    grant = next(iter(crowded._grants.values()))
    crowded._grants = StruckAfterPop(crowded._grants)
    with pytest.raises(Strike):
        crowded.forget(grant)
    crowded._grants = dict(crowded._grants)
    crowded.forget(grant)
    assert not crowded.knows(grant.hold.place)
    other = next(iter(crowded._grants.values()))
    crowded._by_place.pop(other.hold.place)
    crowded.forget(other)
    assert other.id not in crowded._grants
