"""Loads by tasks: cancelled, on several loops, beside threads."""

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
    """How many wait for loads of this process; a task waits for its own as well."""
    return followers(**at(HERE))


async def until(condition: Any) -> None:
    await asyncio.to_thread(eventually, condition)


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_cancelled_leader_or_follower_leaves_the_load_to_those_that_wait(cache_pair: str, kind: str) -> None:
    """[S21] [V12] A client hung up: the others get what it began to load, and it is stored."""
    loader = Loader("value", gate=True)

    async def story() -> list[Any]:
        leader = asyncio.create_task(aload(loader.asynchronously if kind == "async" else loader))
        await until(lambda: loader.calls)
        others = [asyncio.create_task(aload(Loader("other"))) for _ in range(3)]
        in_its_thread = kind == "sync" and cache_pair == "files"  # where files are read, too
        await until(lambda: waiting() == (1 if in_its_thread else 4))
        for cancelled in (leader, others.pop()):
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        loader.gate.set()
        return await asyncio.gather(*others)

    assert asyncio.run(story()) == ["value"] * 2
    assert loader.calls == 1
    assert caches[HERE].get("k") == "value"


def test_loop_that_ends_frees_the_load(cache_pair: str) -> None:
    """[S11] [S21] Its tasks are cancelled: the next caller doesn't wait for the lease."""
    began = threading.Event()

    async def endless() -> None:
        began.set()
        await asyncio.sleep(3600)

    async def story() -> None:
        task = asyncio.create_task(aload(endless))
        await until(began.is_set)
        task.cancel()

    asyncio.run(story())
    assert load(lambda: "next", cache=THERE) == "next"
    assert not loads_in_flight(**at(HERE))


@pytest.mark.parametrize("crowd", [("thread", "task"), ("task", "thread"), ("task", "task")], ids="-".join)
def test_threads_and_tasks_of_several_loops_share_a_load(cache_pair: str, crowd: tuple[str, str]) -> None:
    """[S22] Each may lead."""
    loader = Loader("value", gate=True)
    ways = {"thread": lambda: load(loader), "task": lambda: asyncio.run(aload(loader.asynchronously))}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ways[crowd[0]])
        loader.wait()
        second = pool.submit(ways[crowd[1]])
        eventually(lambda: waiting() == 1 + (crowd[0] == "task"))
        loader.gate.set()
        assert first.result(PATIENCE) == second.result(PATIENCE) == "value"
    assert loader.calls == 1


def test_waiting_tasks_leave_loop_and_thread_to_others(cache_pair: str) -> None:
    """[S22] Neither the loop nor the thread of synchronous code is blocked."""
    loader = Loader("value", gate=True)

    async def story() -> list[Any]:
        leader = asyncio.create_task(asyncio.to_thread(load, loader, cache=THERE))
        await asyncio.to_thread(loader.wait)
        tasks = [asyncio.create_task(aload(Loader("other"))) for _ in range(5)]
        await until(lambda: waiting() == 5)
        assert await sync_to_async(lambda: "free", thread_sensitive=True)() == "free"
        loader.gate.set()
        return [await leader, *await asyncio.gather(*tasks)]

    assert asyncio.run(story()) == ["value"] * 6


async def leader_needs_the_thread_that_waits(loader: Any, leads: Any) -> list[Any]:
    """What a synchronous view and a task get, if the task's loader is to run in the view's thread, which waits for it."""
    entered: Future[None] = Future()
    go = threading.Event()

    def view() -> Any:
        entered.set_result(None)
        assert go.wait(PATIENCE)
        return load(lambda: "view's")

    waits = asyncio.create_task(sync_to_async(view, thread_sensitive=True)())
    await asyncio.wrap_future(entered)
    leader = asyncio.create_task(aload(loader))
    await until(leads)
    begin = monotonic()
    go.set()
    found = [await waits, await leader]
    assert monotonic() - begin < PATIENCE / 2
    return found


def test_thread_that_waits_for_a_task_that_needs_it_loads_in_its_place(redis_pair: str) -> None:
    """[S22] The leader's synchronous loader would have to run in the very thread that waits for it."""
    story = leader_needs_the_thread_that_waits(
        lambda: "leader's", lambda: any(each.claimed for each in loads_in_flight(**at(HERE)).values())
    )
    assert asyncio.run(story) == ["view's"] * 2
    assert caches[HERE].get("k") == "view's"


def test_thread_that_waits_for_a_task_whose_loader_needs_it_does_not_hang(cache_pair: str) -> None:
    """[S22] As Django's asynchronous ORM needs it, in the middle of an asynchronous loader."""
    began = threading.Event()

    async def loader() -> str:
        began.set()
        return await sync_to_async(lambda: "leader's", thread_sensitive=True)()

    def leads() -> bool:
        return began.is_set() or cache_pair == "files"  # these are read in that thread, which the view has

    assert set(asyncio.run(leader_needs_the_thread_that_waits(loader, leads))) <= {"view's", "leader's"}


def test_asynchronous_loader_is_refused_by_synchronous_code(cache_pair: str) -> None:
    """[S23] [V2] At once, before anything is stored. A task takes it, also from a function that returns it."""

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
    """[S7] The loop awaits it: it may use what belongs to that loop."""
    loops: list[Any] = []
    jobs: list[Any] = []

    async def story() -> None:
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

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


def test_synchronous_code_of_a_loop_has_djangos_thread(redis_pair: str) -> None:
    """[S22] With its database connections. A synchronous call in the loop's own would block it."""

    async def story() -> None:
        usual = await sync_to_async(threading.get_ident, thread_sensitive=True)()
        assert await aload(threading.get_ident) == usual
        with pytest.raises(SynchronousOnlyOperation, match="use the asynchronous method"):
            get_or_load("k", lambda: 1, cache=HERE)

    asyncio.run(story())
