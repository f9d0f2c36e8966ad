"""Opens connections with redis-py. No other module uses redis-py's internals.

redis-py resolves the address, starts TLS, logs in and negotiates the protocol. After that, this package uses the socket
or transport directly: redis-py's command layer, pool and parsers cost more time than the round trip, and don't report
which request got no reply. The connection object stays referenced, because its finalizer closes the socket.
"""

from __future__ import annotations

import ssl
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

import redis
import redis.asyncio
from redis._parsers import _AsyncRESP2Parser, _RESP2Parser
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import PythonRespSerializer
from redis.retry import Retry

from ...core.clock import system_now as now
from .resp import SURPLUS_DATA, ProtocolError, Reader
from .server_errors import unknown_option
from .sockets import read_available, set_abortive_close

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    ConnectionMakers = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]


"".encode("idna")  # caches the codec, which the first connection would import: see scripts.py

MAX_HANDSHAKE_BYTES: Final = 2**20
"""The number of bytes that a server may send while a connection is opened. It usually sends a few hundred."""


class Failure(Exception):
    """A connection failed before the reply arrived.

    Attributes:
        cause: the exception.
        sent: the server may have received the request.
        on_reused_connection: the connection was used before, so a new one may succeed.
    """

    def __init__(self, cause: Exception, *, sent: bool, on_reused_connection: bool) -> None:
        super().__init__(str(cause).rstrip(".") or type(cause).__name__)
        self.cause = cause
        self.sent = sent
        self.on_reused_connection = on_reused_connection


class Locator(Protocol):
    """Finds the server to connect to."""

    def locate(self, deadline: float) -> tuple[str, int]:
        """Return its host and port, before ``deadline`` on the package's clock."""

    def alocate(self, deadline: float) -> Awaitable[tuple[str, int]]:
        """Return its host and port, before ``deadline`` on the package's clock."""


def connection_makers(url: str, options: dict[str, Any], locator: Locator | None = None) -> ConnectionMakers:
    """Return three functions that make a connection to a URL with redis-py's keyword options: a synchronous one, an
    asynchronous one, and a synchronous one with RESP2, where Pub/Sub messages arrive as replies.

    Args:
        url: the URL.
        options: redis-py's keyword options.
        locator: finds the host and port instead of those in the URL, each time that a connection is opened.

    Raises:
        ValueError, TypeError: the URL or an option is unknown to redis-py.
    """
    settings = {"retry_on_timeout": False, "health_check_interval": 0, "decode_responses": False}
    pool = redis.ConnectionPool.from_url(url, **options | settings, retry=Retry(NoBackoff(), 0))
    apool = redis.asyncio.ConnectionPool.from_url(url, **options | settings, retry=AsyncRetry(NoBackoff(), 0))
    if issubclass(pool.connection_class, redis.SSLConnection):
        for kwargs in pool.connection_kwargs, apool.connection_kwargs:
            _verify_host(kwargs)
    try:
        first = pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        raise unknown_option(error, pool.connection_class) from None
    except redis.DataError as error:  # such as a login together with a credential_provider
        raise ValueError(f"OPTIONS and LOCATION conflict: {error}") from None
    for name in pool.connection_kwargs.keys() & {"socket_timeout", "socket_connect_timeout"}:
        validate_seconds(pool.connection_kwargs[name], name)
    connection_class = _with_deadline(pool.connection_class, locator)
    aconnection_class = _located(apool.connection_class, locator) if locator is not None else apool.connection_class
    kwargs = _without_maintenance_notices(pool.connection_kwargs)
    akwargs = _without_maintenance_notices(apool.connection_kwargs)
    if getattr(first, "driver_info", None) is not None:  # redis-py would look up its version for each connection
        kwargs["driver_info"] = akwargs["driver_info"] = first.driver_info
    # Handshakes use redis-py's own parsers, because hiredis's don't expose surplus bytes that they have read
    kwargs["parser_class"], akwargs["parser_class"] = _RESP2Parser, _AsyncRESP2Parser

    def make(**overrides: Any) -> Any:
        connection: Any = connection_class(**kwargs | overrides)
        # They use redis-py's own packer, because hiredis's crashes the process when a signal handler raises inside it
        connection._command_packer = PythonRespSerializer(connection._buffer_cutoff, connection.encoder.encode)
        return connection

    return make, lambda: aconnection_class(**akwargs), lambda: make(protocol=2)


def _verify_host(kwargs: dict[str, Any]) -> None:
    """Require that the certificate names the host. Before version 6 redis-py accepts a certificate of the same
    authority for any host by default."""
    unverified = kwargs.get("ssl_cert_reqs", "required") in {None, "none", ssl.CERT_NONE}
    kwargs.setdefault("ssl_check_hostname", not unverified)


def validate_replicas(number: object) -> int:
    """Return the option ``replicas``.

    Raises:
        ValueError: not a whole number from 0 on.
    """
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"the option replicas is a whole number from 0 on, not {number!r}")
    return number


def validate_seconds(value: object, option: str) -> float:
    """Return a number of seconds unchanged.

    Raises:
        ValueError: not a positive, finite number. None isn't allowed, because a silent server would block for ever.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise ValueError(f"the option {option} is a number of seconds above 0, such as 2.0, not {value!r}")
    return value


def _without_maintenance_notices(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those for a server's maintenance notices. Only redis-py's command layer handles these
    notices, and it isn't used here."""
    return {name: value for name, value in kwargs.items() if "maint_notifications" not in name}


# Threads


def connect(connection: Any, deadline: float | None = None) -> Any:
    """Open a connection and return its socket, on which no data is pending.

    Args:
        deadline: when the handshake must be finished, on the package's clock; by default ``connect_time_limit`` from
            now. Without it a server that sends single bytes could delay the handshake for ever.

    Raises:
        TimeoutError, OSError: the connection couldn't be opened in time.
        ProtocolError: the server sent more than the replies of the handshake.
    """
    if deadline is None and (limit := connect_time_limit(connection)) is not None:
        deadline = now() + limit
    connection.deadline = deadline
    try:
        connection.connect()
    finally:
        connection.deadline = None
        if isinstance(connection._sock, _DeadlineSocket):
            connection._sock = connection._sock.sock
    sock: Any = connection._sock
    set_abortive_close(sock)
    buffer = getattr(connection._parser, "_buffer", None)
    early = read_available(sock) if buffer is None else buffer._buffer.read() + read_available(sock)
    sock.settimeout(connection.socket_timeout)
    _refuse_early_replies(early)
    return sock


def connect_time_limit(connection: Any) -> float | None:
    """Return the seconds in which a connection must be opened, encrypted and logged in; None is unlimited."""
    if connection.socket_timeout is None:
        return None
    connect_timeout: float | None = connection.socket_connect_timeout
    longest: float = max(connect_timeout or 0.0, connection.socket_timeout)
    return longest


def _with_deadline(connection_class: Any, locator: Locator | None) -> Any:
    """Return a subclass that opens its connections before ``deadline``, if it is set."""

    class DeadlineConnection(connection_class):  # type: ignore[misc]
        deadline: float | None = None

        def connect(self) -> None:
            if locator is not None:
                self.host, self.port = locator.locate(self.deadline or now() + (connect_time_limit(self) or inf))
            super().connect()

        @property
        def socket_connect_timeout(self) -> float | None:
            """Seconds for one address of the host, which may have several."""
            timeout: float | None = self._socket_connect_timeout
            left = None if self.deadline is None else max(self.deadline - now(), 0.001)
            return min((seconds for seconds in (timeout, left) if seconds is not None), default=None)

        @socket_connect_timeout.setter
        def socket_connect_timeout(self, seconds: float | None) -> None:
            self._socket_connect_timeout = seconds

        def _connect(self) -> Any:
            sock = super()._connect()
            return sock if self.deadline is None else _DeadlineSocket(sock, self.deadline)

        def _wrap_socket_with_ssl(self, sock: Any) -> Any:
            if self.deadline is None:
                return super()._wrap_socket_with_ssl(sock)
            recv_timeout = sock.gettimeout()
            sock.settimeout(max(self.deadline - now(), 0.001))  # for the whole TLS handshake
            wrapped = super()._wrap_socket_with_ssl(sock)
            wrapped.settimeout(recv_timeout)
            return wrapped

    return DeadlineConnection


class _DeadlineSocket:
    """A socket during a handshake: its calls raise TimeoutError after ``deadline``, and ProtocolError after too many
    bytes."""

    def __init__(self, sock: Any, deadline: float) -> None:
        self.sock = sock
        self._deadline = deadline
        self._recv_timeout: float | None = sock.gettimeout()
        self._bytes_left = MAX_HANDSHAKE_BYTES

    def _with_time_left(self) -> Any:
        left = self._deadline - now()
        if left <= 0:
            raise TimeoutError("no connection in time")
        self.sock.settimeout(left if self._recv_timeout is None else min(left, self._recv_timeout))
        return self.sock

    def recv(self, *args: Any) -> bytes:
        data: bytes = self._with_time_left().recv(*args)
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise ProtocolError(f"the replies to a handshake have more than {MAX_HANDSHAKE_BYTES} bytes")
        return data

    def sendall(self, data: bytes) -> None:
        self._with_time_left().sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def drop(connection: redis.Connection) -> None:
    """Close a connection and discard unsent bytes."""
    sock: Any = connection._sock
    connection._sock = None
    if sock is not None:
        sock.close()
    connection.disconnect()


def socket_of(connection: redis.Connection) -> Any:
    """Return the socket of a connection of redis-py."""
    return connection._sock


# Loops


def _located(connection_class: Any, locator: Locator) -> Any:
    """Return a subclass that asks the locator for its server. The caller limits the time that this takes."""

    class LocatedConnection(connection_class):  # type: ignore[misc]
        async def connect(self) -> None:
            self.host, self.port = await locator.alocate(now() + (connect_time_limit(self) or inf))
            await super().connect()

    return LocatedConnection


async def aconnect(connection: redis.asyncio.Connection, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
    """Open a connection and set ``protocol`` as the protocol of its transport.

    Raises:
        OSError, ProtocolError: the connection couldn't be opened, or the server sent more than the replies of the
            handshake.
    """
    await connection.connect()
    writer, reader = connection._writer, connection._reader
    if writer is None or reader is None:
        raise ConnectionError("the connection was closed")
    transport: Any = writer.transport
    transport.pause_reading()  # uvloop looks at the kind of protocol when reading starts
    if reader.at_eof() or reader.exception() is not None:
        raise ConnectionError("the server closed the connection")
    early = bytes(reader._buffer)  # type: ignore[attr-defined]
    _refuse_early_replies(early)
    set_abortive_close(transport.get_extra_info("socket"))
    transport.set_protocol(protocol)
    transport.resume_reading()
    return transport  # type: ignore[no-any-return]


def adrop(connection: redis.asyncio.Connection) -> None:
    """Abort the transport. The references are removed first, because the finalizers of the writer and the connection
    would warn about an open transport."""
    writer = connection._writer
    connection._reader = connection._writer = None
    if writer is not None:
        try:
            writer.transport.abort()
        except RuntimeError:
            pass  # the loop is closed; the garbage collector closes the socket


def asocket_of(connection: redis.asyncio.Connection) -> Any:
    """Return the socket of an asynchronous connection of redis-py, or None before it is connected."""
    return connection._writer.get_extra_info("socket") if connection._writer is not None else None


def _refuse_early_replies(data: bytes) -> None:
    """Check the bytes that arrived after the handshake and before the first request.

    Raises:
        ProtocolError: they aren't complete RESP3 pushes.
    """
    reader = Reader()
    if data and (reader.feed(data) or not reader.idle):
        raise ProtocolError(SURPLUS_DATA)
