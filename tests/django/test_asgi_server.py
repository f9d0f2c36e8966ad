"""Locks behind uvicorn, with real sockets: clients that wait, and clients that leave; one thread for several requests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any, Self

import pytest
import uvicorn
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.urls import path

from django_redis_locks import LockAlreadyHeld, clock, locks, redis_lock
from tests.django.helpers import PATIENCE, until
from tests.probes.django import waiters

DONE = (200, "done")


class AsgiServer:
    """Django behind uvicorn, in a thread of its own, on a free port; with the settings of the test that runs."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(ASGIHandler(), lifespan="off", ws="none", loop="asyncio", log_config=None)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)
        self._visitors: list[Visitor] = []

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        body.end()
        for visitor in self._visitors:
            visitor.leave()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._listener.close()
        assert not self._thread.is_alive()

    def ask(self, path: str) -> Visitor:
        visitor = Visitor(self._listener.getsockname()[1], path)
        self._visitors.append(visitor)
        return visitor


class Visitor:
    """A client that has asked for a page."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: testserver\r\nConnection: close\r\n\r\n".encode())

    def answer(self) -> tuple[int, str]:
        """Status and body, when they are there."""
        with self._socket as connection, HTTPResponse(connection) as response:
            response.begin()
            return response.status, response.read().decode()

    def leave(self) -> None:
        """Hang up."""
        self._socket.close()


class Body:
    """What a view does: it says that it began, and goes on when it may. For threads and tasks."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        self.cancelled = threading.Event()
        self.tidied = threading.Event()
        """Set by the test: a cancelled one may end."""

    def run(self) -> None:
        self.began.release()
        assert self.go.wait(PATIENCE)

    async def arun(self) -> None:
        self.began.release()
        try:
            assert await asyncio.to_thread(self.go.wait, PATIENCE)
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
def at_once(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock("visit")
async def needs_the_thread(request: HttpRequest) -> HttpResponse:
    """As an async view does that asks the database."""
    await body.arun()
    return HttpResponse(await sync_to_async(lambda: "done")())


@redis_lock("visit", wait=0.8)
def waits_a_bit(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@redis_lock("visit", wait=-1)
def waits_for_ever(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


async def in_steps(request: HttpRequest) -> HttpResponse:
    """Takes and gives the lock in a thread, step by step."""
    lock = locks.lock("visit")
    grant = await sync_to_async(lock.acquire)()
    await body.arun()
    await sync_to_async(grant.release)()
    return HttpResponse("done")


urlpatterns = [
    path("sync/", waits),
    path("async/", awaits),
    path("at-once/", at_once),
    path("needs-the-thread/", needs_the_thread),
    path("waits-a-bit/", waits_a_bit),
    path("waits-for-ever/", waits_for_ever),
    path("in-steps/", in_steps),
]


@pytest.fixture(autouse=True)
def new_body() -> Iterator[None]:
    body.__init__()  # type: ignore[misc]
    yield
    body.end()


@pytest.fixture
def server(redis_locks: str) -> Iterator[AsgiServer]:
    with AsgiServer() as running:
        yield running


@pytest.mark.parametrize("first", ["sync", "async", "needs-the-thread"])
@pytest.mark.parametrize("second", ["sync", "async"])
def test_waiting_client_is_served_after_the_holder(server: AsgiServer, first: str, second: str) -> None:
    """[D41] Whichever of them is asynchronous: a waiter blocks nothing, least of all the holder. Behind a server each
    request has a thread of its own."""
    holder = server.ask(f"/{first}/")
    body.begins()
    waiter = server.ask(f"/{second}/")
    until(lambda: waiters("visit") == 1)
    assert server.ask("/at-once/").answer()[0] == 409
    assert body.never_begins()
    body.go.set()
    assert holder.answer() == DONE
    assert waiter.answer() == DONE


class TestDisconnect:
    def test_client_that_leaves_while_waiting_leaves_the_queue(self, server: AsgiServer) -> None:
        """[D27] Its view never begins, and the next one gets the lock; which is free at last."""
        holder = server.ask("/async/")
        body.begins()
        leaver = server.ask("/async/")
        until(lambda: waiters("visit") == 1)
        waiter = server.ask("/async/")
        until(lambda: waiters("visit") == 2)
        leaver.leave()
        until(lambda: waiters("visit") == 1)
        body.go.set()
        assert [holder.answer(), waiter.answer()] == [DONE, DONE]
        body.begins()
        assert body.never_begins()
        until(lambda: not locks.lock("visit").locked())

    def test_thread_of_a_client_that_leaves_goes_on_waiting(self, server: AsgiServer) -> None:
        """[D27] It gets its turn, and the next one comes after it."""
        holder = server.ask("/async/")
        body.begins()
        leaver = server.ask("/sync/")
        until(lambda: waiters("visit") == 1)
        leaver.leave()
        waiter = server.ask("/sync/")
        until(lambda: waiters("visit") == 2)
        body.go.set()
        assert [holder.answer(), waiter.answer()] == [DONE, DONE]
        body.begins()
        body.begins()

    def test_client_that_leaves_while_holding_frees_the_lock_with_its_body(self, server: AsgiServer) -> None:
        """[D27] The task is cancelled; the lock is free when the body has ended, not before."""
        holder = server.ask("/async/")
        body.begins()
        holder.leave()
        assert body.cancelled.wait(PATIENCE)
        assert server.ask("/at-once/").answer()[0] == 409
        body.tidied.set()
        until(lambda: not locks.lock("visit").locked())
        assert server.ask("/at-once/").answer() == DONE

    def test_thread_of_a_client_that_leaves_holds_until_its_end(self, server: AsgiServer) -> None:
        """[D27]"""
        holder = server.ask("/sync/")
        body.begins()
        holder.leave()
        waiter = server.ask("/async/")
        until(lambda: waiters("visit") == 1)
        assert body.never_begins()
        body.go.set()
        assert waiter.answer() == DONE


class TestOneThreadForAll:
    """With AsyncClient, and in scripts, the synchronous code of a loop shares one thread."""

    def test_thread_that_holds_for_another_request_gets_LockAlreadyHeld(self, store: str) -> None:
        """[D41] [D42] At once: waiting would keep that request from ever releasing the lock."""

        async def scenario() -> None:
            async with asyncio.timeout(PATIENCE):
                client = AsyncClient(raise_request_exception=False)  # it would raise that of any other client's
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

    def test_wait_for_a_holder_that_needs_the_thread_ends(self) -> None:
        """[D41] A task holds the lock and needs the thread: that can't be seen, so the wait ends it, and both go on."""

        async def scenario() -> None:
            async with asyncio.timeout(PATIENCE):
                first = asyncio.create_task(AsyncClient().get("/needs-the-thread/"))
                await asyncio.to_thread(body.begins)
                begin = clock.now()
                second = asyncio.create_task(AsyncClient().get("/waits-a-bit/"))
                await asyncio.to_thread(until, lambda: waiters("visit") == 1 or second.done())
                body.go.set()
                assert (await second).status_code == 409
                assert clock.now() - begin >= 0.8
                assert (await first).content == b"done"

        asyncio.run(scenario())
