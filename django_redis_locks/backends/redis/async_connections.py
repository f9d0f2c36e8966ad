"""The connection of one server for each event loop.

It is closed when the loop ends: a generator is parked on the loop, and whoever runs loops properly (``asyncio.run``,
asgiref, pytest) closes the generators that are left.
"""

from __future__ import annotations

import asyncio
import weakref
from os import getpid
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...core.clock import system_now as now
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from . import timers as alarms
from .idle import IDLE_CHECK_AFTER, Suspicion
from .multiplexed import MultiplexedConnection
from .redispy import Failure, aconnect, adrop, asocket_of, opened_within
from .sockets import close_copy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    import redis


class LoopConnections:
    """Connections to one server for the tasks of each event loop."""

    def __init__(
        self, make: Callable[[], redis.asyncio.Connection], max_age: float, suspicion: Suspicion | None = None
    ) -> None:
        self._make = make
        self._max_age = max_age
        self._suspicion = suspicion or Suspicion()
        self._forget()

    def _forget(self) -> None:
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[LoopConnection]] = WeakKeyDictionary()
        """A home knows its loop, which reads from its connection: neither keeps the other once the loop was dropped."""
        self._last: tuple[Callable[[], object], LoopConnection | None] = _nowhere, None
        """The loop that asked last, which is often the only one, and its home."""

    def ask(self, request: bytes) -> Awaitable[Any]:
        """As ``Wire.ask``. Who awaits it may be cancelled; the request stays on its way."""
        where, home = self._last
        if home is not None and where() is running_loop():
            stream = home.stream
            if stream is not None and stream.open:
                at = now()
                if at < stream.end and (at < stream.rested or stream.busy) and stream.pid == getpid():
                    return stream.ask(request)
        return self._ask(request)

    async def _ask(self, request: bytes) -> Any:
        home = await self._home()
        stream = await home.connection()
        return await stream.ask(request)

    async def _home(self) -> LoopConnection:
        loop = running_loop()
        assert loop is not None  # noqa: S101 - we are in a coroutine
        known = self._homes.get(loop)
        home = known() if known is not None else None
        if home is None:
            home = LoopConnection(self._make, self._max_age, self._suspicion)
            await anext(home.parked)
            self._homes[loop] = weakref.ref(home)
            self._leave_closed_loops()
        self._last = weakref.ref(loop), home
        return home

    def _leave_closed_loops(self) -> None:
        """Some are closed before their generators: what is kept for such a loop would keep the loop as well."""
        for ref in self._homes.keyrefs():
            loop = ref()
            known = self._homes.pop(loop, None) if loop is not None and loop.is_closed() else None
            home = known() if known is not None else None
            if home is not None:
                home.clear()

    def after_fork_in_child(self) -> None:
        for known in self._homes.values():
            home = known()
            if home is not None:
                home.leave_to_parent()
        self._forget()


class LoopConnection:
    """The connection of one loop.

    Others may use a lock when the loop ends, earlier than ours is closed or later. After it each request has a connection
    of its own, which is closed at once.
    """

    def __init__(self, make: Callable[[], redis.asyncio.Connection], max_age: float, suspicion: Suspicion) -> None:
        self._make = make
        self._max_age = max_age
        self._suspicion = suspicion
        self.stream: MultiplexedConnection | None = None
        self._streams: set[MultiplexedConnection] = set()
        """That one, and those that still have answers to come."""
        self._attempt: tuple[asyncio.Task[None], asyncio.Future[MultiplexedConnection | Failure]] | None = None
        self.parked = self._park()
        self.ended = False

    async def _park(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.ended = True
            del self.parked  # it knows the loop, which would live as long as its home
            self.stream = None
            for stream in tuple(self._streams):
                stream.retire()

    def clear(self) -> None:
        """The loop is closed."""
        for stream in tuple(self._streams):
            stream.close(ConnectionError("the loop has ended"))

    async def connection(self) -> MultiplexedConnection:
        """One that may be asked."""
        while (stream := self._current()) is not None:
            if stream.paused:  # a server that doesn't read isn't written to
                await stream.drained()
            elif not stream.busy and now() >= stream.rested:
                for _ in range(2):  # have the loop read: it may find out that it was closed
                    await asyncio.sleep(0)
                stream.rested = now() + IDLE_CHECK_AFTER
            else:
                return stream
        opened = await self._opened()
        if opened.cause is not None:
            raise Failure(opened.cause, sent=False, on_reused_connection=False)
        return opened

    def _current(self) -> MultiplexedConnection | None:
        stream = self.stream
        if stream is None or stream.cause is not None:
            return None
        if stream.pid != getpid():  # a fork that didn't run Python's hooks
            self.leave_to_parent()
            return None
        if now() >= stream.end or (not stream.busy and stream.rested < self._suspicion.since):
            self.stream = None
            stream.retire()
            return None
        return stream

    def leave_to_parent(self) -> None:
        """Close our copies of its sockets. It mustn't close them itself: it would tell the parent's selector."""
        _parents.extend(self._streams)
        for stream in self._streams:
            close_copy(asocket_of(stream.connection))
        self._streams = set()
        self.stream = self._attempt = None

    # Connecting: one attempt for all who want to, which none of them can cancel

    async def _opened(self) -> MultiplexedConnection | Failure:
        attempt = self._attempt
        if attempt is None or attempt[1].done():  # an eager task may be over before it is noted here
            loop = asyncio.get_running_loop()
            result: asyncio.Future[MultiplexedConnection | Failure] = loop.create_future()
            attempt = self._attempt = loop.create_task(self._open(loop, result)), result
        return await asyncio.shield(attempt[1])

    async def _open(
        self, loop: asyncio.AbstractEventLoop, result: asyncio.Future[MultiplexedConnection | Failure]
    ) -> None:
        opened: MultiplexedConnection | Failure = Failure(
            TimeoutError("no connection in time"), sent=False, on_reused_connection=False
        )
        try:
            opened = await self._make_stream(loop)
        except Exception as error:  # noqa: BLE001 - each of those who wait is told
            opened = Failure(error, sent=False, on_reused_connection=False)
        finally:
            self._attempt = None
            if not result.done():
                result.set_result(opened)

    async def _make_stream(self, loop: asyncio.AbstractEventLoop) -> MultiplexedConnection:
        connection = self._make()
        stream = MultiplexedConnection(connection, loop, self._max_age, self._closed)
        self._streams.add(stream)
        try:
            _cancel_late(asyncio.current_task(), connection)
            stream.begin(await aconnect(connection, stream))
        except BaseException:
            self._streams.discard(stream)
            adrop(connection)
            raise
        if self.ended:  # who wanted it asks in the next turns, unless he is gone
            loop.call_soon(loop.call_soon, loop.call_soon, stream.retire)
        else:
            self.stream = stream
        return stream

    def _closed(self, stream: MultiplexedConnection) -> None:
        if isinstance(stream.cause, TimeoutError):
            self._suspicion.since = now()
        self._streams.discard(stream)
        if self.stream is stream:
            self.stream = None


def _cancel_late(task: asyncio.Task[Any] | None, connection: redis.asyncio.Connection) -> None:
    """A handshake has its end too, whatever the server sends now and then, and while time is frozen."""
    limit = opened_within(connection)
    if limit is None or task is None:
        return
    ref = weakref.ref(task)

    def ring() -> None:
        task = ref()
        if task is not None and not task.done():
            try:
                task.get_loop().call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # the loop is closed

    try:
        alarms.ring(now() + limit, ring)
    except LockBackendError:
        pass  # no thread to be had: redis-py's own timeouts must do


def _nowhere() -> None:
    """No loop, where a weak reference to one is expected."""


_parents: list[MultiplexedConnection] = []
"""Connections that belong to the process we were forked from. Nothing of them must ever be finalized here."""
