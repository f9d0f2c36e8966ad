"""An exchange that is over at one moment of our clock, whatever the server does.

A socket's own timeout bounds its silence only: a server that sends a byte now and then, or reads one, could hold up the
renewals of all locks for ever. So for the time of such an exchange the connection uses its socket through a shell that
lets every call have what is left of the time. The hot path doesn't come here.
"""

from __future__ import annotations

from typing import Any

from ...core import clock


class _Bounded:
    """A socket whose calls raise TimeoutError from ``end`` on."""

    def __init__(self, sock: Any, end: float) -> None:
        self.sock = sock
        self._end = end

    def _in_time(self) -> Any:
        left = self._end - clock.now()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self.sock.settimeout(left)
        return self.sock

    def recv(self, *how: Any) -> Any:
        return self._in_time().recv(*how)

    def recv_into(self, *how: Any) -> Any:
        return self._in_time().recv_into(*how)

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._in_time().send(left) :]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def bind(connection: Any, end: float) -> None:
    """Have an open connection be done by then."""
    _use(connection, _Bounded(connection._sock, end))


def unbind(connection: Any) -> None:
    """Give the connection its usual timeout back."""
    sock = connection._sock.sock
    sock.settimeout(connection.socket_timeout)
    _use(connection, sock)


def connect(connection: Any, end: float | None) -> None:
    """Open a connection, with TLS and handshake, and be done by then, if there is an end."""
    if end is None:
        connection.connect()
        return
    plain = connection._connect
    usual = connection.socket_connect_timeout, connection.socket_timeout

    def bounded() -> _Bounded:
        left = max(end - clock.now(), 0.001)
        connection.socket_connect_timeout, connection.socket_timeout = (
            left if timeout is None else min(left, timeout) for timeout in usual
        )
        try:
            return _Bounded(plain(), end)
        finally:
            connection.socket_connect_timeout, connection.socket_timeout = usual

    connection._connect = bounded
    try:
        connection.connect()
    finally:
        del connection._connect
    unbind(connection)


def _use(connection: Any, sock: Any) -> None:
    connection._sock = sock
    parts: list[Any] = [connection._parser, getattr(connection._parser, "_buffer", None)]
    for part in parts:
        if hasattr(part, "_sock"):
            part._sock = sock
