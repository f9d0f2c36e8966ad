"""The connections for asyncio callers: one for each event loop and server.

A connection is closed when its loop ends. A suspended asynchronous generator serves as the shutdown hook:
``asyncio.run``, asgiref and pytest call ``loop.shutdown_asyncgens()``, which closes the generator.
"""

from __future__ import annotations

import asyncio
import weakref
from os import getpid
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...core import forks
from ...core.clock import system_now as now
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from . import timers
from .idle import IDLE_CHECK_AFTER, LastTimeout
from .multiplexed import MultiplexedConnection
from .redispy import Failure, aconnect, adrop, asocket_of, connect_time_limit
from .sockets import close_inherited

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    import redis


class LoopConnections:
    """The connections to one server, one for each event loop."""

    def __init__(
        self, make: Callable[[], redis.asyncio.Connection], max_age: float, last_timeout: LastTimeout | None = None
    ) -> None:
        self._make = make
        self._max_age = max_age
        self._last_timeout = last_timeout or LastTimeout()
        self._forget()

    def _forget(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[LoopConnection]] = WeakKeyDictionary()
        """Keys and values are weak: a loop connection references its loop, and an unused loop must be collected."""
        self._last: tuple[Callable[[], object], LoopConnection | None] = _no_loop, None
        """The loop of the last request, which is often the only one, and its connection."""

    def execute(self, request: bytes) -> Awaitable[Any]:
        """Send one request. The result of the awaitable is the reply, which may be an error reply. Cancelling the
        awaiting task doesn't withdraw the request. Callers have called ``forks.pid()`` before, so that a child has
        dropped its parent's connections.

        Raises:
            Failure: the connection failed.
        """
        return self.begin(request) or self._ask(request)

    def begin(self, request: bytes) -> asyncio.Future[Any] | None:
        """Send one request if the connection of the running loop is open, and return the future of its reply. Otherwise
        return None."""
        loop_ref, loop_connection = self._last
        if loop_connection is not None and loop_ref() is running_loop():
            connection = loop_connection.current
            if connection is not None and connection.open:
                at = now()
                if (
                    at < connection.replace_at
                    and (at < connection.idle_check_at or connection.busy)
                    and connection.pid == forks.known_pid
                ):
                    return connection.execute(request)
        return None

    async def _ask(self, request: bytes) -> Any:
        loop_connection = await self._connection_of_loop()
        connection = await loop_connection.usable()
        return await connection.execute(request)

    async def execute_second(self, first: bytes, request: bytes) -> Any:
        """Send two requests without another in between, and return the reply to the second one.

        Raises:
            Failure: the connection failed.
        """
        connection = await (await self._connection_of_loop()).usable()
        connection.execute(first).add_done_callback(_forget_result)
        return await connection.execute(request)

    async def _connection_of_loop(self) -> LoopConnection:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - a coroutine runs in a loop
        reference = self._by_loop.get(loop)
        loop_connection = reference() if reference is not None else None
        if loop_connection is None:
            loop_connection = LoopConnection(self._make, self._max_age, self._last_timeout)
            await anext(loop_connection.shutdown_hook)
            self._by_loop[loop] = weakref.ref(loop_connection)
            self._drop_closed_loops()
        self._last = weakref.ref(loop), loop_connection
        return loop_connection

    def _drop_closed_loops(self) -> None:
        """Close the connections of loops that were closed without ``shutdown_asyncgens``. They would keep their loops
        in memory."""
        for ref in self._by_loop.keyrefs():
            loop = ref()
            reference = self._by_loop.pop(loop, None) if loop is not None and loop.is_closed() else None
            loop_connection = reference() if reference is not None else None
            if loop_connection is not None:
                loop_connection.close_all()

    def replace_all(self) -> None:
        """Replace each connection before its next request. May be called in any thread."""
        for ref in self._by_loop.keyrefs():
            loop = ref()
            reference = self._by_loop.get(loop) if loop is not None else None
            loop_connection = reference() if reference is not None else None
            connection = loop_connection.current if loop_connection is not None else None
            if connection is not None:
                connection.replace_at = 0.0

    def after_fork_in_child(self) -> None:
        for reference in self._by_loop.values():
            loop_connection = reference()
            if loop_connection is not None:
                loop_connection.abandon_in_child()
        self._forget()


class LoopConnection:
    """The connection of one event loop.

    When a loop ends, its generators are closed in any order, so other generators may use locks after this shutdown hook
    has run. Each of their requests then opens a connection, which is closed after the reply.
    """

    def __init__(self, make: Callable[[], redis.asyncio.Connection], max_age: float, last_timeout: LastTimeout) -> None:
        self._make = make
        self._max_age = max_age
        self._last_timeout = last_timeout
        self.current: MultiplexedConnection | None = None
        self._open_connections: set[MultiplexedConnection] = set()
        """The current connection, and replaced ones that still wait for replies."""
        self._attempt: tuple[asyncio.Task[None], asyncio.Future[MultiplexedConnection | Failure]] | None = None
        self.shutdown_hook = self._run_shutdown_hook()
        self.loop_ended = False

    async def _run_shutdown_hook(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.loop_ended = True
            del self.shutdown_hook  # it references the loop, and would keep it in memory
            self.current = None
            for connection in tuple(self._open_connections):
                connection.retire()

    def close_all(self) -> None:
        """Close all connections of a loop that is closed."""
        for connection in tuple(self._open_connections):
            connection.close(ConnectionError("the loop has ended"))

    async def usable(self) -> MultiplexedConnection:
        """Return a connection that can send a request, opening one if necessary.

        Raises:
            Failure: no connection could be opened.
        """
        while (connection := self._current_if_usable()) is not None:
            if connection.paused:  # the write buffer is full, because the server doesn't read
                await connection.drained()
            elif not connection.busy and now() >= connection.idle_check_at:
                for _ in range(2):  # let the loop read, so that it notices a closed connection
                    await asyncio.sleep(0)
                connection.idle_check_at = now() + IDLE_CHECK_AFTER
            else:
                return connection
        opened = await self._join_attempt()
        if opened.cause is not None:
            raise Failure(opened.cause, sent=False, on_reused_connection=False)
        return opened

    def _current_if_usable(self) -> MultiplexedConnection | None:
        connection = self.current
        if connection is None or connection.cause is not None:
            return None
        if connection.pid != getpid():  # after a fork by C code, which runs no Python hooks
            self.abandon_in_child()
            return None
        if now() >= connection.replace_at or (not connection.busy and connection.idle_check_at < self._last_timeout.at):
            self.current = None
            connection.retire()
            return None
        return connection

    def abandon_in_child(self) -> None:
        """Close the child's copies of the sockets. The transports must not close them, because that would change the
        parent's selector."""
        _parent_connections.extend(self._open_connections)
        for connection in self._open_connections:
            close_inherited(asocket_of(connection.redispy_connection))
        self._open_connections = set()
        self.current = self._attempt = None

    # Connecting: all callers share one attempt. Cancelling a caller doesn't cancel it

    async def _join_attempt(self) -> MultiplexedConnection | Failure:
        attempt = self._attempt
        if attempt is None or attempt[1].done():  # an eager task may be done before it is assigned below
            loop = asyncio.get_running_loop()
            result: asyncio.Future[MultiplexedConnection | Failure] = loop.create_future()
            attempt = self._attempt = loop.create_task(self._run_attempt(loop, result)), result
        return await asyncio.shield(attempt[1])

    async def _run_attempt(
        self, loop: asyncio.AbstractEventLoop, result: asyncio.Future[MultiplexedConnection | Failure]
    ) -> None:
        opened: MultiplexedConnection | Failure = Failure(
            TimeoutError("no connection in time"), sent=False, on_reused_connection=False
        )
        try:
            opened = await self._connect(loop)
        except Exception as error:  # noqa: BLE001 - every waiting caller raises it
            opened = Failure(error, sent=False, on_reused_connection=False)
        finally:
            self._attempt = None
            if not result.done():
                result.set_result(opened)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> MultiplexedConnection:
        redispy_connection = self._make()
        connection = MultiplexedConnection(redispy_connection, loop, self._max_age, self._on_closed)
        self._open_connections.add(connection)
        try:
            _limit_handshake(asyncio.current_task(), redispy_connection)
            connection.attach(await aconnect(redispy_connection, connection))
        except BaseException:
            self._open_connections.discard(connection)
            adrop(redispy_connection)
            raise
        if self.loop_ended:  # the caller sends its request within two iterations of the loop
            loop.call_soon(loop.call_soon, loop.call_soon, connection.retire)
        else:
            self.current = connection
        return connection

    def _on_closed(self, connection: MultiplexedConnection) -> None:
        if isinstance(connection.cause, TimeoutError):
            self._last_timeout.at = now()
        self._open_connections.discard(connection)
        if self.current is connection:
            self.current = None


def _limit_handshake(task: asyncio.Task[Any] | None, redispy_connection: redis.asyncio.Connection) -> None:
    """Cancel a task that opens a connection after ``connect_time_limit`` seconds, also if the server keeps sending
    single bytes or the loop's clock is frozen."""
    limit = connect_time_limit(redispy_connection)
    if limit is None or task is None:
        return
    ref = weakref.ref(task)

    def on_timer() -> None:
        task = ref()
        if task is not None and not task.done():
            try:
                task.get_loop().call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # the loop is closed

    try:
        timers.call_at(now() + limit, on_timer)
    except LockBackendError:
        pass  # no thread can be started: only redis-py's own timeouts apply


def _forget_result(slot: asyncio.Future[Any]) -> None:
    """Mark an exception as retrieved."""
    if not slot.cancelled():
        slot.exception()


def _no_loop() -> None:
    """Stand in for a weak reference to a loop before the first request."""


_parent_connections: list[MultiplexedConnection] = []
"""Connections of the parent process. They stay referenced, because their finalizers in the child would affect the
parent's connections."""
