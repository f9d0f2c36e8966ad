"""Django behind uvicorn, in a thread of its own: real sockets, real disconnects. A test controls the bodies of its views."""

from __future__ import annotations

import asyncio
import socket
import threading
from http.client import HTTPResponse
from types import TracebackType
from typing import Self

import uvicorn
from django.core.handlers.asgi import ASGIHandler

from tests.django.helpers import PATIENCE, until


class AsgiServer:
    """Serves the settings of the test that runs, on a free port."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
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
