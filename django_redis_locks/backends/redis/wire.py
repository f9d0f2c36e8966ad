"""All contact with redis-py's internals, but for what ``bounded`` does to a connection.

redis-py makes, authenticates and encrypts a connection; its command layer, pool and retries are left out, because they
cost more than the round trip and hide which request went unanswered.

The idle connections of a server are a stack (``idle``); each is taken for one exchange. Anything that interrupts an exchange
between the first byte sent and the last byte read, be it a lost connection or a KeyboardInterrupt, costs the connection:
an unread reply would answer the next caller. Its socket is closed with SO_LINGER 0, so that bytes that haven't left yet
never will.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import PythonRespSerializer
from redis.retry import Retry

from ...core import clock
from ...core.owners import running_loop
from .bounded import bind, connect, unbind
from .idle import Line, Stack
from .refusals import REFUSALS, unknown_option
from .sockets import close_copy, linger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence


class Failure(Exception):
    """An exchange failed; ``sent`` tells whether the server may have got it, ``stale`` whether a fresh connection may
    do better."""

    def __init__(self, cause: BaseException, *, sent: bool, stale: bool) -> None:
        super().__init__(str(cause).rstrip(".") or type(cause).__name__)
        self.cause = cause
        self.sent = sent
        self.stale = stale


class Wire:
    """Connections to one server for threads."""

    def __init__(self, make: Callable[[], redis.Connection], max_age: float) -> None:
        self._make = make
        self._stack: Stack[redis.Connection] = Stack(max_age)

    def exchange(self, requests: Sequence[tuple[Any, ...]], timeout: float | None = None) -> list[Any]:
        """Send requests in one write and return their replies, the last one within ``timeout`` seconds; an error reply
        is returned, not raised.

        Raises:
            Failure: the connection failed.
        """
        packed = [b"".join(map(pack, requests))]
        end = None if timeout is None else clock.now() + timeout
        line, reused = self._stack.pop(redis.Connection.disconnect, _is_closed), True
        if line is None:
            line, reused = self._connect(end), False
        connection = line.connection
        try:
            if end is not None:
                bind(connection, end)
            connection.send_packed_command(packed, check_health=False)
            replies = [_read(connection) for _ in requests]
            if end is not None:
                unbind(connection)
        except Exception as failure:
            drop(connection)
            stale = reused and _closed(failure)
            if stale:
                self.close()
            raise Failure(failure, sent=True, stale=stale) from failure
        except BaseException:
            drop(connection)
            raise
        self._stack.push(line)
        return replies

    def _connect(self, end: float | None) -> Line[redis.Connection]:
        connection = self._make()
        try:
            connect(connection, end)
            linger(connection._sock)
        except Exception as failure:
            drop(connection)
            raise Failure(failure, sent=False, stale=False) from failure
        except BaseException:
            drop(connection)
            raise
        return Line(connection)

    def close(self) -> None:
        for line in self._stack.clear():
            line.connection.disconnect()

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's: close our copies of them without shutdown or close_notify."""
        for line in self._stack.clear():
            close_copy(line.connection._sock)


class AsyncWire:
    """Connections to one server for the tasks of each event loop."""

    def __init__(self, make: Callable[[], redis.asyncio.Connection], max_age: float) -> None:
        self._make = make
        self._max_age = max_age
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Home] = WeakKeyDictionary()

    async def exchange(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As ``Wire.exchange``."""
        packed = b"".join(map(pack, requests))
        home = await self._home()
        line, reused = home.stack.pop(_adrop, _ais_closed), True
        if line is None:
            line, reused = await self._connect(), False
        connection = line.connection
        try:
            _write(connection, packed)
            replies = [await _aread(connection) for _ in requests]
        except Exception as failure:
            _adrop(connection)
            stale = reused and _closed(failure)
            if stale:
                home.clear()
            raise Failure(failure, sent=True, stale=stale) from failure
        except BaseException:
            _adrop(connection)
            raise
        home.push(line)
        return replies

    async def _connect(self) -> Line[redis.asyncio.Connection]:
        connection = self._make()
        before = _cancellations()
        try:
            await connection.connect()
            if _cancellations() > before:  # it was swallowed, see _write
                raise asyncio.CancelledError
            linger(_asocket_of(connection))
        except Exception as failure:
            _adrop(connection)
            raise Failure(failure, sent=False, stale=False) from failure
        except BaseException:
            _adrop(connection)
            raise
        return Line(connection)

    async def _home(self) -> _Home:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - we are in a coroutine
        home = self._homes.get(loop)
        if home is None:
            home = _Home(self._max_age)
            await anext(home.parked)
            self._homes[loop] = home
            self._leave_closed_loops()
        return home

    def _leave_closed_loops(self) -> None:
        """Some are closed before their generators: what is kept for such a loop would keep the loop as well."""
        for ref in self._homes.keyrefs():
            loop = ref()
            home = self._homes.pop(loop, None) if loop is not None and loop.is_closed() else None
            if home is not None:
                home.clear()

    def after_fork_in_child(self) -> None:
        for home in self._homes.values():
            for line in home.stack.clear():
                close_copy(_asocket_of(line.connection))
        self._homes = WeakKeyDictionary()


class _Home:
    """The connections of one loop. They are closed when the loop ends: a generator is parked on it, and whoever runs
    loops properly (``asyncio.run``, asgiref, pytest) closes the generators that are left.

    Others of these may use a lock at their own end, earlier or later: after ours their connections are closed at once.
    """

    def __init__(self, max_age: float) -> None:
        self.stack: Stack[redis.asyncio.Connection] = Stack(max_age)
        self.parked = self._park()
        self.ended = False

    async def _park(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.ended = True
            del self.parked  # it knows the loop, which would live as long as its home
            self.clear()

    def push(self, line: Line[redis.asyncio.Connection]) -> None:
        if self.ended:
            _adrop(line.connection)
        else:
            self.stack.push(line)

    def clear(self) -> None:
        for line in self.stack.clear():
            _adrop(line.connection)


def connection_makers(
    url: str, options: dict[str, Any]
) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """What makes a connection to a URL, with redis-py's keyword options: a synchronous one, an asynchronous one, and one to
    listen on, where messages are replies like others.

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

    def make(**more: Any) -> Any:
        connection: Any = pool.connection_class(**pool.connection_kwargs | more)
        # What a connection says when it begins goes through redis-py's packer, and hiredis's crashes, see pack()
        connection._command_packer = PythonRespSerializer(connection._buffer_cutoff, connection.encoder.encode)
        return connection

    return make, lambda: apool.connection_class(**apool.connection_kwargs), lambda: make(protocol=2)


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
    except REFUSALS as refused:
        return refused.with_traceback(None)  # it would keep its frames, and so the caller's hold, in a cycle


def _cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _write(connection: redis.asyncio.Connection, packed: bytes) -> None:
    """redis-py's own waits, with ``asyncio.wait_for``: in Python 3.11 that swallows a cancellation now and then."""
    writer = connection._writer
    if writer is None:
        raise redis.ConnectionError("the connection was closed")
    writer.write(packed)


async def _aread(connection: redis.asyncio.Connection) -> Any:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except REFUSALS as refused:
        return refused.with_traceback(None)  # it would keep its frames, and so the caller's hold, in a cycle


def _closed(failure: BaseException) -> bool:
    """The other side had closed the connection, as opposed to: it is silent."""
    return not isinstance(failure, redis.TimeoutError | TimeoutError)


def _is_closed(connection: redis.Connection) -> bool:
    """By the other side, while it lay idle. Nobody has asked for what can be read from it."""
    try:
        return bool(connection.can_read(0))
    except Exception:  # noqa: BLE001 - redis-py's, or the operating system's
        return True


def _ais_closed(connection: redis.asyncio.Connection) -> bool:
    reader = connection._reader
    return reader is None or reader.at_eof() or reader.exception() is not None


def drop(connection: redis.Connection) -> None:
    """Close it, and nothing of what wasn't sent will be."""
    sock: Any = connection._sock
    connection._sock = None
    if sock is not None:
        sock.close()
    connection.disconnect()


def _adrop(connection: redis.asyncio.Connection) -> None:
    writer = connection._writer
    connection._reader = connection._writer = None
    if writer is not None:
        try:
            writer.transport.abort()
        except RuntimeError:
            pass  # its loop is closed: the collector closes it


def _asocket_of(connection: redis.asyncio.Connection) -> Any:
    return connection._writer.get_extra_info("socket") if connection._writer is not None else None


def socket_of(connection: redis.Connection) -> Any:
    return connection._sock
