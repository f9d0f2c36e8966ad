"""One connection of the pool for threads, and the functions that send and receive on it with a deadline."""

from __future__ import annotations

from os import getpid
from typing import TYPE_CHECKING, Any

from ...core.clock import system_now as now
from .idle import lifetime
from .redispy import drop
from .resp import NOT_SIMPLE, RECV_BUFFER, SURPLUS_DATA, ProtocolError, Reader, read_simple
from .sockets import use_kernel_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis


class PooledConnection:
    """A redis-py connection, its socket, and the times at which it must be checked or replaced."""

    __slots__ = (
        "__weakref__",
        "idle_check_at",
        "on_reply",
        "opened_at",
        "pid",
        "python_timeout",
        "recv",
        "redispy_connection",
        "replace_at",
        "send",
        "sock",
        "timeout",
    )

    def __init__(self, redispy_connection: redis.Connection, sock: Any, max_age: float) -> None:
        self.redispy_connection = redispy_connection
        self.sock = sock
        self.send = sock.send
        self.recv = sock.recv
        self.timeout: float | None = redispy_connection.socket_timeout
        self.python_timeout = use_kernel_timeout(sock, self.timeout)
        """Seconds of Python's own socket timeout; None if the kernel enforces ``timeout``."""
        self.pid = getpid()
        self.opened_at = now()
        self.replace_at = self.opened_at + lifetime(max_age)
        """The time from which the connection isn't used again."""
        self.idle_check_at = 0.0
        """The time from which an idle connection must be checked before use."""
        self.on_reply: Callable[[Any], object] | None = None
        """Called with the reply to a posted request, or with None if it isn't received; None if no reply is owed."""

    def deadline_after(self, started: float) -> float | None:
        """Return the time at which a request that started then times out; None without a timeout."""
        return None if self.timeout is None else started + self.timeout

    def close(self) -> None:
        """Close the connection."""
        self.redispy_connection.disconnect()
        self.report(None)

    def drop(self) -> None:
        """Close the connection and discard unsent bytes."""
        drop(self.redispy_connection)
        self.report(None)

    def report(self, reply: Any) -> None:
        """Pass on the reply to a posted request, if one is owed."""
        on_reply, self.on_reply = self.on_reply, None
        if on_reply is not None:
            on_reply(reply)


def send_rest(connection: PooledConnection, data: bytes, started: float) -> None:
    """Send the remaining bytes with one deadline for all of them. A timeout for each ``send`` would never expire if the
    server read a few bytes at a time."""
    deadline = connection.deadline_after(started)
    if deadline is None:
        connection.sock.sendall(data)
    else:
        send_all(connection, data, deadline)
        connection.sock.settimeout(connection.python_timeout)


def send_all(connection: PooledConnection, data: bytes, deadline: float) -> None:
    """Send all bytes before the deadline."""
    unsent = memoryview(data)
    while unsent:
        _set_deadline(connection, deadline)
        unsent = unsent[connection.sock.send(unsent) :]


def read_replies(connection: PooledConnection, data: bytes | None, count: int, deadline: float | None) -> list[Any]:
    """Read ``count`` replies, and restore the socket's timeout.

    Args:
        data: the first bytes, if they are already read.
        deadline: when the last reply must have arrived; None is never.
    """
    reader = Reader()
    replies: list[Any] = []
    timeout_changed = data is None
    while True:
        if data is not None:
            if not data:
                raise ConnectionResetError("the server closed the connection")
            replies += reader.feed(data)
            if len(replies) > count or (len(replies) == count and reader.replying):
                raise ProtocolError(SURPLUS_DATA)
            if len(replies) == count and reader.idle:
                break
        if deadline is not None:
            _set_deadline(connection, deadline)
            timeout_changed = True
        data = connection.recv(RECV_BUFFER)
    if timeout_changed:
        connection.sock.settimeout(connection.python_timeout)
    return replies


def read_reply(connection: PooledConnection, data: bytes, started: float, count: int = 1) -> Any:
    """Read the replies to requests that were sent at ``started``, and before them the reply to a posted request, if one
    is owed. Return the last reply.

    Args:
        data: the first bytes, which are already read.
        count: the number of requests.
    """
    if connection.on_reply is not None and (posted := read_simple(data)) is not NOT_SIMPLE:  # it has arrived before
        connection.report(posted)
        try:
            data = connection.recv(RECV_BUFFER)
        except BlockingIOError:
            data = keep_receiving(connection, started)
        if count == 1 and (reply := read_simple(data)) is not NOT_SIMPLE:
            return reply
    owed = connection.on_reply is not None
    replies = read_replies(connection, data, count + owed, connection.deadline_after(started))
    if owed:
        connection.report(replies[0])
    return replies[-1]


def keep_receiving(connection: PooledConnection, since: float) -> bytes:
    """Repeat ``recv``, which waits for ``RECV_SLICE`` only, until data arrives or the connection's timeout expires."""
    assert connection.timeout is not None  # noqa: S101 - without a timeout recv() blocks
    while now() < since + connection.timeout:
        try:
            data: bytes = connection.recv(RECV_BUFFER)
        except BlockingIOError:
            continue
        return data
    raise TimeoutError(f"silent for {connection.timeout:g} s")


def _set_deadline(connection: PooledConnection, deadline: float) -> None:
    remaining = deadline - now()
    if remaining <= 0:
        raise TimeoutError("no answer in time")
    connection.sock.settimeout(remaining)
