"""`@redis_lock` on everything it can decorate: two calls never overlap, and nothing stays locked afterwards.

The second call is made from inside the first one's body, in another thread, or while the first one's task waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory

from django_redis_locks import LockAlreadyHeld, LockNotAcquired, current_grant, redis_lock
from tests.django import stage as shapes
from tests.django.helpers import AT_ONCE, PATIENCE, held_elsewhere, in_thread
from tests.django.stage import ASYNC_CALLS, ASYNC_VIEWS, CALLS, SYNC_VIEWS, stage

urlpatterns = shapes.urlpatterns

ON_REDIS = ("function", "dispatch", "get-direct", "stacked")
ON_REDIS_ASYNC = ("async-function", "async-dispatch", "async-get-direct", "async-stacked")


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    stage.clear()
    yield
    stage.clear()


def get(name: str) -> HttpResponse:
    return Client().get(f"/{name}/")


def is_done(response: Any) -> None:
    assert (response.status_code, response.content) == (200, b"done")


def is_conflict(response: Any) -> None:
    assert response.status_code == 409
    assert 1 <= int(response["Retry-After"]) <= 60
    assert response["Cache-Control"] == "no-store"


def check_overlap(name: str) -> None:
    """The second call, made during the first, is refused; the third one isn't."""
    refusals = []

    def call_again() -> None:
        stage.act = lambda: None
        refusals.append(in_thread(lambda: get(name)))

    stage.act = call_again
    is_done(get(name))
    is_conflict(refusals[0])
    is_done(get(name))
    assert stage.runs == 2


class TestViews:
    @pytest.mark.parametrize("name", SYNC_VIEWS)
    def test_overlap(self, name: str) -> None:
        """A request during another one is answered with 409, one after it isn't: for every shape of a view. [D51]"""
        check_overlap(name)

    @pytest.mark.parametrize("name", ON_REDIS)
    def test_overlap_on_redis(self, name: str, redis_locks: str) -> None:
        """The same on a Redis server."""
        check_overlap(name)

    @pytest.mark.parametrize("name", SYNC_VIEWS)
    def test_an_exception_frees_it(self, name: str) -> None:
        """A view that raises has let its lock go, and its exception is seen."""

        def fail() -> None:
            raise LookupError(name)

        stage.act = fail
        with pytest.raises(LookupError, match=name):
            get(name)
        stage.clear()
        is_done(get(name))

    @pytest.mark.parametrize("name", SYNC_VIEWS)
    def test_under_asgi(self, name: str) -> None:
        """A synchronous view under ASGI runs in a thread, and so does its lock."""
        is_done(asyncio.run(AsyncClient().get(f"/{name}/")))

    def test_threads(self) -> None:
        """Of many requests at once one runs; it ends only when all others were refused."""
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

        stage.act = wait_for_all
        threads = [threading.Thread(target=work, daemon=True) for _ in range(others + 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(responses) == [200] + [409] * others

    def test_the_inner_lock_of_two(self) -> None:
        """[D8] If the inner one of two stacked locks is busy, the answer is 409 and the outer one is free again."""
        with held_elsewhere("view"):
            is_conflict(get("stacked-inner-busy"))
        is_done(get("stacked-inner-busy"))

    @pytest.mark.parametrize("path", ["waiting", "async-waiting"])
    def test_waiting(self, path: str, store: str) -> None:
        """With `wait` the second request begins when the first one is over."""
        inside = []
        begun = threading.Event()
        responses = []

        def body() -> None:
            inside.append(len(inside))
            assert len(inside) == 1
            if not begun.is_set():
                begun.set()
                second.start()
            inside.pop()

        async def abody() -> None:
            body()

        second = threading.Thread(target=lambda: responses.append(get(path)), daemon=True)
        stage.act, stage.aact = body, abody
        is_done(get(path))
        second.join(PATIENCE)
        is_done(responses[0])
        assert stage.runs == 2


class TestAsyncViews:
    @pytest.mark.parametrize("name", ASYNC_VIEWS)
    def test_overlap(self, name: str) -> None:
        """[D43] A request while another one's task waits is answered with 409: the lock lasts as long as the body."""
        asyncio.run(self.overlap(name))

    @pytest.mark.parametrize("name", ON_REDIS_ASYNC)
    def test_overlap_on_redis(self, name: str, redis_locks: str) -> None:
        """The same on a Redis server; the loop's end closes its connections."""
        asyncio.run(self.overlap(name))

    async def overlap(self, name: str) -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            entered.set()
            await go.wait()

        stage.aact = hold
        async with asyncio.timeout(PATIENCE):
            first = asyncio.create_task(AsyncClient().get(f"/{name}/"))
            await entered.wait()
            is_conflict(await AsyncClient().get(f"/{name}/"))
            go.set()
            is_done(await first)
            is_done(await AsyncClient().get(f"/{name}/"))
        assert stage.runs == 2

    @pytest.mark.parametrize("name", ASYNC_VIEWS)
    def test_an_exception_frees_it(self, name: str) -> None:
        """A view that raises has let its lock go, and its exception is seen."""

        async def fail() -> None:
            raise LookupError(name)

        async def story() -> None:
            stage.aact = fail
            with pytest.raises(LookupError, match=name):
                await AsyncClient().get(f"/{name}/")
            stage.clear()
            is_done(await AsyncClient().get(f"/{name}/"))

        asyncio.run(story())

    @pytest.mark.parametrize("name", ASYNC_VIEWS)
    def test_under_wsgi(self, name: str) -> None:
        """An async view under WSGI has a loop of its own per request, and its lock lives there."""
        is_done(get(name))
        is_done(get(name))

    def test_gather(self) -> None:
        """Of many requests at once one runs; it ends only when all others were refused."""
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

        async def story() -> list[int]:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.gather(*(work() for _ in range(others + 1)))

        stage.aact = wait_for_all
        assert sorted(asyncio.run(story())) == [200] + [409] * others

    def test_a_disconnected_client(self) -> None:
        """[D27] A request whose client goes away is cancelled, and its lock is free."""

        async def story() -> None:
            entered = asyncio.Event()

            async def hold() -> None:
                entered.set()
                await asyncio.Event().wait()

            stage.aact = hold
            async with asyncio.timeout(PATIENCE):
                request = asyncio.create_task(shapes.async_view(RequestFactory().get("/")))
                await entered.wait()
                request.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await request
                stage.clear()
                is_done(await AsyncClient().get("/async-function/"))

        asyncio.run(story())


class TestFunctions:
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_overlap(self, call: Callable[[], str], store: str) -> None:
        """A call during another one raises LockNotAcquired, one after it doesn't. [D51]"""
        refused: list[LockNotAcquired] = []

        def call_again() -> None:
            stage.act = lambda: None
            with pytest.raises(LockNotAcquired) as raised:
                in_thread(call)
            refused.append(raised.value)

        stage.act = call_again
        assert call() == "done"
        assert call() == "done"
        assert stage.runs == 2
        error = refused[0]
        assert error.waited < AT_ONCE
        assert 0 < error.retry_after <= 30
        assert error.holder is not None
        assert error.key
        assert error.name
        assert error.alias == "default"

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_an_exception_frees_it(self, call: Callable[[], str]) -> None:
        """What raises has let its lock go."""

        def fail() -> None:
            raise LookupError

        stage.act = fail
        with pytest.raises(LookupError):
            call()
        stage.clear()
        assert in_thread(call) == "done"

    def test_recursion(self) -> None:
        """A call that would wait for itself is told so at once, also if it is willing to wait. [F5]"""
        for wait in (None, 5, -1):
            decorated = redis_lock("order", wait=wait)(lambda: decorated())  # noqa: B023, PLW0108 - the same call
            with pytest.raises(LockAlreadyHeld):
                decorated()

    def test_re_entrant_recursion(self) -> None:
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

    def test_another_key_is_another_lock(self) -> None:
        """Calls with other arguments don't exclude each other."""

        @redis_lock("order:{pk}")
        def work(pk: int) -> int:
            return pk if pk == 0 else in_thread(lambda: work(pk - 1)) + 1

        assert work(3) == 3

    def test_the_grant_of_the_call(self) -> None:
        """`current_grant()` is the grant of the innermost call, and None outside."""

        @redis_lock("outer")
        def outer() -> tuple[str, str, str]:
            before = current_grant()
            within = inner()
            after = current_grant()
            assert before is after
            assert before is not None
            return before.key, within, after.key

        @redis_lock("inner")
        def inner() -> str:
            grant = current_grant()
            assert grant is not None
            assert grant.fence is not None
            return grant.key

        assert outer() == ("outer", "inner", "outer")
        assert current_grant() is None

    def test_released_by_hand(self) -> None:
        """A body may give its lock back early; the end of the call doesn't mind."""

        @redis_lock("order")
        def work() -> str:
            grant = current_grant()
            assert grant is not None
            grant.release()
            return in_thread(redis_lock("order")(lambda: "other"))

        assert work() == "other"


class TestAsyncFunctions:
    @pytest.mark.parametrize("call", ASYNC_CALLS.values(), ids=ASYNC_CALLS)
    def test_overlap(self, call: Callable[[], Any], store: str) -> None:
        """A call while another one's task waits raises LockNotAcquired, one after it doesn't."""

        async def story() -> None:
            entered, go = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                entered.set()
                await go.wait()

            stage.aact = hold
            async with asyncio.timeout(PATIENCE):
                first = asyncio.create_task(call())
                await entered.wait()
                with pytest.raises(LockNotAcquired):
                    await call()
                go.set()
                assert await first == "done"
                assert await call() == "done"

        asyncio.run(story())
        assert stage.runs == 2

    @pytest.mark.parametrize("call", ASYNC_CALLS.values(), ids=ASYNC_CALLS)
    def test_an_exception_frees_it(self, call: Callable[[], Any]) -> None:
        """What raises has let its lock go."""

        async def fail() -> None:
            raise LookupError

        async def story() -> None:
            stage.aact = fail
            with pytest.raises(LookupError):
                await call()
            stage.clear()
            assert await call() == "done"

        asyncio.run(story())

    def test_a_child_task_is_told(self) -> None:
        """[D42] A task that the body starts inherits its context; it is refused instead of let in or left waiting."""

        @redis_lock("order", wait=-1)
        async def work(depth: int) -> None:
            if depth:
                await asyncio.create_task(work(depth - 1))

        with pytest.raises(LockAlreadyHeld):
            asyncio.run(work(1))

    def test_threads_and_tasks_exclude_each_other(self) -> None:
        """The lock of an async call excludes a synchronous one with the same key."""

        @redis_lock("order")
        async def work() -> None:
            with pytest.raises(LockNotAcquired):
                await asyncio.to_thread(in_thread, redis_lock("order")(lambda: None))

        asyncio.run(work())

    def test_a_refused_call_runs_nothing(self) -> None:
        """The body of a refused call isn't even begun."""

        async def story() -> None:
            with pytest.raises(LockNotAcquired):
                await ASYNC_CALLS["function"]()

        with held_elsewhere("async function"):
            asyncio.run(story())
        assert stage.runs == 0
