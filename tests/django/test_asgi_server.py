"""Locks behind uvicorn, with real sockets: waiting clients, disconnecting clients, one thread for several requests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import pytest
import uvicorn
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.urls import path

from django_redis_locks import LockAlreadyHeld, locks, redis_lock
from tests.django.helpers import PATIENCE, wait_until
from tests.probes.django import waiters

DONE = (200, "done")


class Visitor(HTTPConnection):
    """A client that has sent a request. `close()` disconnects."""

    def answer(self) -> tuple[int, str]:
        """Wait for the response. Return its status and body."""
        with self.getresponse() as response:
            return response.status, response.read().decode()


class Body:
    """The body of a view: reports its begin and waits for the test, in threads and tasks."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go, self.cancelled, self.tidied = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        self.began.release()
        assert self.go.wait(PATIENCE)

    async def arun(self) -> None:
        try:
            await asyncio.to_thread(self.run)
        except asyncio.CancelledError:
            self.cancelled.set()
            await asyncio.to_thread(self.tidied.wait, PATIENCE)
            raise

    def begins(self) -> None:
        assert self.began.acquire(timeout=PATIENCE)

    def never_begins(self) -> bool:
        return not self.began.acquire(blocking=False)

    def end(self) -> None:
        self.go.set()
        self.tidied.set()


Visit = Callable[[str], Visitor]

body = Body()


@redis_lock("visit", wait=PATIENCE)
def waits(request: HttpRequest) -> HttpResponse:
    body.run()
    return HttpResponse("done")


@redis_lock("visit", wait=PATIENCE)
async def awaits(request: HttpRequest) -> HttpResponse:
    await body.arun()
    return HttpResponse("done")


@redis_lock("visit")
async def needs_the_thread(request: HttpRequest) -> HttpResponse:
    """As an async view that uses the database."""
    await body.arun()
    return HttpResponse(await sync_to_async(lambda: "done")())


def waiting(wait: float | None) -> Callable[[HttpRequest], HttpResponse]:
    return redis_lock("visit", wait=wait)(lambda request: HttpResponse("done"))


async def in_steps(request: HttpRequest) -> HttpResponse:
    """Acquires and releases in the sync thread, in separate calls."""
    lock = locks.lock("visit")
    grant = await sync_to_async(lock.acquire)()
    await body.arun()
    await sync_to_async(grant.release)()
    return HttpResponse("done")


urlpatterns = [
    path("sync/", waits),
    path("async/", awaits),
    path("at-once/", waiting(None)),
    path("needs-the-thread/", needs_the_thread),
    path("waits-for-ever/", waiting(-1)),
    path("in-steps/", in_steps),
]


@pytest.fixture(autouse=True)
def new_body() -> Iterator[None]:
    body.__init__()  # type: ignore[misc]
    yield
    body.end()


@pytest.fixture
def visit(redis_locks: str) -> Iterator[Visit]:
    """`visit("/sync/")`: send a request to Django behind uvicorn, which runs in a thread with the settings of the
    test."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(ASGIHandler(), lifespan="off", ws="none", loop="asyncio", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    with ExitStack() as visitors:

        def ask(path: str) -> Visitor:
            visitor = Visitor("127.0.0.1", listener.getsockname()[1], timeout=PATIENCE)
            visitors.callback(visitor.close)
            visitor.request("GET", path, headers={"Host": "testserver"})
            return visitor

        yield ask
        body.end()
    server.should_exit = True
    thread.join(PATIENCE)
    listener.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("first", ["sync", "async", "needs-the-thread"])
@pytest.mark.parametrize("second", ["sync", "async"])
def test_waiting_client_is_served_after_the_holder(visit: Visit, first: str, second: str) -> None:
    """[D41] With sync and async views in any combination: a waiter doesn't block the holder. Behind a server each
    request has a thread of its own."""
    holder = visit(f"/{first}/")
    body.begins()
    waiter = visit(f"/{second}/")
    wait_until(lambda: waiters("visit") == 1)
    assert visit("/at-once/").answer()[0] == 409
    assert body.never_begins()
    body.go.set()
    assert holder.answer() == DONE
    assert waiter.answer() == DONE


class TestDisconnect:
    def test_client_that_disconnects_while_waiting_leaves_the_queue(self, visit: Visit) -> None:
        """[D27] Its view never begins, and the next client gets the lock."""
        holder = visit("/async/")
        body.begins()
        leaver = visit("/async/")
        wait_until(lambda: waiters("visit") == 1)
        waiter = visit("/async/")
        wait_until(lambda: waiters("visit") == 2)
        leaver.close()
        wait_until(lambda: waiters("visit") == 1)
        body.go.set()
        assert [holder.answer(), waiter.answer()] == [DONE, DONE]
        body.begins()
        assert body.never_begins()
        wait_until(lambda: not locks.lock("visit").locked())

    def test_sync_view_of_a_client_that_disconnects_goes_on(self, visit: Visit) -> None:
        """[D27] It holds the lock until its end, or waits for it and runs; the next client follows."""
        holder = visit("/sync/")
        body.begins()
        holder.close()
        leaver = visit("/sync/")
        wait_until(lambda: waiters("visit") == 1)
        leaver.close()
        waiter = visit("/async/")
        wait_until(lambda: waiters("visit") == 2)
        assert body.never_begins()
        body.go.set()
        assert waiter.answer() == DONE
        body.begins()
        body.begins()

    def test_lock_of_a_client_that_disconnects_is_released_at_the_end_of_the_async_view(self, visit: Visit) -> None:
        """[D27] The task is cancelled; the lock is released when the body has ended, not before."""
        holder = visit("/async/")
        body.begins()
        holder.close()
        assert body.cancelled.wait(PATIENCE)
        assert visit("/at-once/").answer()[0] == 409
        body.tidied.set()
        wait_until(lambda: not locks.lock("visit").locked())
        assert visit("/at-once/").answer() == DONE


class TestOneThreadForAll:
    """With AsyncClient, and in scripts, the synchronous code of a loop shares one thread."""

    def test_request_in_a_thread_that_holds_the_lock_for_another_request_gets_LockAlreadyHeld(self, store: str) -> None:
        """[D41] [D42] At once: if it waited, the other request could never release the lock."""

        async def scenario() -> None:
            async with asyncio.timeout(PATIENCE):
                client = AsyncClient(
                    raise_request_exception=False
                )  # it would raise exceptions of other clients' requests
                first = asyncio.create_task(client.get("/in-steps/"))
                await asyncio.to_thread(body.begins)
                refused: Any = await client.get("/waits-for-ever/")
                kind, error, _ = refused.exc_info
                assert (refused.status_code, kind) == (500, LockAlreadyHeld)
                assert "this thread holds it, on behalf of another context" in str(error)
                body.go.set()
                assert (await first).content == b"done"
                assert (await AsyncClient().get("/waits-for-ever/")).content == b"done"

        asyncio.run(scenario())
