"""`@redis_lock` on everything it can decorate: two calls never overlap, and nothing stays locked afterwards.

The second call is made from inside the first one's body, in another thread, or while the first one's task waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpResponse
from django.test import AsyncClient, Client

from django_redis_locks import LockAlreadyHeld, LockNotAcquired, current_grant, locks, redis_lock
from tests.django.decorated_shapes import ASYNC_CALLS, ASYNC_VIEWS, CALLS, SYNC_VIEWS, body, urlpatterns
from tests.django.helpers import AT_ONCE, PATIENCE, held_elsewhere, in_thread

__all__ = ["urlpatterns"]


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    body.clear()
    yield
    body.clear()


def get(name: str) -> HttpResponse:
    return Client().get(f"/{name}/")


async def aget(name: str) -> Any:
    return await AsyncClient().get(f"/{name}/")


SYNC: dict[str, Callable[[], Any]] = {**CALLS, **{f"/{name}/": partial(get, name) for name in SYNC_VIEWS}}
ASYNC: dict[str, Callable[[], Awaitable[Any]]] = {
    **ASYNC_CALLS,
    **{f"/{name}/": partial(aget, name) for name in ASYNC_VIEWS},
}
ON_REDIS = ("function", "method", "stacked", "reentrant", "/function/", "/dispatch/", "/get-direct/", "/stacked/")


def verdict_of(result: Any) -> str:
    """Return "done" or "refused" for the result of a call, or for a response."""
    if isinstance(result, LockNotAcquired):
        assert result.waited < AT_ONCE
        assert 0 < result.retry_after <= 30
        assert result.holder is not None
        assert result.key
        assert result.name
        assert result.alias == "default"
        assert str(result).startswith(f"lock '{result.name}' is busy, held by {result.holder.host}")
        return "refused"
    if getattr(result, "status_code", None) == 409:
        assert 1 <= int(result["Retry-After"]) <= 60
        assert result["Cache-Control"] == "no-store"
        return "refused"
    assert result == "done" or (result.status_code, result.content) == (200, b"done")
    return "done"


def outcome(call: Callable[[], Any]) -> str:
    try:
        return verdict_of(call())
    except LockNotAcquired as error:
        return verdict_of(error)


async def aoutcome(call: Callable[[], Awaitable[Any]]) -> str:
    try:
        return verdict_of(await call())
    except LockNotAcquired as error:
        return verdict_of(error)


def fail() -> None:
    raise LookupError


async def afail() -> None:
    raise LookupError


def check_overlap(call: Callable[[], Any]) -> None:
    """Assert that a call during another one is refused, and a later one isn't, even after a call that raised."""
    refused = []

    def call_again() -> None:
        body.act = lambda: None
        refused.append(in_thread(lambda: outcome(call)))

    body.clear()
    body.act = call_again
    assert [outcome(call), *refused, outcome(call)] == ["done", "refused", "done"]
    assert body.runs == 2
    body.act = fail
    with pytest.raises(LookupError):
        call()
    body.clear()
    assert in_thread(lambda: outcome(call)) == "done"


def check_overlap_in_a_loop(call: Callable[[], Awaitable[Any]]) -> None:
    """Assert the same for a call while the task of the first one waits."""

    async def scenario() -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            entered.set()
            await go.wait()

        body.clear()
        body.aact = hold
        async with asyncio.timeout(PATIENCE):
            first = asyncio.create_task(aoutcome(call))
            await entered.wait()
            assert await aoutcome(call) == "refused"
            go.set()
            assert [await first, await aoutcome(call)] == ["done", "done"]
            assert body.runs == 2
            body.aact = afail
            with pytest.raises(LookupError):
                await call()
            body.clear()
            assert await aoutcome(call) == "done"

    asyncio.run(scenario())


@pytest.mark.parametrize("name", SYNC)
def test_second_call_is_refused_while_the_first_runs(name: str) -> None:
    """[D51] A view responds with 409. A later call isn't refused, even if the first one raised."""
    check_overlap(SYNC[name])


@pytest.mark.parametrize("name", ASYNC)
def test_second_call_is_refused_while_the_first_task_waits(name: str) -> None:
    """[D43] The lock lasts until the end of the body."""
    check_overlap_in_a_loop(ASYNC[name])


def test_second_call_is_refused_with_locks_on_redis(redis_locks: str) -> None:
    """The end of a loop closes its connections."""
    for name in ON_REDIS:
        check_overlap(SYNC[name])
        check_overlap_in_a_loop(ASYNC[name.replace("/", "/async-", 1)])


class TestViews:
    def test_views_run_under_wsgi_and_asgi(self) -> None:
        """Twice, each time in a new thread or loop."""
        for name in (*SYNC_VIEWS, *ASYNC_VIEWS):
            for _ in range(2):
                assert verdict_of(get(name)) == verdict_of(asyncio.run(aget(name))) == "done", name

    def test_outer_lock_is_released_when_the_inner_one_is_busy(self) -> None:
        """[D8] With two locks on one view: the response is 409, and the outer lock is released."""
        with held_elsewhere("view"):
            assert verdict_of(get("stacked-inner-busy")) == "refused"
        assert verdict_of(get("stacked-inner-busy")) == "done"


class TestFunctions:
    def test_recursive_call_raises_LockAlreadyHeld(self) -> None:
        """[F5] At once, even with a wait; the message says what to write. [D42] So does a call in a task that the body
        starts, which inherits its context."""
        for wait in (None, 5, -1):
            decorated = redis_lock("order", wait=wait)(lambda: decorated())  # noqa: B023, PLW0108 - the same call
            with pytest.raises(LockAlreadyHeld, match="reentrant=True"):
                decorated()

        @redis_lock("order", wait=-1)
        async def work(depth: int) -> None:
            if depth:
                await asyncio.create_task(work(depth - 1))

        with pytest.raises(LockAlreadyHeld):
            asyncio.run(work(1))

    def test_synchronous_call_in_a_loop_raises_SynchronousOnlyOperation(self, redis_locks: str) -> None:
        """[F5] [F17] Nothing stays locked. In a task that holds the lock it raises LockAlreadyHeld without a
        request."""

        async def scenario() -> None:
            with pytest.raises(
                SynchronousOnlyOperation, match=r"async context - use the asynchronous method .*acquire: aacquire"
            ):
                CALLS["function"]()
            assert await asyncio.to_thread(CALLS["function"]) == "done"
            async with locks.lock("function"):
                with pytest.raises(LockAlreadyHeld):
                    CALLS["function"]()
            grant = await locks.lock("function").aacquire()
            with pytest.raises(SynchronousOnlyOperation):
                grant.release()
            await grant.arelease()

        asyncio.run(scenario())

    def test_recursive_reentrant_call_enters_again(self) -> None:
        """With `reentrant=True`. The last exit releases."""
        depths = []

        @redis_lock("order", reentrant=True)
        def work(depth: int) -> None:
            depths.append(depth)
            if depth:
                work(depth - 1)
            with pytest.raises(LockNotAcquired):
                in_thread(redis_lock("order")(lambda: None))

        work(2)
        assert depths == [2, 1, 0]
        in_thread(lambda: work(0))

    def test_current_grant_is_that_of_the_innermost_call(self) -> None:
        """It can be released early."""

        @redis_lock("outer")
        def outer() -> tuple[str, str, str]:
            before = current_grant()
            within = inner()
            after = current_grant()
            assert before is after
            before.release()
            assert in_thread(redis_lock("outer")(lambda: "other")) == "other"
            return before.key, within, after.key

        inner = redis_lock("inner")(lambda: current_grant().key)
        assert outer() == ("outer", "inner", "outer")
        assert current_grant() is None
