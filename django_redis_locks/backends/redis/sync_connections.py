"""The connections of one server, for threads: each serves one exchange at a time.

Those that are in no use are a stack: the last one in is the first one out. No mutex guards it: each step is one that the
list does at once, whatever other threads, a signal handler or the collector do between two of them.

Anything that interrupts an exchange between the first byte sent and the last byte read, be it a lost connection or a
KeyboardInterrupt, costs the connection: an unread reply would answer the next caller. Its socket is closed with
SO_LINGER 0, so that bytes that haven't left yet never will.
"""

from __future__ import annotations

import weakref
from os import getpid
from typing import TYPE_CHECKING, Any

from ...core import patching
from ...core.clock import system_now as now
from ...core.errors import LockBackendError
from . import timers
from .idle import IDLE_CHECK_AFTER, MAX_IDLE, MAX_IDLE_TIME, LastTimeout, lifetime
from .redispy import Failure, connect, drop
from .resp import COMMON_REPLIES, NOT_SIMPLE, RECV_BUFFER, SURPLUS_DATA, ProtocolError, Reader, ServerError, read_simple
from .server_errors import is_demotion
from .sockets import close_inherited, has_unread_data, use_kernel_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import redis


class DemotedError(Exception):
    """A connection that leads to another server than a new one may: after a failover behind one address, a demoted master."""

    def __init__(self, error: ServerError) -> None:
        super().__init__(str(error))
        self.error = error


class PooledConnection:
    """A connection, its socket, and what we know of it."""

    __slots__ = (
        "__weakref__",
        "idle_check_at",
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
        """Its timeout as Python knows it."""
        self.pid = getpid()
        self.opened_at = now()
        self.replace_at = self.opened_at + lifetime(max_age)
        """When it is to be replaced."""
        self.idle_check_at = 0.0
        """Until when it may be taken without a look."""

    def deadline_after(self, started: float) -> float | None:
        """When an exchange that began then has to be over; None is never."""
        return None if self.timeout is None else started + self.timeout

    def close(self) -> None:
        self.redispy_connection.disconnect()

    def drop(self) -> None:
        drop(self.redispy_connection)


class ConnectionPool:
    """Connections to one server for threads."""

    def __init__(
        self, make: Callable[[], redis.Connection], max_age: float, last_timeout: LastTimeout | None = None
    ) -> None:
        self._make = make
        self._max_age = max_age
        self._last_timeout = last_timeout or LastTimeout()
        self._idle: list[PooledConnection] = []
        self._reset_trimming()

    def execute(self, request: bytes) -> Any:
        """Send one request and return its reply; an error reply is returned, not raised.

        Raises:
            Failure: the connection failed.
        """
        at = now()
        reused = True
        try:
            connection: PooledConnection | None = self._idle.pop()
        except IndexError:
            connection = None
        if (
            connection is None
            or not connection.idle_check_at > at < connection.replace_at
            or connection.pid != getpid()
        ):
            connection, reused = self._checkout(connection, at)
            at = now()
        try:
            if (sent := connection.send(request)) < len(request):
                _send_rest(connection, request[sent:], at)
            try:
                data = connection.recv(RECV_BUFFER)
            except BlockingIOError:
                data = _keep_receiving(connection, at)
            if data in COMMON_REPLIES:
                reply = COMMON_REPLIES[data]
            else:
                if (reply := read_simple(data)) is NOT_SIMPLE:
                    (reply,) = _read(connection, data, 1, connection.deadline_after(at))
                if reply.__class__ is ServerError and is_demotion(reply):
                    raise DemotedError(reply)
        except Exception as failure:
            raise self._failed(connection, failure, reused=reused) from failure
        except BaseException:
            connection.drop()
            raise
        connection.idle_check_at = at + IDLE_CHECK_AFTER  # push(), at the price of one call less
        (self._idle.append if len(self._idle) < MAX_IDLE else PooledConnection.close)(connection)
        return reply

    def execute_many(self, requests: Sequence[bytes], timeout: float, *, fail_if_demoted: bool = True) -> list[Any]:
        """Send requests in one write and return their replies, the last one within ``timeout`` seconds. ``fail_if_demoted``: a server
        that was demoted since we connected is a failed connection.

        Raises:
            Failure: the connection failed.
        """
        at = now()
        deadline = at + timeout
        connection, reused = self._checkout(self._pop(), at, deadline)
        try:
            _send(connection, b"".join(requests), deadline)
            replies = _read(connection, None, len(requests), deadline)
            for reply in replies if reused and fail_if_demoted else ():
                if type(reply) is ServerError and is_demotion(reply):
                    raise DemotedError(reply)
        except Exception as failure:
            raise self._failed(connection, failure, reused=reused) from failure
        except BaseException:
            connection.drop()
            raise
        self.push(connection, at)
        return replies

    def push(self, connection: PooledConnection, at: float) -> None:
        """Give a connection back that was used at this moment."""
        connection.idle_check_at = at + IDLE_CHECK_AFTER
        (self._idle.append if len(self._idle) < MAX_IDLE else PooledConnection.close)(connection)

    def close(self) -> None:
        for connection in self._take_all():
            connection.close()

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's: close our copies of them without shutdown or close_notify."""
        for connection in self._take_all():
            close_inherited(connection.sock)
        self._reset_trimming()

    def _checkout(
        self, connection: PooledConnection | None, at: float, deadline: float | None = None
    ) -> tuple[PooledConnection, bool]:
        """This one, another idle one, or a new one; and whether it was idle."""
        self._close_idle(lambda other: at >= other.replace_at or self._is_suspect(other))
        while connection is not None:
            if connection.pid == getpid():  # else a fork didn't run Python's hooks
                if at < connection.replace_at and (at < connection.idle_check_at or not self._is_unusable(connection)):
                    return connection, True
                connection.close()
            connection = self._pop()
        return self._connect(deadline), False

    def _pop(self) -> PooledConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _is_unusable(self, connection: PooledConnection) -> bool:
        return self._is_suspect(connection) or has_unread_data(connection.sock, connection.python_timeout)

    def _is_suspect(self, connection: PooledConnection) -> bool:
        """A request went unanswered since it was used, so the other end of this one may be gone as well."""
        return connection.idle_check_at < self._last_timeout.at

    def _close_idle(self, condition: Callable[[PooledConnection], bool]) -> None:
        for connection in self._idle.copy():
            if condition(connection) and connection.pid == getpid():
                try:
                    self._idle.remove(connection)
                except ValueError:  # another thread took it
                    continue
                connection.close()

    def _connect(self, deadline: float | None = None) -> PooledConnection:
        patching.check()
        redispy_connection = self._make()
        try:
            connection = PooledConnection(redispy_connection, connect(redispy_connection, deadline), self._max_age)
            self._open_connections.add(connection)
            self._schedule_trim()
            return connection
        except Exception as failure:
            drop(redispy_connection)
            raise Failure(failure, sent=False, on_reused_connection=False) from failure
        except BaseException:
            drop(redispy_connection)
            raise

    def _failed(self, connection: PooledConnection, failure: Exception, *, reused: bool) -> Failure:
        connection.drop()
        if isinstance(failure, DemotedError):
            self._close_older(connection)
            return Failure(failure.error, sent=True, on_reused_connection=reused)
        if isinstance(failure, BlockingIOError):  # there was no room to send
            failure = TimeoutError(f"it has read nothing for {connection.timeout:g} s")
        on_reused_connection = reused and not isinstance(failure, (TimeoutError, ProtocolError))
        if on_reused_connection:
            self.close()
        elif isinstance(failure, TimeoutError):
            self._last_timeout.at = now()
        return Failure(failure, sent=True, on_reused_connection=on_reused_connection)

    def _close_older(self, connection: PooledConnection) -> None:
        """Those that lead where this one did."""
        self._close_idle(lambda other: other.opened_at <= connection.opened_at)

    # What a rush leaves behind lies at the bottom of the stack, and is never taken again

    def _reset_trimming(self) -> None:
        self._open_connections: weakref.WeakSet[PooledConnection] = weakref.WeakSet()
        self._trim_scheduled = False

    def _schedule_trim(self) -> None:
        if self._trim_scheduled or len(self._open_connections) < 2:
            return
        ref = weakref.ref(self)

        def on_timer() -> None:
            pool = ref()
            if pool is not None:
                pool._trim()

        self._trim_scheduled = True
        try:
            timers.call_at(now() + MAX_IDLE_TIME, on_timer)
        except LockBackendError:  # no thread to be had
            self._trim_scheduled = False

    def _trim(self) -> None:
        """Close what has lain idle for long, but for the one that is taken next."""
        self._trim_scheduled = False
        old, kept = now() - MAX_IDLE_TIME, self._idle[-1:]
        self._close_idle(lambda connection: connection.idle_check_at < old and connection not in kept)
        self._schedule_trim()

    def _take_all(self) -> Iterator[PooledConnection]:
        """Take out what is there now, one by one: other threads go on pushing and popping meanwhile."""
        for _ in range(len(self._idle)):
            try:
                yield self._idle.pop(0)
            except IndexError:  # another thread took the last one
                return


def _send_rest(connection: PooledConnection, data: bytes, started: float) -> None:
    """A server that reads a little now and then would take it for ever."""
    deadline = connection.deadline_after(started)
    if deadline is None:
        connection.sock.sendall(data)
    else:
        _send(connection, data, deadline)
        connection.sock.settimeout(connection.python_timeout)


def _send(connection: PooledConnection, data: bytes, deadline: float) -> None:
    left = memoryview(data)
    while left:
        _set_deadline(connection, deadline)
        left = left[connection.sock.send(left) :]


def _read(connection: PooledConnection, data: bytes | None, count: int, deadline: float | None) -> list[Any]:
    """So many replies, of which these are the first bytes, by ``deadline`` of our clock. Its usual patience is given back."""
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


def _keep_receiving(connection: PooledConnection, since: float) -> bytes:
    """What comes from a socket that was looked at in vain."""
    assert connection.timeout is not None  # noqa: S101 - else it would have waited for ever
    while now() < since + connection.timeout:
        try:
            data: bytes = connection.recv(RECV_BUFFER)
        except BlockingIOError:
            continue
        return data
    raise TimeoutError(f"silent for {connection.timeout:g} s")


def _set_deadline(connection: PooledConnection, deadline: float) -> None:
    left = deadline - now()
    if left <= 0:
        raise TimeoutError("no answer in time")
    connection.sock.settimeout(left)
