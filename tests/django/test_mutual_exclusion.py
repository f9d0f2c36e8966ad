"""`@redis_lock` on everything it can decorate: two calls never overlap, and nothing stays locked afterwards.

The second call is made from inside the first one's body, in another thread, or while the first one's task waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory

from django_redis_locks import LockAlreadyHeld, LockNotAcquired, current_grant, redis_lock
from tests.django.decorated_shapes import ASYNC_CALLS, ASYNC_VIEWS, CALLS, SYNC_VIEWS, body, urlpatterns
from tests.django.helpers import AT_ONCE, PATIENCE, held_elsewhere, in_thread

__all__ = ["urlpatterns"]

ON_REDIS = ("function", "dispatch", "get-direct", "stacked")
ON_REDIS_ASYNC = ("async-function", "async-dispatch", "async-get-direct", "async-stacked")


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    body.clear()
    yield
    body.clear()


def get(name: str) -> HttpResponse:
    return Client().get(f"/{name}/")


def is_done(response: Any) -> None:
    assert (response.status_code, response.content) == (200, b"done")


def is_conflict(response: Any) -> None:
    assert response.status_code == 409
    assert 1 <= int(response["Retry-After"]) <= 60
    assert response["Cache-Control"] == "no-store"


async def aget(name: str) -> Any:
    return await AsyncClient().get(f"/{name}/")


def check_overlap(name: str) -> None:
    """The second call, made during the first, is refused; the third one isn't."""
    refusals = []

    def call_again() -> None:
        body.act = lambda: None
        refusals.append(in_thread(lambda: get(name)))

    body.act = call_again
    is_done(get(name))
    is_conflict(refusals[0])
    is_done(get(name))
    assert body.runs == 2


def check_calls(name: str) -> None:
    refused: list[Any] = []

    def call_again() -> None:
        body.act = lambda: None
        with pytest.raises(LockNotAcquired) as raised:
            in_thread(CALLS[name])
        refused.append(raised.value)

    body.act = call_again
    assert CALLS[name]() == CALLS[name]() == "done"
    assert body.runs == 2
    (error,) = refused
    assert error.waited < AT_ONCE
    assert 0 < error.retry_after <= 30
    assert error.holder is not None
    assert error.key
    assert error.name
    assert error.alias == "default"


def check_overlap_in_a_loop(
    call: Callable[[], Any], done: Callable[[Any], None], refused: Callable[[Any], Any]
) -> None:
    """`refused` makes the second call, while the first one's task waits in its body."""

    async def scenario() -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            entered.set()
            await go.wait()

        body.aact = hold
        async with asyncio.timeout(PATIENCE):
            first = asyncio.create_task(call())
            await entered.wait()
            await refused(call)
            go.set()
            done(await first)
            done(await call())

    asyncio.run(scenario())
    assert body.runs == 2


def check_async_overlap(name: str) -> None:
    async def refused(call: Callable[[], Any]) -> None:
        is_conflict(await call())

    check_overlap_in_a_loop(partial(aget, name), is_done, refused)


def check_async_calls(name: str) -> None:
    async def refused(call: Callable[[], Any]) -> None:
        with pytest.raises(LockNotAcquired):
            await call()

    def done(result: str) -> None:
        assert result == "done"

    check_overlap_in_a_loop(ASYNC_CALLS[name], done, refused)


def test_second_call_is_refused_on_redis(redis_locks: str) -> None:
    """Of views and functions, in threads and tasks. The loop's end closes its connections."""
    functions = ("function", "method", "stacked", "reentrant")
    for check, names in (
        (check_overlap, ON_REDIS),
        (check_async_overlap, ON_REDIS_ASYNC),
        (check_calls, functions),
        (check_async_calls, functions),
    ):
        for name in names:
            check(name)
            body.clear()


class TestViews:
    @pytest.mark.parametrize("name", SYNC_VIEWS)
    def test_second_request_is_refused_while_the_first_runs(self, name: str) -> None:
        """[D51] With 409, for every shape of a view; a request after it isn't."""
        check_overlap(name)

    def test_views_run_under_wsgi_and_asgi(self) -> None:
        """Twice, each in a thread or a loop of its own, where its lock lives."""
        for name in (*SYNC_VIEWS, *ASYNC_VIEWS):
            for _ in range(2):
                is_done(get(name))
                is_done(asyncio.run(AsyncClient().get(f"/{name}/")))

    def test_one_of_many_requests_in_threads_runs(self) -> None:
        """It ends only when all others were refused."""
        others = 7
        refused = threading.Semaphore(0)
        barrier = threading.Barrier(others + 1, timeout=PATIENCE)
        responses = []

        def wait_for_all() -> None:
            for _ in range(others):
                assert refused.acquire(timeout=PATIENCE)

        def work() -> None:
            barrier.wait()
            response = get("function")
            responses.append(response.status_code)
            if response.status_code == 409:
                refused.release()

        body.act = wait_for_all
        threads = [threading.Thread(target=work, daemon=True) for _ in range(others + 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(responses) == [200] + [409] * others

    def test_busy_inner_lock_frees_the_outer_one(self) -> None:
        """[D8] If the inner one of two stacked locks is busy, the answer is 409 and the outer one is free again."""
        with held_elsewhere("view"):
            is_conflict(get("stacked-inner-busy"))
        is_done(get("stacked-inner-busy"))

    @pytest.mark.parametrize("path", ["waiting", "async-waiting"])
    def test_second_request_with_wait_begins_when_the_first_ends(self, path: str, store: str) -> None:
        inside = []
        begun = threading.Event()
        responses = []

        def enter() -> None:
            inside.append(len(inside))
            assert len(inside) == 1
            if not begun.is_set():
                begun.set()
                second.start()
            inside.pop()

        async def aenter() -> None:
            enter()

        second = threading.Thread(target=lambda: responses.append(get(path)), daemon=True)
        body.act, body.aact = enter, aenter
        is_done(get(path))
        second.join(PATIENCE)
        is_done(responses[0])
        assert body.runs == 2


class TestAsyncViews:
    @pytest.mark.parametrize("name", ASYNC_VIEWS)
    def test_second_request_is_refused_while_the_first_task_waits(self, name: str) -> None:
        """[D43] The lock lasts as long as the body."""
        check_async_overlap(name)

    def test_one_of_many_requests_in_tasks_runs(self) -> None:
        """It ends only when all others were refused."""
        others = 7
        refused = asyncio.Semaphore(0)

        async def wait_for_all() -> None:
            for _ in range(others):
                await refused.acquire()

        async def work() -> int:
            response = await AsyncClient().get("/async-function/")
            if response.status_code == 409:
                refused.release()
            return int(response.status_code)

        async def scenario() -> list[int]:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.gather(*(work() for _ in range(others + 1)))

        body.aact = wait_for_all
        assert sorted(asyncio.run(scenario())) == [200] + [409] * others

    def test_disconnected_client_frees_the_lock(self) -> None:
        """[D27] A request whose client goes away is cancelled, and its lock is free."""

        async def scenario() -> None:
            entered = asyncio.Event()

            async def hold() -> None:
                entered.set()
                await asyncio.Event().wait()

            body.aact = hold
            async with asyncio.timeout(PATIENCE):
                request = asyncio.create_task(ASYNC_VIEWS["async-function"](RequestFactory().get("/")))
                await entered.wait()
                request.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await request
                body.clear()
                is_done(await AsyncClient().get("/async-function/"))

        asyncio.run(scenario())


class TestFunctions:
    @pytest.mark.parametrize("name", CALLS)
    def test_second_call_is_refused_while_the_first_runs(self, name: str) -> None:
        """[D51] A call after it isn't."""
        check_calls(name)

    def test_call_that_raises_frees_the_lock(self) -> None:
        """Functions and views."""

        def fail() -> None:
            raise LookupError

        for call in (*CALLS.values(), *(partial(get, name) for name in SYNC_VIEWS)):
            body.act = fail
            with pytest.raises(LookupError):
                call()
            body.clear()
            result = in_thread(call)
            assert getattr(result, "text", result) == "done", call

    def test_recursive_call_raises_LockAlreadyHeld(self) -> None:
        """[F5] At once, also if it has a wait."""
        for wait in (None, 5, -1):
            decorated = redis_lock("order", wait=wait)(lambda: decorated())  # noqa: B023, PLW0108 - the same call
            with pytest.raises(LockAlreadyHeld):
                decorated()

    def test_recursive_reentrant_call_enters_again(self) -> None:
        """With `reentrant=True` it may enter again; the last exit frees it."""
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

    def test_calls_with_other_keys_run_beside_each_other(self) -> None:
        @redis_lock("order:{pk}")
        def work(pk: int) -> int:
            return pk if pk == 0 else in_thread(lambda: work(pk - 1)) + 1

        assert work(3) == 3

    def test_current_grant_is_that_of_the_innermost_call(self) -> None:
        @redis_lock("outer")
        def outer() -> tuple[str, str, str]:
            before = current_grant()
            within = inner()
            after = current_grant()
            assert before is after
            return before.key, within, after.key

        @redis_lock("inner")
        def inner() -> str:
            grant = current_grant()
            assert grant.fence is not None
            return grant.key

        assert outer() == ("outer", "inner", "outer")
        assert current_grant() is None

    def test_body_may_release_early(self) -> None:
        @redis_lock("order")
        def work() -> str:
            grant = current_grant()
            grant.release()
            return in_thread(redis_lock("order")(lambda: "other"))

        assert work() == "other"


class TestAsyncFunctions:
    @pytest.mark.parametrize("name", ASYNC_CALLS)
    def test_second_call_is_refused_while_the_first_task_waits(self, name: str) -> None:
        check_async_calls(name)

    def test_call_that_raises_frees_the_lock(self) -> None:
        """Functions and views."""

        async def fail() -> None:
            raise LookupError

        async def scenario(call: Callable[[], Any]) -> None:
            body.aact = fail
            with pytest.raises(LookupError):
                await call()
            body.clear()
            result = await call()
            assert getattr(result, "text", result) == "done", call

        for call in (*ASYNC_CALLS.values(), *(partial(aget, name) for name in ASYNC_VIEWS)):
            asyncio.run(scenario(call))

    def test_task_started_by_the_body_raises_LockAlreadyHeld(self) -> None:
        """[D42] It inherits the context of the body; it is refused instead of let in or left waiting."""

        @redis_lock("order", wait=-1)
        async def work(depth: int) -> None:
            if depth:
                await asyncio.create_task(work(depth - 1))

        with pytest.raises(LockAlreadyHeld):
            asyncio.run(work(1))

    def test_asynchronous_call_excludes_a_synchronous_one(self) -> None:
        @redis_lock("order")
        async def work() -> None:
            with pytest.raises(LockNotAcquired):
                await asyncio.to_thread(in_thread, redis_lock("order")(lambda: None))

        asyncio.run(work())

    def test_body_of_a_refused_call_does_not_begin(self) -> None:
        async def scenario() -> None:
            with pytest.raises(LockNotAcquired):
                await ASYNC_CALLS["function"]()

        with held_elsewhere("async function"):
            asyncio.run(scenario())
        assert body.runs == 0
