"""The site in several processes that accept from one listening socket, opened before the fork."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from typing import Any, Self

from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

HOST = "127.0.0.1"
PROCESSES = 4
STOP_SECONDS = 3.0
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """No log of requests."""


class Server(ThreadedWSGIServer):
    request_queue_size = 128

    def __init__(self, port: int, application: Any) -> None:
        super().__init__((HOST, port), Handler)
        self.set_app(application)
        self.socket.setblocking(False)  # all processes are woken and one gets the connection
        self.parent = os.getpid()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.setblocking(True)
        return connection, address

    def service_actions(self) -> None:
        """Twice a second: end if the parent process has ended."""
        super().service_actions()
        if os.getppid() != self.parent:
            os._exit(0)


class Workers:
    """`with Workers(application) as site:` serves on `site.url`; at the end of the block its processes are ended, by
    pid."""

    def __init__(self, application: Any, *, port: int = 0, processes: int = PROCESSES) -> None:
        self._server = listen(port, application)
        self._processes = processes
        self.url = f"http://{HOST}:{self._server.server_port}"
        self.pids: list[int] = []

    def __enter__(self) -> Self:
        before = signal.pthread_sigmask(
            signal.SIG_BLOCK, SIGNALS
        )  # otherwise a handler of the parent might run in a child
        try:
            for _ in range(self._processes):
                pid = os.fork()
                if pid == 0:
                    self._serve()
                self.pids.append(pid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._server.server_close()  # the children have it
        return self

    def __exit__(self, *exc_info: object) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.pids and time.monotonic() < deadline:
            self.pids = [pid for pid in self.pids if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            time.sleep(0.01)
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids = []

    def _serve(self) -> None:
        """Serve in the child process; never returns."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is sent to children, too; the parent ends them
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._server.serve_forever()
        finally:
            os._exit(1)


def listen(port: int, application: Any) -> Server:
    """A server on this port, or on a free one if it is taken."""
    try:
        return Server(port, application)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return Server(0, application)
