"""The connection pool for synchronous callers (threads). Each connection serves one request at a time.

Idle connections form a stack (last in, first out) without a mutex: each step is one atomic list operation, so other
threads, signal handlers and the garbage collector may run between two steps.

A posted request is sent without waiting for its reply: the connection owes it, and it is read before the reply to the next
request.

Any exception between the first byte sent and the last byte read, such as a lost connection or a KeyboardInterrupt,
closes the connection; otherwise the next request would read the reply of this one. The socket is closed with SO_LINGER
0, so that unsent bytes are discarded.
"""

from __future__ import annotations

import weakref
from os import getpid
from typing import TYPE_CHECKING, Any, Final

from ...core import forks, patching
from ...core.clock import system_now as now
from ...core.errors import LockBackendError
from . import timers
from .idle import IDLE_CHECK_AFTER, MAX_IDLE, MAX_IDLE_TIME, LastTimeout
from .pooled_connection import PooledConnection, keep_receiving, read_replies, read_reply, send_all, send_rest
from .redispy import Failure, connect, drop
from .resp import COMMON_REPLIES, NOT_SIMPLE, RECV_BUFFER, ProtocolError, ServerError, read_simple
from .server_errors import is_demotion
from .sockets import close_inherited, has_unread_data, read_available

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import redis


POSTED_CHECK_INTERVAL: Final = 1.0
"""Seconds after which the reply to a posted request is received if the connection wasn't used since."""


class DemotedError(Exception):
    """The connected server is no longer the master, or is restarting. After a failover behind one address, a new
    connection may reach the new master."""

    def __init__(self, error: ServerError) -> None:
        super().__init__(str(error))
        self.error = error


class ConnectionPool:
    """The connections of this process's threads to one server.

    Args:
        make: creates a redis-py connection, not yet connected.
        max_age: seconds after which a connection is replaced.
        last_timeout: the time of the server's last timeout, shared with other pools.
    """

    def __init__(
        self, make: Callable[[], redis.Connection], max_age: float, last_timeout: LastTimeout | None = None
    ) -> None:
        self._make = make
        self._max_age = max_age
        self._last_timeout = last_timeout or LastTimeout()
        self._idle: list[PooledConnection] = []
        self._reset_timers()

    def execute(self, request: bytes, replies: int = 1) -> Any:
        """Send one request, or several, and return the last of its ``replies``. An error reply is returned, not raised.
        Callers have called ``forks.pid()`` before, so that a child has dropped its parent's connections.

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
            or connection.pid != forks.known_pid
        ):
            connection, reused = self._checkout(connection, at)
            at = now()
        try:
            if (sent := connection.send(request)) < len(request):
                send_rest(connection, request[sent:], at)
            try:
                data = connection.recv(RECV_BUFFER)
            except BlockingIOError:
                data = keep_receiving(connection, at)
            if replies == 1 and connection.on_reply is None and data in COMMON_REPLIES:
                reply = COMMON_REPLIES[data]
            else:
                if replies > 1 or connection.on_reply is not None or (reply := read_simple(data)) is NOT_SIMPLE:
                    reply = read_reply(connection, data, at, replies)
                if reply.__class__ is ServerError and is_demotion(reply):
                    raise DemotedError(reply)
        except Exception as failure:
            raise self._failed(connection, failure, reused=reused) from failure
        except BaseException:
            connection.drop()
            raise
        connection.idle_check_at = at + IDLE_CHECK_AFTER  # push(), inlined to save a call
        # one that was taken from the list has its place there
        (self._idle.append if reused or len(self._idle) < MAX_IDLE else PooledConnection.close)(connection)
        return reply

    def execute_many(self, requests: Sequence[bytes], timeout: float, *, fail_if_demoted: bool = True) -> list[Any]:
        """Send requests in one write and return their replies.

        Args:
            timeout: seconds until the last reply must have arrived.
            fail_if_demoted: treat a demotion error on a reused connection as a failure of the connection.

        Raises:
            Failure: the connection failed.
        """
        at = now()
        deadline = at + timeout
        connection, reused = self._checkout(self._pop(), at, deadline)
        try:
            send_all(connection, b"".join(requests), deadline)
            replies = read_replies(connection, None, len(requests), deadline)
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

    def post(self, request: bytes, on_reply: Callable[[Any], object]) -> None:
        """Send one request without waiting for its reply, which the next user of the connection reads, or else a timer.

        Args:
            on_reply: called once with the reply, or with None if it isn't received. An error reply is passed, too. It
                may be called in any thread, and must neither raise nor block.

        Raises:
            Failure: the connection failed.
            LockBackendError: no thread can be started for the timer.
        """
        self._schedule_receive()
        connection, reused = self._checkout(self._pop(), now())
        at = now()
        try:
            if (sent := connection.send(request)) < len(request):
                send_rest(connection, request[sent:], at)
        except Exception as failure:
            raise self._failed(connection, failure, reused=reused) from failure
        except BaseException:
            connection.drop()
            raise
        connection.on_reply = on_reply
        self.push(connection, at)

    def receive_arrived(self) -> None:
        """Receive the replies to posted requests that have arrived, and drop the connections on which one is overdue."""
        self._receive_scheduled = False
        for connection in self._owing():
            try:
                self._idle.remove(connection)
            except ValueError:  # another thread took it
                continue
            at = now()
            try:
                data = read_available(connection.sock)
                connection.sock.settimeout(connection.python_timeout)
            except OSError as failure:
                self._failed(connection, failure, reused=True)
                continue
            if not data and (connection.timeout is None or at < connection.idle_check_at + connection.timeout):
                self._idle.append(connection)
            elif self._receive_posted(connection, data or None, at):
                self.push(connection, at)
        if self._owing():
            self._schedule_receive()

    def _owing(self) -> list[PooledConnection]:
        """Return this process's idle connections that owe the reply to a posted request."""
        return [other for other in self._idle.copy() if other.on_reply is not None and other.pid == getpid()]

    def push(self, connection: PooledConnection, at: float) -> None:
        """Return a connection to the pool; ``at`` is when it was used."""
        connection.idle_check_at = at + IDLE_CHECK_AFTER
        (self._idle.append if len(self._idle) < MAX_IDLE else PooledConnection.close)(connection)

    def close(self) -> None:
        for connection in self._take_all():
            connection.close()

    def replace_all(self) -> None:
        """Replace each connection before its next request."""
        for ref in self._open_connections.keyrefs():
            if (connection := ref()) is not None:
                connection.replace_at = 0.0

    def after_fork_in_child(self) -> None:
        """Close the child's copies of the parent's sockets, without shutdown or close_notify."""
        for connection in self._take_all():
            close_inherited(connection.sock)
        self._reset_timers()

    def _checkout(
        self, connection: PooledConnection | None, at: float, deadline: float | None = None
    ) -> tuple[PooledConnection, bool]:
        """Return this connection if it is usable, else another idle or new one, and whether it was used before."""
        self._close_idle(lambda other: at >= other.replace_at or self._is_suspect(other))
        while connection is not None:
            if connection.pid == getpid():  # it differs after a fork by C code, which runs no Python hooks
                if at < connection.replace_at and self._is_usable(connection, at):
                    return connection, True
                connection.close()
            connection = self._pop()
        return self._connect(deadline), False

    def _pop(self) -> PooledConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _is_usable(self, connection: PooledConnection, at: float) -> bool:
        if connection.on_reply is not None and not self._receive_posted(
            connection, None, connection.deadline_after(at)
        ):
            return False
        return at < connection.idle_check_at or not (
            self._is_suspect(connection) or has_unread_data(connection.sock, connection.python_timeout)
        )

    def _is_suspect(self, connection: PooledConnection) -> bool:
        """Return whether a request on any connection timed out since this one was used: it may be broken, too."""
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
            self._open_connections[connection] = None
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
        if isinstance(failure, BlockingIOError):  # the kernel's send timeout expired
            failure = TimeoutError(f"the server has read nothing for {connection.timeout:g} s")
        on_reused_connection = reused and not isinstance(failure, (TimeoutError, ProtocolError))
        if on_reused_connection:
            self.close()
        elif isinstance(failure, TimeoutError):
            self._last_timeout.at = now()
        return Failure(failure, sent=True, on_reused_connection=on_reused_connection)

    def _close_older(self, connection: PooledConnection) -> None:
        """Close idle connections that aren't newer than this one: they reach the same demoted server."""
        self._close_idle(lambda other: other.opened_at <= connection.opened_at)

    def _reset_timers(self) -> None:
        self._open_connections: weakref.WeakKeyDictionary[PooledConnection, None] = weakref.WeakKeyDictionary()
        self._trim_scheduled = self._receive_scheduled = False

    def _call_later(self, seconds: float, method: Callable[[ConnectionPool], object]) -> None:
        """Call a method on the timer thread if the pool still exists then."""
        ref = weakref.ref(self)

        def on_timer() -> None:
            pool = ref()
            if pool is not None:
                method(pool)

        timers.call_at(now() + seconds, on_timer)

    # The reply to a posted request is received by the next user of the connection. If there is none, by a timer

    def _receive_posted(self, connection: PooledConnection, data: bytes | None, deadline: float | None) -> bool:
        """Receive the reply to a posted request, of which ``data`` was read. Return whether that succeeded."""
        try:
            (reply,) = read_replies(connection, data, 1, deadline)
        except Exception as failure:  # noqa: BLE001 - any failure ends the connection
            self._failed(connection, failure, reused=True)
            return False
        except BaseException:
            connection.drop()
            raise
        connection.report(reply)
        return True

    def _schedule_receive(self) -> None:
        if not self._receive_scheduled:
            self._call_later(POSTED_CHECK_INTERVAL, ConnectionPool.receive_arrived)
            self._receive_scheduled = True

    # After a peak, the connections at the bottom of the stack stay unused: a timer closes them

    def _schedule_trim(self) -> None:
        if self._trim_scheduled or len(self._open_connections) < 2:
            return
        self._trim_scheduled = True
        try:
            self._call_later(MAX_IDLE_TIME, ConnectionPool._trim)
        except LockBackendError:  # no thread can be started
            self._trim_scheduled = False

    def _trim(self) -> None:
        """Close connections that were idle for ``MAX_IDLE_TIME``, except the most recently used one."""
        self._trim_scheduled = False
        oldest, last_used = now() - MAX_IDLE_TIME, self._idle[-1:]
        self._close_idle(lambda connection: connection.idle_check_at < oldest and connection not in last_used)
        self._schedule_trim()

    def _take_all(self) -> Iterator[PooledConnection]:
        """Remove the connections that are idle now, one by one, while other threads push and pop."""
        for _ in range(len(self._idle)):
            try:
                yield self._idle.pop(0)
            except IndexError:  # another thread took the last one
                return
