"""All contact with redis-py's internals.

redis-py makes, authenticates and encrypts a connection; its command layer, pool and retries are left out, because they
cost more than the round trip and hide which request went unanswered.

The idle connections of a server are a stack; each is taken for one exchange. Anything that interrupts an exchange
between the first byte sent and the last byte read, be it a lost connection or a KeyboardInterrupt, costs the connection:
an unread reply would answer the next caller. Its socket is closed with SO_LINGER 0, so that bytes that haven't left yet
never will.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from ...core import clock
from ...core.owners import running_loop
from .refusals import unknown_option

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Sequence

C = TypeVar("C")

_DROP = struct.pack("ii", 1, 0)


class Failure(Exception):
    """An exchange failed; ``sent`` tells whether the server may have got it, ``stale`` whether a fresh connection may
    do better."""

    def __init__(self, cause: BaseException, *, sent: bool, stale: bool) -> None:
        super().__init__(str(cause).rstrip(".") or type(cause).__name__)
        self.cause = cause
        self.sent = sent
        self.stale = stale


class _Line(Generic[C]):
    """A connection, and what we know of it."""

    __slots__ = ("born", "connection", "pid", "used")

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.pid = os.getpid()
        self.born = self.used = clock.now()


class _Stack(Generic[C]):
    """The idle connections of one server and home; the last one in is the first one out."""

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._idle: list[_Line[C]] = []

    def pop(self, close: Callable[[C], None]) -> _Line[C] | None:
        self._close_oldest(close)
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if line.pid != os.getpid():  # a fork that didn't run Python's hooks
                continue
            if clock.now() - line.born < self._max_age:
                return line
            close(line.connection)
        return None

    def _close_oldest(self, close: Callable[[C], None]) -> None:
        """What lies at the bottom since a rush is never taken again, and would stay open for ever."""
        try:
            oldest = self._idle[0]
            if clock.now() - oldest.used > self._max_age and oldest.pid == os.getpid():
                self._idle.remove(oldest)
                close(oldest.connection)
        except (IndexError, ValueError):  # another thread took it
            pass

    def push(self, line: _Line[C]) -> None:
        line.used = clock.now()
        self._idle.append(line)

    def clear(self) -> list[_Line[C]]:
        lines, self._idle = self._idle, []
        return lines


class Wire:
    """Connections to one server for threads."""

    def __init__(self, make: Callable[[], redis.Connection], max_age: float) -> None:
        self._make = make
        self._stack: _Stack[redis.Connection] = _Stack(max_age)

    def exchange(self, requests: Sequence[tuple[Any, ...]], timeout: float | None = None) -> list[Any]:
        """Send requests in one write and return their replies; an error reply is returned, not raised.

        Raises:
            Failure: the connection failed.
        """
        packed = [b"".join(map(pack, requests))]
        line, reused = self._stack.pop(_hang_up), True
        if line is None:
            line, reused = self._connect(timeout), False
        connection = line.connection
        try:
            connection.send_packed_command(packed, check_health=False)
            if timeout is not None and not connection.can_read(timeout):
                raise TimeoutError("no answer in time")
            replies = [_read(connection) for _ in requests]
        except Exception as failure:
            _drop(connection)
            stale = reused and _closed(failure)
            if stale:
                self.close()
            raise Failure(failure, sent=True, stale=stale) from failure
        except BaseException:
            _drop(connection)
            raise
        self._stack.push(line)
        return replies

    def _connect(self, timeout: float | None) -> _Line[redis.Connection]:
        connection = self._make()
        usual = connection.socket_timeout
        if timeout is not None and (usual is None or timeout < usual):  # for the handshake too
            connection.socket_timeout = connection.socket_connect_timeout = timeout
        try:
            connection.connect()
            sock: Any = connection._sock
            _linger(sock)
            sock.settimeout(usual)
            connection.socket_timeout = usual
        except Exception as failure:
            _drop(connection)
            raise Failure(failure, sent=False, stale=False) from failure
        except BaseException:
            _drop(connection)
            raise
        return _Line(connection)

    def close(self) -> None:
        for line in self._stack.clear():
            _hang_up(line.connection)

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's: close our copies of them without shutdown or close_notify."""
        for line in self._stack.clear():
            _close_copy(line.connection._sock)


class AsyncWire:
    """Connections to one server for the tasks of each event loop."""

    def __init__(self, make: Callable[[], redis.asyncio.Connection], max_age: float) -> None:
        self._make = make
        self._max_age = max_age
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Home] = WeakKeyDictionary()

    async def exchange(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As ``Wire.exchange``."""
        packed = [b"".join(map(pack, requests))]
        stack = (await self._home()).stack
        line, reused = stack.pop(_adrop), True
        if line is None:
            line, reused = await self._connect(), False
        connection = line.connection
        try:
            await connection.send_packed_command(packed, check_health=False)
            replies = [await _aread(connection) for _ in requests]
        except Exception as failure:
            _adrop(connection)
            stale = reused and _closed(failure)
            if stale:
                for idle in stack.clear():
                    _adrop(idle.connection)
            raise Failure(failure, sent=True, stale=stale) from failure
        except BaseException:
            _adrop(connection)
            raise
        stack.push(line)
        return replies

    async def _connect(self) -> _Line[redis.asyncio.Connection]:
        connection = self._make()
        try:
            await connection.connect()
            _linger(_socket_of(connection))
        except Exception as failure:
            _adrop(connection)
            raise Failure(failure, sent=False, stale=False) from failure
        except BaseException:
            _adrop(connection)
            raise
        return _Line(connection)

    async def _home(self) -> _Home:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - we are in a coroutine
        home = self._homes.get(loop)
        if home is None:
            home = self._homes[loop] = _Home(self._max_age)
            await anext(home.parked)
        return home

    def after_fork_in_child(self) -> None:
        for home in self._homes.values():
            for line in home.stack.clear():
                _close_copy(_socket_of(line.connection))
        self._homes = WeakKeyDictionary()


class _Home:
    """The connections of one loop. They are closed when the loop ends: a generator is parked on it, and whoever runs
    loops properly (``asyncio.run``, asgiref, pytest) closes the generators that are left."""

    def __init__(self, max_age: float) -> None:
        self.stack: _Stack[redis.asyncio.Connection] = _Stack(max_age)
        self.parked = self._park()

    async def _park(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            for line in self.stack.clear():
                _adrop(line.connection)


def connection_makers(url: str, options: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What makes a synchronous and an asynchronous connection to a URL, with redis-py's keyword options.

    Raises:
        ValueError, TypeError: the URL or an option is unknown to redis-py.
    """
    settings = {"retry_on_timeout": False, "health_check_interval": 0, "decode_responses": False}
    pool = redis.ConnectionPool.from_url(url, **options | settings, retry=Retry(NoBackoff(), 0))
    apool = redis.asyncio.ConnectionPool.from_url(url, **options | settings, retry=AsyncRetry(NoBackoff(), 0))
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        raise unknown_option(error, pool.connection_class) from None
    return (
        lambda: pool.connection_class(**pool.connection_kwargs),
        lambda: apool.connection_class(**apool.connection_kwargs),
    )


def pack(request: tuple[str | int, ...]) -> bytes:
    """A request as bytes, by hand: cheaper than redis-py's packer, and hiredis's crashes the process when a signal
    handler raises inside it."""
    text = "".join([f"${len(value)}\r\n{value}\r\n" for value in map(str, request)])
    if text.isascii():
        return f"*{len(request)}\r\n{text}".encode()
    values = [str(value).encode() for value in request]
    return b"*%d\r\n" % len(values) + b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


def _read(connection: redis.Connection) -> Any:
    try:
        return connection.read_response(disconnect_on_error=False)
    except ResponseError as refused:
        return refused


async def _aread(connection: redis.asyncio.Connection) -> Any:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except ResponseError as refused:
        return refused


def _closed(failure: BaseException) -> bool:
    """The other side had closed the connection, as opposed to: it is silent."""
    return not isinstance(failure, redis.TimeoutError | TimeoutError)


def _linger(sock: socket.socket | None) -> None:
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
        except OSError:
            pass  # a unix socket: nothing of it travels any more


def _hang_up(connection: redis.Connection) -> None:
    connection.disconnect()


def _drop(connection: redis.Connection) -> None:
    sock: Any = connection._sock
    connection._sock = None
    if sock is not None:
        sock.close()
    connection.disconnect()


def _adrop(connection: redis.asyncio.Connection) -> None:
    writer = connection._writer
    connection._reader = connection._writer = None
    if writer is not None:
        writer.transport.abort()


def _socket_of(connection: redis.asyncio.Connection) -> socket.socket | None:
    return connection._writer.get_extra_info("socket") if connection._writer is not None else None


def _close_copy(sock: Any) -> None:
    if sock is not None:
        plain = getattr(sock, "_sock", sock)  # asyncio wraps it
        try:
            os.close(plain.detach())
        except OSError:
            pass
