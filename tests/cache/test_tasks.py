"""Loads by tasks: cancelled, on several loops, beside threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.cache import caches
from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks.cache import aget_or_load, arefresh, get_or_load, get_or_load_many, refresh
from tests.cache.conftest import HERE, THERE, Loader, at, flights_at, road_at
from tests.contract.matrix import PATIENCE, eventually


def aask(loader: Any, key: str = "k", name: str = HERE, **options: Any) -> Any:
    return aget_or_load(key, loader, **at(name), **{"ttl": 60, "wait": PATIENCE, **options})


def gates(name: str = HERE) -> int:
    return sum(len(flight.gates) for flight in flights_at(name))


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_cancelled_leader_leaves_the_load_to_those_who_wait(road: str, kind: str) -> None:
    """[S21] [V12] A client hung up: the others get what he began to load, and it is stored."""
    loader = Loader("value", gate=True)

    async def story() -> list[Any]:
        load = loader.asynchronously if kind == "async" else loader
        leader = asyncio.create_task(aask(load))
        await until(lambda: loader.calls)
        others = [asyncio.create_task(aask(Loader("other"))) for _ in range(3)]
        await until(lambda: gates() == 4)
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
        loader.gate.set()
        return await asyncio.gather(*others)

    assert asyncio.run(story()) == ["value"] * 3
    assert loader.calls == 1
    assert caches[HERE].get("k") == "value"


def test_a_cancelled_follower_disturbs_nobody(road: str) -> None:
    """[S21] [V12]"""
    loader = Loader("value", gate=True)

    async def story() -> Any:
        leader = asyncio.create_task(aask(loader.asynchronously))
        await until(lambda: loader.calls)
        follower = asyncio.create_task(aask(Loader("other")))
        await until(lambda: gates() == 2)
        follower.cancel()
        with pytest.raises(asyncio.CancelledError):
            await follower
        assert gates() == 1
        loader.gate.set()
        return await leader

    assert asyncio.run(story()) == "value"


def test_a_loop_that_ends_frees_what_it_was_loading(road: str) -> None:
    """[S11] [S21] Its tasks are cancelled: the next one need not wait for the lease."""

    async def endless() -> None:
        await asyncio.sleep(3600)

    async def story() -> None:
        task = asyncio.create_task(aask(endless, expire=PATIENCE * 3))
        await until(lambda: road_at(HERE).flights._flying)
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(story())
    assert get_or_load("k", lambda: "next", **at(THERE), ttl=60, wait=PATIENCE) == "next"
    assert not road_at(HERE).flights._flying


def test_threads_and_tasks_share_a_load(road: str) -> None:
    """[S22] Either may lead."""
    for leads in ("thread", "task"):
        loader = Loader(leads, gate=True)
        key = f"k:{leads}"
        found: list[Any] = []

        def in_thread(key: str = key, loader: Loader = loader, found: list[Any] = found) -> None:
            found.append(get_or_load(key, loader, **at(HERE), ttl=60, wait=PATIENCE))

        def in_task(key: str = key, loader: Loader = loader, found: list[Any] = found) -> None:
            found.append(asyncio.run(aask(loader.asynchronously, key)))

        first, second = (in_thread, in_task) if leads == "thread" else (in_task, in_thread)
        threads = [threading.Thread(target=first)]
        threads[0].start()
        loader.wait()
        threads.append(threading.Thread(target=second))
        threads[1].start()
        eventually(lambda tasks=leads == "task": gates() == 1 + tasks)  # a task waits for its own, too
        loader.gate.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [leads, leads]
        assert loader.calls == 1


def test_waiting_leaves_the_loop_to_others(road: str) -> None:
    """[S22] Neither the loop nor the thread of synchronous code is blocked by those who wait."""
    loader = Loader("value", gate=True)

    async def story() -> list[Any]:
        leader = threading.Thread(target=get_or_load, args=("k", loader), kwargs={**at(THERE), "ttl": 60})
        leader.start()
        loader.wait()
        waiting = [asyncio.create_task(aask(Loader("other"))) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert await sync_to_async(lambda: "free", thread_sensitive=True)() == "free"
        loader.gate.set()
        found = await asyncio.gather(*waiting)
        await asyncio.to_thread(leader.join, PATIENCE)
        return found

    assert asyncio.run(story()) == ["value"] * 5


def test_a_synchronous_loader_runs_where_synchronous_code_does(on_redis: str) -> None:
    """[S22] In Django's thread, with its database connections."""

    async def story() -> tuple[Any, Any]:
        usual = await sync_to_async(threading.get_ident, thread_sensitive=True)()
        return usual, await aask(threading.get_ident)

    usual, found = asyncio.run(story())
    assert usual == found


def test_synchronous_code_called_from_a_task(on_redis: str) -> None:
    """[S22] A synchronous view under an asynchronous server, which loads while another request waits."""

    async def story() -> list[Any]:
        view = sync_to_async(lambda: get_or_load("k", lambda: "value", **at(HERE), ttl=60), thread_sensitive=True)
        return await asyncio.gather(*(view() for _ in range(5)), *(aask(lambda: "value") for _ in range(5)))

    assert asyncio.run(story()) == ["value"] * 10


def test_a_thread_that_waits_for_a_task_that_needs_it(on_redis: str) -> None:
    """[S22] The leader's synchronous loader is to run in the very thread that waits for it: that does the leader's work."""

    async def story() -> list[Any]:
        blocking, go = threading.Event(), threading.Event()

        def occupy() -> Any:
            blocking.set()
            assert go.wait(PATIENCE)
            return get_or_load("k", lambda: "mine", **at(HERE), ttl=60, wait=PATIENCE)

        view = asyncio.create_task(sync_to_async(occupy, thread_sensitive=True)())
        await asyncio.to_thread(blocking.wait, PATIENCE)
        leader = asyncio.create_task(aask(lambda: "leader's"))
        await until(lambda: road_at(HERE).flights._flying)
        await asyncio.sleep(0.05)
        begin = time.monotonic()
        go.set()
        found = [await view, await leader]
        assert time.monotonic() - begin < PATIENCE / 2
        return found

    assert asyncio.run(story()) == ["mine", "mine"]
    assert caches[HERE].get("k") == "mine"


def test_a_thread_that_waits_for_a_task_whose_loader_needs_it(road: str) -> None:
    """[S22] As Django's asynchronous ORM does, in the middle of an asynchronous loader."""

    async def load() -> str:
        return await sync_to_async(lambda: "leader's", thread_sensitive=True)()

    async def story() -> list[Any]:
        blocking, go = threading.Event(), threading.Event()

        def occupy() -> Any:
            blocking.set()
            assert go.wait(PATIENCE)
            return get_or_load("k", lambda: "mine", **at(HERE), ttl=60, wait=PATIENCE)

        view = asyncio.create_task(sync_to_async(occupy, thread_sensitive=True)())
        await asyncio.to_thread(blocking.wait, PATIENCE)
        leader = asyncio.create_task(aask(load))
        await asyncio.sleep(0.05)
        begin = time.monotonic()
        go.set()
        found = [await view, await leader]
        assert time.monotonic() - begin < PATIENCE / 2
        return found

    assert set(asyncio.run(story())) <= {"mine", "leader's"}


def test_an_asynchronous_loader_for_synchronous_code(road: str) -> None:
    """[S23] [V2] Said at once, before anything is stored."""

    async def load() -> int:
        return 1

    for function in (get_or_load, refresh):
        with pytest.raises(TypeError, match="aget_or_load"):
            function("k", load, **at(HERE))
    with pytest.raises(TypeError, match="aget_or_load"):
        get_or_load_many(["k"], load, **at(HERE))
    with pytest.raises(TypeError, match="awaitable"):
        get_or_load("k", lambda: load(), **at(HERE), error_ttl=0)  # noqa: PLW0108 - it hides what it is
    assert caches[HERE].get("k") is None
    assert get_or_load("k", lambda: "value", **at(HERE)) == "value"


def test_a_function_that_returns_an_awaitable(road: str) -> None:
    """[S23] For a task that is as good as an asynchronous one."""

    async def load() -> int:
        return 1

    assert asyncio.run(aask(lambda: load())) == 1  # noqa: PLW0108 - it hides what it is
    assert asyncio.run(arefresh("k", lambda: load(), **at(HERE))) == 1  # noqa: PLW0108


@pytest.mark.parametrize("loader", [None, "value", 5])
def test_a_loader_is_called(loader: Any) -> None:
    with pytest.raises(TypeError, match="the loader is a callable"):
        get_or_load("k", loader)
    with pytest.raises(TypeError, match="the loader is a callable"):
        asyncio.run(aget_or_load("k", loader))


def test_synchronous_code_in_a_loop(on_redis: str) -> None:
    """It would block the loop: Django's own error says what to do."""

    async def story() -> None:
        with pytest.raises(SynchronousOnlyOperation, match="a-twin"):
            get_or_load("k", lambda: 1, cache=HERE)

    asyncio.run(story())


def test_async_to_sync(road: str) -> None:
    assert async_to_sync(aget_or_load)("k", lambda: 1, **at(HERE), ttl=60) == 1
    assert get_or_load("k", lambda: 2, **at(HERE), ttl=60) == 1


def test_a_follower_on_another_loop(road: str) -> None:
    """Each loop is a home of its own."""
    loader = Loader("value", gate=True)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(asyncio.run(aask(loader.asynchronously)))) for _ in range(2)
    ]
    threads[0].start()
    loader.wait()
    threads[1].start()
    eventually(lambda: gates() == 2)
    loader.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == ["value", "value"]
