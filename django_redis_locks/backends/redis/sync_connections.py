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
from . import timers as alarms
from .idle import IDLE_CHECK_AFTER, MOST_IDLE, OLD, Suspicion, lifetime
from .redispy import Failure, connect, drop
from .resp import MORE, NONE, RECV_BUFFER, SMALL, ProtocolError, Reader, ServerError, read
from .server_errors import is_outdated
from .sockets import be_patient, close_copy, spoke

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import redis


class Demoted(Exception):
    """A connection that leads to another server than a new one may: after a failover behind one address, a demoted master."""

    def __init__(self, refusal: ServerError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class PooledConnection:
    """A connection, its socket, and what we know of it."""

    __slots__ = (
        "__weakref__",
        "born",
        "connection",
        "end",
        "patience",
        "pid",
        "recv",
        "rested",
        "send",
        "sock",
        "timeout",
    )

    def __init__(self, connection: redis.Connection, sock: Any, max_age: float) -> None:
        self.connection = connection
        self.sock = sock
        self.send = sock.send
        self.recv = sock.recv
        self.timeout: float | None = connection.socket_timeout
        self.patience = be_patient(sock, self.timeout)
        """Its timeout as Python knows it."""
        self.pid = getpid()
        self.born = now()
        self.end = self.born + lifetime(max_age)
        """When it is to be replaced."""
        self.rested = 0.0
        """Until when it may be taken without a look."""

    def until(self, began: float) -> float | None:
        """When an exchange that began then has to be over; None is never."""
        return None if self.timeout is None else began + self.timeout

    def close(self) -> None:
        self.connection.disconnect()

    def drop(self) -> None:
        drop(self.connection)


class ConnectionPool:
    """Connections to one server for threads."""

    def __init__(
        self, make: Callable[[], redis.Connection], max_age: float, suspicion: Suspicion | None = None
    ) -> None:
        self._make = make
        self._max_age = max_age
        self._suspicion = suspicion or Suspicion()
        self._idle: list[PooledConnection] = []
        self._begin_trimming()

    def ask(self, request: bytes) -> Any:
        """Send one request and return its reply; an error reply is returned, not raised.

        Raises:
            Failure: the connection failed.
        """
        at = now()
        reused = True
        try:
            line: PooledConnection | None = self._idle.pop()
        except IndexError:
            line = None
        if line is None or not line.rested > at < line.end or line.pid != getpid():
            line, reused = self._choose(line, at)
            at = now()
        try:
            if (sent := line.send(request)) < len(request):
                _send_rest(line, request[sent:], at)
            try:
                data = line.recv(RECV_BUFFER)
            except BlockingIOError:
                data = _wait(line, at)
            if data in SMALL:
                reply = SMALL[data]
            else:
                if (reply := read(data)) is NONE:
                    (reply,) = _read(line, data, 1, line.until(at))
                if reply.__class__ is ServerError and is_outdated(reply):
                    raise Demoted(reply)
        except Exception as failure:
            raise self._lost(line, failure, reused=reused) from failure
        except BaseException:
            line.drop()
            raise
        line.rested = at + IDLE_CHECK_AFTER  # push(), at the price of one call less
        (self._idle.append if len(self._idle) < MOST_IDLE else PooledConnection.close)(line)
        return reply

    def ask_many(self, requests: Sequence[bytes], timeout: float, *, follow: bool = True) -> list[Any]:
        """Send requests in one write and return their replies, the last one within ``timeout`` seconds. ``follow``: a server
        that was demoted since we connected is a failed connection.

        Raises:
            Failure: the connection failed.
        """
        at = now()
        end = at + timeout
        line, reused = self._choose(self._pop(), at, end)
        try:
            _send(line, b"".join(requests), end)
            replies = _read(line, None, len(requests), end)
            for reply in replies if reused and follow else ():
                if type(reply) is ServerError and is_outdated(reply):
                    raise Demoted(reply)
        except Exception as failure:
            raise self._lost(line, failure, reused=reused) from failure
        except BaseException:
            line.drop()
            raise
        self.push(line, at)
        return replies

    def push(self, line: PooledConnection, at: float) -> None:
        """Give a connection back that was used at this moment."""
        line.rested = at + IDLE_CHECK_AFTER
        (self._idle.append if len(self._idle) < MOST_IDLE else PooledConnection.close)(line)

    def close(self) -> None:
        for line in self._take_all():
            line.close()

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's: close our copies of them without shutdown or close_notify."""
        for line in self._take_all():
            close_copy(line.sock)
        self._begin_trimming()

    def _choose(
        self, line: PooledConnection | None, at: float, end: float | None = None
    ) -> tuple[PooledConnection, bool]:
        """This one, another idle one, or a new one; and whether it was idle."""
        self._close_idle(lambda other: at >= other.end or self._doubtful(other))
        while line is not None:
            if line.pid == getpid():  # else a fork didn't run Python's hooks
                if at < line.end and (at < line.rested or not self._dead(line)):
                    return line, True
                line.close()
            line = self._pop()
        return self._connect(end), False

    def _pop(self) -> PooledConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _dead(self, line: PooledConnection) -> bool:
        return self._doubtful(line) or spoke(line.sock, line.patience)

    def _doubtful(self, line: PooledConnection) -> bool:
        """A request went unanswered since it was used, so the other end of this one may be gone as well."""
        return line.rested < self._suspicion.since

    def _close_idle(self, doomed: Callable[[PooledConnection], bool]) -> None:
        for line in self._idle.copy():
            if doomed(line) and line.pid == getpid():
                try:
                    self._idle.remove(line)
                except ValueError:  # another thread took it
                    continue
                line.close()

    def _connect(self, end: float | None = None) -> PooledConnection:
        patching.check()
        connection = self._make()
        try:
            line = PooledConnection(connection, connect(connection, end), self._max_age)
            self._lines.add(line)
            self._trim_later()
            return line
        except Exception as failure:
            drop(connection)
            raise Failure(failure, sent=False, on_reused_connection=False) from failure
        except BaseException:
            drop(connection)
            raise

    def _lost(self, line: PooledConnection, failure: Exception, *, reused: bool) -> Failure:
        line.drop()
        if isinstance(failure, Demoted):
            self._close_older(line)
            return Failure(failure.refusal, sent=True, on_reused_connection=reused)
        if isinstance(failure, BlockingIOError):  # there was no room to send
            failure = TimeoutError(f"it has read nothing for {line.timeout:g} s")
        on_reused_connection = reused and not isinstance(failure, (TimeoutError, ProtocolError))
        if on_reused_connection:
            self.close()
        elif isinstance(failure, TimeoutError):
            self._suspicion.since = now()
        return Failure(failure, sent=True, on_reused_connection=on_reused_connection)

    def _close_older(self, line: PooledConnection) -> None:
        """Those that lead where this one did."""
        self._close_idle(lambda other: other.born <= line.born)

    # What a rush leaves behind lies at the bottom of the stack, and is never taken again

    def _begin_trimming(self) -> None:
        self._lines: weakref.WeakSet[PooledConnection] = weakref.WeakSet()
        self._trims = False

    def _trim_later(self) -> None:
        if self._trims or len(self._lines) < 2:
            return
        ref = weakref.ref(self)

        def ring() -> None:
            wire = ref()
            if wire is not None:
                wire._trim()

        self._trims = True
        try:
            alarms.ring(now() + OLD, ring)
        except LockBackendError:  # no thread to be had
            self._trims = False

    def _trim(self) -> None:
        """Close what has lain idle for long, but for the one that is taken next."""
        self._trims = False
        old, kept = now() - OLD, self._idle[-1:]
        self._close_idle(lambda line: line.rested < old and line not in kept)
        self._trim_later()

    def _take_all(self) -> Iterator[PooledConnection]:
        """Take out what is there now, one by one: other threads go on pushing and popping meanwhile."""
        for _ in range(len(self._idle)):
            try:
                yield self._idle.pop(0)
            except IndexError:  # another thread took the last one
                return


def _send_rest(line: PooledConnection, data: bytes, began: float) -> None:
    """A server that reads a little now and then would take it for ever."""
    end = line.until(began)
    if end is None:
        line.sock.sendall(data)
    else:
        _send(line, data, end)
        line.sock.settimeout(line.patience)


def _send(line: PooledConnection, data: bytes, end: float) -> None:
    left = memoryview(data)
    while left:
        _hurry(line, end)
        left = left[line.sock.send(left) :]


def _read(line: PooledConnection, data: bytes | None, count: int, end: float | None) -> list[Any]:
    """So many replies, of which these are the first bytes, by ``end`` of our clock. Its usual patience is given back."""
    reader = Reader()
    replies: list[Any] = []
    hurried = data is None
    while True:
        if data is not None:
            if not data:
                raise ConnectionResetError("the server closed the connection")
            replies += reader.feed(data)
            if len(replies) > count or (len(replies) == count and reader.replying):
                raise ProtocolError(MORE)
            if len(replies) == count and reader.idle:
                break
        if end is not None:
            _hurry(line, end)
            hurried = True
        data = line.recv(RECV_BUFFER)
    if hurried:
        line.sock.settimeout(line.patience)
    return replies


def _wait(line: PooledConnection, since: float) -> bytes:
    """What comes from a socket that was looked at in vain."""
    assert line.timeout is not None  # noqa: S101 - else it would have waited for ever
    while now() < since + line.timeout:
        try:
            data: bytes = line.recv(RECV_BUFFER)
        except BlockingIOError:
            continue
        return data
    raise TimeoutError(f"silent for {line.timeout:g} s")


def _hurry(line: PooledConnection, end: float) -> None:
    left = end - now()
    if left <= 0:
        raise TimeoutError("no answer in time")
    line.sock.settimeout(left)
