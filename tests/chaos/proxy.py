"""A proxy between a client and its Redis server that loses, holds back and cuts, one script call at a time.

with Proxy(server.port) as proxy:
    proxy.plan("lose reply")            # what happens to the next script calls, in order
    ...
    proxy.deliver()                     # what was held back reaches the server now, as a late copy does
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from types import TracebackType
from typing import Self

ACTIONS = ("pass", "lose reply", "cut reply", "lose request", "hold request", "cut request")
"""lose: silence; cut: the client's connection is closed instead; hold: kept for `deliver`."""


class Proxy:
    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._plan: deque[str] = deque()
        self._held: list[bytes] = []
        self._links: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._down = False
        self.calls: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def plan(self, *actions: str) -> None:
        assert set(actions) <= set(ACTIONS)
        self._plan.extend(actions)

    def deliver(self) -> None:
        """Send what was held back to the server, on a connection of its own, and wait until it was carried out."""
        for request in self._held:
            with socket.create_connection(self._server) as link:
                link.sendall(request)
                link.recv(65536)
        self._held.clear()

    def down(self) -> None:
        """Cut every connection, and refuse new ones until `up`."""
        self._down = True
        for link in self._links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._links.clear()

    def up(self) -> None:
        self._down = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._listener.close()
        self.down()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._down:
                client.close()
                continue
            self._links.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        action = "pass"
        with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        action = self._next(data)
                        if action == "cut request":
                            return
                        if action == "hold request":
                            self._held.append(data)
                        elif action != "lose request":
                            server.sendall(data)
                    elif action == "cut reply":
                        return
                    elif action != "lose reply":
                        client.sendall(data)

    def _next(self, data: bytes) -> str:
        if b"EVAL" not in data:
            return "pass"
        action = self._plan.popleft() if self._plan else "pass"
        self.calls.append(action)
        return action
