"""Requests to one of several servers, sent at once on an open connection or not at all: the caller sends to all servers
before it reads from any, so it must not wait for one of them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from ...core import forks
from ...core.clock import system_now as now
from .pooled_connection import keep_receiving
from .redispy import Failure
from .resp import NOT_SIMPLE, RECV_BUFFER, SURPLUS_DATA, ProtocolError, Reader, ServerError, read_simple
from .server_errors import is_demotion
from .sockets import close_inherited
from .sync_connections import DemotedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ...core.commands import Command
    from .backend import RedisBackend
    from .pooled_connection import PooledConnection
    from .sync_connections import ConnectionPool

AGAIN: Final = object()
"""Stands for the reply to a command that is to be sent again by ``call`` or ``acall``: its connection was closed while idle,
or the server doesn't know its script."""

_DONT_WAIT: Final = getattr(socket, "MSG_DONTWAIT", 0)


class DirectRequests:
    """Sends requests to one server at once, or not at all."""

    def __init__(self, backend: RedisBackend) -> None:
        self.backend = backend
        self._pool = backend._pool
        self._loop_connections = backend._loop_connections

    def pack(self, commands: Sequence[Command[Any]]) -> bytes:
        """Return the bytes of a request, which are the same for all servers."""
        return b"".join(map(self.backend.by_sha, commands))

    def begin(self, data: bytes, commands: int) -> BegunRequest | None:
        """Send the bytes of commands, of which the caller reads the replies.

        Args:
            data: the bytes.
            commands: how many there are.

        Returns:
            None if no idle connection can take the bytes at once: ``call`` may open one.
        """
        pid, at = forks.pid(), now()
        connection = _idle_connection(self._pool, at, pid)
        if connection is None:
            return None
        try:
            sent = connection.sock.send(data, _DONT_WAIT)
        except OSError:  # closed, or the server doesn't read
            sent = 0
        except BaseException:
            connection.drop()
            raise
        if sent < len(data):
            connection.drop()
            return None
        return BegunRequest(self, connection, at, commands)

    def abegin(self, data: bytes) -> asyncio.Future[Any] | None:
        """Send the bytes of one command on the connection of the running loop. Return the future of its reply for
        ``reply_of``, or None if no open connection can take it at once."""
        forks.pid()
        return self._loop_connections.begin(data)

    def reply_of(self, future: asyncio.Future[Any]) -> Any:
        """Return the reply, the ``LockBackendError`` or ``AGAIN`` of a future that is done."""
        failure = future.exception()
        if failure is None:
            return self.parsed(future.result())
        if not isinstance(failure, Failure):
            raise failure
        return self.parsed_failure(failure)

    def parsed(self, reply: Any) -> Any:
        """Return a reply, its ``LockBackendError`` or ``AGAIN``."""
        if type(reply) is not ServerError:
            return reply
        return AGAIN if reply.code == "NOSCRIPT" else self.backend._error_of_reply(reply)

    def parsed_failure(self, failure: Failure) -> Any:
        """Return the ``LockBackendError`` of a failed connection, or ``AGAIN``."""
        return AGAIN if failure.on_reused_connection else self.backend._error_of_failure(failure)


def _idle_connection(pool: ConnectionPool, at: float, pid: int) -> PooledConnection | None:
    """Return a connection that can be used without waiting, or None."""
    connection = pool._pop()
    if connection is None:
        return None
    usable = (
        connection.python_timeout is None  # such as that of TLS: its data may be in Python, where poll() can't see it
        and connection.on_reply is None
        and at < connection.replace_at
        and connection.pid == pid
    )
    if usable and (at < connection.idle_check_at or pool._is_usable(connection, at)):
        return connection
    pool._idle.append(connection)  # `call` closes it, or waits for its reply
    return None


class BegunRequest:
    """A request that was sent. Its replies are read by one thread at a time, as they arrive.

    Attributes:
        fileno: the file descriptor that is readable when data has arrived.
        replies: for each command its reply, its ``LockBackendError`` or ``AGAIN``; None until all have arrived.
    """

    __slots__ = ("_at", "_connection", "_count", "_direct", "_raw", "_reader", "fileno", "replies")

    def __init__(self, direct: DirectRequests, connection: PooledConnection, at: float, count: int) -> None:
        self._direct = direct
        self._connection = connection
        self._at = at
        self._count = count
        self._reader: Reader | None = None
        self._raw: list[Any] = []
        self.fileno: int = connection.sock.fileno()
        self.replies: list[Any] | None = None

    def receive(self, *, wait: bool = False) -> list[Any] | None:
        """Read what has arrived, and return the replies if that is all. The connection is in the pool then, or closed.

        Args:
            wait: wait for the rest, until the timeout of the connection.
        """
        if self.replies is not None:
            return self.replies
        connection = self._connection
        try:
            while not self._complete(self._received(connection, wait)):
                if not wait:
                    return None
        except Exception as error:  # noqa: BLE001 - any failure ends the connection
            failure = self._direct._pool._failed(connection, error, reused=True)
            self.replies = [self._direct.parsed_failure(failure)] * self._count
        except BaseException as error:
            self._end(error)
            raise
        else:
            self.replies = list(map(self._direct.parsed, self._raw))
            self._direct._pool.push(connection, self._at)
        return self.replies

    def _received(self, connection: PooledConnection, wait: bool) -> bytes | None:
        if connection.pid != forks.known_pid:
            close_inherited(connection.sock)
            raise TimeoutError("the process was forked, and its parent gets the reply")
        try:
            data: bytes = connection.sock.recv(RECV_BUFFER, _DONT_WAIT)
        except BlockingIOError:
            if not wait:
                return None
            data = keep_receiving(connection, self._at)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data

    def _complete(self, data: bytes | None) -> bool:
        if data is None:
            return False
        raw = self._raw
        if self._reader is None and self._count == 1 and (reply := read_simple(data)) is not NOT_SIMPLE:
            raw.append(reply)
            return True
        if self._reader is None:
            self._reader = Reader()
        raw += self._reader.feed(data)
        if len(raw) > self._count or (len(raw) == self._count and self._reader.replying):
            raise ProtocolError(SURPLUS_DATA)
        if len(raw) < self._count or not self._reader.idle:
            return False
        for reply in raw:
            if type(reply) is ServerError and is_demotion(reply):
                raise DemotedError(reply)
        return True

    def _end(self, error: BaseException) -> None:
        """Close the connection after an exception of a signal handler: some of its data may be lost."""
        failure = Failure(
            ConnectionError(f"interrupted by {type(error).__name__}"), sent=True, on_reused_connection=False
        )
        self.replies = [self._direct.parsed_failure(failure)] * self._count
        self._connection.drop()
