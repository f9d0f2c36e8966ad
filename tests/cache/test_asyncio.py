"""Loads by asyncio tasks: cancellation, several loops, and threads beside them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks.cache import aget_or_load, arefresh, get_or_load, get_or_load_many, refresh
from tests.cache.backends import HERE, THERE, at
from tests.cache.callers import Loader
from tests.contract.matrix import PATIENCE, eventually
from tests.probes.cache import followers, loads_in_flight


def load(loader: Any, key: str = "k", cache: str = HERE) -> Any:
    return get_or_load(key, loader, **at(cache), ttl=60, wait=PATIENCE)


def aload(loader: Any, key: str = "k", **options: Any) -> Any:
    return aget_or_load(key, loader, **at(HERE), **{"ttl": 60, "wait": PATIENCE, **options})


def waiting() -> int:
    """The number of callers that wait for loads of this process; a task counts for its own load, too."""
    return followers(**at(HERE))


async def until(condition: Any) -> None:
    await asyncio.to_thread(eventually, condition)


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_load_continues_for_the_waiters_when_its_leader_or_a_follower_is_cancelled(cache_pair: str, kind: str) -> None:
    """[S21] [V12] As when a client disconnects: the waiters get the value, and it is stored."""
    loader = Loader("value", gate=True)

    async def scenario() -> list[Any]:
        leader = asyncio.create_task(aload(loader.asynchronously if kind == "async" else loader))
        await until(lambda: loader.calls)
        others = [asyncio.create_task(aload(Loader("other"))) for _ in range(3)]
        in_its_thread = kind == "sync" and cache_pair == "files"  # in which files are read, too
        await until(lambda: waiting() == (1 if in_its_thread else 4))
        for cancelled in (leader, others.pop()):
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        loader.gate.set()
        return await asyncio.gather(*others)

    assert asyncio.run(scenario()) == ["value"] * 2
    assert loader.calls == 1
    assert caches[HERE].get("k") == "value"


def test_load_ends_with_its_loop(cache_pair: str) -> None:
    """[S11] [S21] Its tasks are cancelled, and the next caller doesn't wait for the end of the lease."""
    began = threading.Event()

    async def endless() -> None:
        began.set()
        await asyncio.sleep(3600)

    async def scenario() -> None:
        task = asyncio.create_task(aload(endless))
        await until(began.is_set)
        task.cancel()

    asyncio.run(scenario())
    assert load(lambda: "next", cache=THERE) == "next"
    assert not loads_in_flight(**at(HERE))


@pytest.mark.parametrize("kinds", [("thread", "task"), ("task", "thread"), ("task", "task")], ids="-".join)
def test_threads_and_tasks_of_several_loops_share_a_load(cache_pair: str, kinds: tuple[str, str]) -> None:
    """[S22] Each of them may run it."""
    loader = Loader("value", gate=True)
    ways = {"thread": lambda: load(loader), "task": lambda: asyncio.run(aload(loader.asynchronously))}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ways[kinds[0]])
        loader.wait()
        second = pool.submit(ways[kinds[1]])
        eventually(lambda: waiting() == 1 + (kinds[0] == "task"))
        loader.gate.set()
        assert first.result(PATIENCE) == second.result(PATIENCE) == "value"
    assert loader.calls == 1


def test_waiting_tasks_block_neither_the_loop_nor_the_sync_thread(cache_pair: str) -> None:
    """[S22] The sync thread is that of `sync_to_async`."""
    loader = Loader("value", gate=True)

    async def scenario() -> list[Any]:
        leader = asyncio.create_task(asyncio.to_thread(load, loader, cache=THERE))
        await asyncio.to_thread(loader.wait)
        tasks = [asyncio.create_task(aload(Loader("other"))) for _ in range(5)]
        await until(lambda: waiting() == 5)
        assert await sync_to_async(lambda: "free", thread_sensitive=True)() == "free"
        loader.gate.set()
        return [await leader, *await asyncio.gather(*tasks)]

    assert asyncio.run(scenario()) == ["value"] * 6


async def leader_needs_the_thread_that_waits(loader: Any, leads: Any) -> list[Any]:
    """The results of a synchronous view and a task, if the task's loader needs the thread in which the view waits for
    it."""
    entered: Future[None] = Future()
    gate = threading.Event()

    def view() -> Any:
        entered.set_result(None)
        assert gate.wait(PATIENCE)
        return load(lambda: "view's")

    waits = asyncio.create_task(sync_to_async(view, thread_sensitive=True)())
    await asyncio.wrap_future(entered)
    leader = asyncio.create_task(aload(loader))
    await until(leads)
    begin = monotonic()
    gate.set()
    found = [await waits, await leader]
    assert monotonic() - begin < PATIENCE / 2
    return found


def test_thread_loads_itself_instead_of_waiting_for_a_task_that_needs_this_thread(redis_pair: str) -> None:
    """[S22] The synchronous loader of the task would run in the thread that waits for it."""
    scenario = leader_needs_the_thread_that_waits(
        lambda: "leader's", lambda: any(each.claimed for each in loads_in_flight(**at(HERE)).values())
    )
    assert asyncio.run(scenario) == ["view's"] * 2
    assert caches[HERE].get("k") == "view's"


def test_thread_waits_for_the_load_of_a_task_that_runs_in_another_thread(cache_pair: str) -> None:
    """With `load_timeout` it does, and as a rule needs no other thread."""
    loader = Loader("value", gate=True)

    async def main() -> list[Any]:
        leads = asyncio.create_task(aload(loader, load_timeout=PATIENCE))
        await asyncio.to_thread(loader.wait)
        follows = asyncio.create_task(sync_to_async(load)(Loader("loaded twice")))
        await until(lambda: waiting() == 2 or follows.done())
        loader.gate.set()
        return [await leads, await follows]

    assert asyncio.run(main()) == ["value"] * 2


def test_thread_does_not_hang_when_an_async_loader_needs_it(cache_pair: str) -> None:
    """[S22] As Django's asynchronous ORM does, in the middle of a loader."""
    began = threading.Event()

    async def loader() -> str:
        began.set()
        return await sync_to_async(lambda: "leader's", thread_sensitive=True)()

    def leads() -> bool:
        return began.is_set() or cache_pair == "files"  # files are read in the thread of the view

    assert set(asyncio.run(leader_needs_the_thread_that_waits(loader, leads))) <= {"view's", "leader's"}


def test_async_loader_raises_in_synchronous_code(cache_pair: str) -> None:
    """[S23] [V2] Before anything is stored. In a task it works, also if a plain function returns an awaitable."""

    async def loader() -> int:
        return 1

    def hides() -> Any:
        return loader()

    for function in (get_or_load, refresh):
        with pytest.raises(TypeError, match="aget_or_load"):
            function("k", loader, **at(HERE))
    with pytest.raises(TypeError, match="aget_or_load"):
        get_or_load_many(["k"], loader, **at(HERE))
    with pytest.raises(TypeError, match="awaitable"):
        get_or_load("k", hides, **at(HERE), error_ttl=0)
    assert caches[HERE].get("k") is None
    assert get_or_load("k", lambda: "value", **at(HERE)) == "value"
    assert asyncio.run(aload(hides, "other")) == asyncio.run(arefresh("k", hides, **at(HERE))) == 1
    for wrong in (None, "value"):
        with pytest.raises(TypeError, match="the loader is a callable"):
            get_or_load("k", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the loader is a callable"):
            asyncio.run(aget_or_load("k", wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("refresh", ["thread", "a callable"])
def test_function_that_returns_an_awaitable_refreshes_a_stale_value(cache_pair: str, refresh: str) -> None:
    """[S23] It is awaited in the caller's loop: it may use objects of that loop."""
    loops: list[Any] = []
    jobs: list[Any] = []

    async def scenario() -> None:
        async def fetch() -> str:
            loops.append(asyncio.get_running_loop())
            return "new"

        def hides() -> Any:
            return fetch()

        how = jobs.append if refresh == "a callable" else refresh
        options = {"stale": 600, "jitter": 0, "refresh": how}
        await aload(lambda: "old", ttl=0.01, **options)
        while await aload(hides, **options) != "new":
            if jobs:
                await asyncio.to_thread(jobs.pop().run)
        assert refresh == "a callable" or loops == [asyncio.get_running_loop()]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_sync_loader_of_a_task_runs_in_djangos_sync_thread(redis_pair: str) -> None:
    """[S22] With its database connections. A synchronous call in the thread of the loop would block it."""

    async def scenario() -> None:
        usual = await sync_to_async(threading.get_ident, thread_sensitive=True)()
        assert await aload(threading.get_ident) == usual
        with pytest.raises(SynchronousOnlyOperation, match="use the asynchronous method"):
            get_or_load("k", lambda: 1, cache=HERE)

    asyncio.run(scenario())
