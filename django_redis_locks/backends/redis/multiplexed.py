"""One connection that all tasks of an event loop share: pipelined requests, with replies matched in order.

Each request has a slot (a future). A cancelled request keeps its slot, because later replies would otherwise be
assigned to the wrong callers. The requests of one loop iteration are sent in one write. A slow reply isn't a failure:
only when no reply arrives for ``socket_timeout`` seconds, the connection is closed and all its requests fail.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from os import getpid
from typing import TYPE_CHECKING, Any

from ...core.clock import system_now as now
from ...core.errors import LockBackendError
from . import timers
from .idle import IDLE_CHECK_AFTER, lifetime
from .redispy import Failure, adrop
from .resp import RECV_BUFFER, SURPLUS_DATA, ProtocolError, Reader, ServerError
from .server_errors import is_demotion

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis


class MultiplexedConnection(asyncio.BufferedProtocol):
    """The protocol of a connection shared by the tasks of one loop.

    Attributes:
        open: requests may be sent now.
        paused: the transport's write buffer is full.
        retired: no more requests may be sent, and it is closed after its last outstanding reply.
        idle_check_at: the time from which an idle connection must be checked before use.
        replace_at: the time from which it isn't used for new requests.
        cause: why it was closed; None while it is open.
    """

    def __init__(
        self,
        redispy_connection: redis.asyncio.Connection,
        loop: asyncio.AbstractEventLoop,
        max_age: float,
        on_closed: Callable[[MultiplexedConnection], object],
    ) -> None:
        self.redispy_connection = redispy_connection
        self.pid = getpid()
        self.open = self.paused = self.retired = False
        self.cause: Exception | None = None
        self.replace_at = now() + lifetime(max_age)
        self.idle_check_at = 0.0
        self._loop = loop
        self._future = loop.create_future
        self._on_closed = on_closed
        self._timeout: float | None = redispy_connection.socket_timeout
        self._transport: Any = None
        self._slots: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._flush_scheduled = False
        self._silent_since = 0.0
        self._has_replied = False
        """Whether a reply has arrived. If so, a request that fails when the connection is closed may succeed on a new
        connection."""
        self._timer_set = self._timeout is None
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._reader = Reader()
        self._buffer = memoryview(bytearray(RECV_BUFFER))

    def attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.open = not self.paused and self.cause is None
        self.idle_check_at = now() + IDLE_CHECK_AFTER

    @property
    def busy(self) -> bool:
        return bool(self._slots)

    def execute(self, request: bytes) -> asyncio.Future[Any]:
        """Send a request.

        Returns:
            A future. Its result is the reply, which may be a ``ServerError``; its exception is a ``Failure``.
        """
        slots = self._slots
        slot = self._future()
        try:
            first = not slots
            slots.append(slot)
            if first:
                self._silent_since = now()
            if first and not self._flush_scheduled:
                self._transport.write(request)
            else:
                self._unsent.append(request)
                if not self._flush_scheduled:
                    self._schedule_flush()
            if not self._timer_set:
                self._set_timer()
        except BaseException as error:  # a signal handler raised; the request may be in one of the two queues only
            slot.cancel()
            self.close(error)
            raise
        return slot

    def _schedule_flush(self) -> None:
        self._flush_scheduled = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        try:
            self._flush_scheduled = False
            if self._unsent:
                unsent, self._unsent = self._unsent, []
                self._transport.write(b"".join(unsent))
        except BaseException as error:
            self.close(error)
            raise

    async def drained(self) -> None:
        """Wait until the write buffer has room or the connection is closed."""
        while self.paused and self.cause is None:
            waiter = self._future()
            self._drain_waiters.append(waiter)
            await waiter

    def retire(self) -> None:
        """Accept no more requests, and close the connection when no caller waits for a reply."""
        self.open, self.retired = False, True
        if all(slot.done() for slot in self._slots):
            self.close(ConnectionError("the connection was replaced"))

    def close(self, cause: BaseException) -> None:
        """Close the connection at once; outstanding requests fail with ``cause``."""
        if self.cause is not None:
            return
        self.open = False
        why = cause if isinstance(cause, Exception) else ConnectionError("a request was interrupted")
        self.cause = why
        slots, self._slots = self._slots, deque()
        adrop(self.redispy_connection)
        self._on_closed(self)
        if self._loop.is_closed():
            return
        on_reused_connection = self._has_replied and not isinstance(why, (TimeoutError, ProtocolError))
        for slot in slots:
            if not slot.done():
                slot.set_exception(Failure(why, sent=True, on_reused_connection=on_reused_connection))
        self._notify_drained()

    def _notify_drained(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Called by the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        slots = self._slots
        try:
            replies = self._reader.feed(bytes(self._buffer[:size]))
            if len(replies) >= len(slots) and (len(replies) > len(slots) or self._reader.replying):
                raise ProtocolError(SURPLUS_DATA)  # replies can't be assigned to requests any more
            for reply in replies:
                if reply.__class__ is ServerError and is_demotion(reply):
                    self._reject(slots[0], reply)
                elif not slots[0].done():
                    slots[0].set_result(reply)
                slots.popleft()  # last: if a signal handler raises before, close() still fails this slot
            if len(replies) > 1 and not self._flush_scheduled:
                self._schedule_flush()  # it runs after their callers, whose next requests then share a write
            if replies:
                self._has_replied = self._has_replied or self.replace_at > 0.0
                self._silent_since = at = now()
                self.idle_check_at = at + IDLE_CHECK_AFTER
                if self.retired:
                    self.retire()
        except Exception as error:  # noqa: BLE001 - after any error later replies can't be matched
            self.close(error)
        except BaseException as error:
            self.close(error)
            raise

    def _reject(self, slot: asyncio.Future[Any], error: ServerError) -> None:
        """Fail a request with a demotion error. The next request opens a new connection, which may reach another
        server. If this connection had replied before, the failed request is retried on the new one."""
        on_reused_connection, self.replace_at = self._has_replied, 0.0
        if not slot.done():
            slot.set_exception(Failure(error, sent=True, on_reused_connection=on_reused_connection))

    def eof_received(self) -> None:
        self.close(ConnectionResetError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(exc or ConnectionResetError("the connection was lost"))

    def pause_writing(self) -> None:
        self.paused, self.open = True, False

    def resume_writing(self) -> None:
        self.paused = False
        self.open = self.cause is None and not self.retired
        self._notify_drained()

    # The timeout

    def _set_timer(self) -> None:
        assert self._timeout is not None  # noqa: S101 - without a timeout no timer is set
        at = self._silent_since + self._timeout
        ref = weakref.ref(self)  # a pending timer must not keep the connection and its loop in memory

        def on_timer() -> None:
            this = ref()
            if this is not None:
                this._call_soon(this._check_timeout)

        self._timer_set = True
        try:
            timers.call_at(at, on_timer)
        except LockBackendError:  # no thread can be started
            self._loop.call_later(at - now(), self._check_timeout)

    def _call_soon(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # the loop is closed: no caller waits

    def _check_timeout(self) -> None:
        """Handle the timer: set it again if a reply has arrived since it was set. So a request doesn't need a timer of
        its own."""
        assert self._timeout is not None  # noqa: S101
        if self.cause is not None:
            return
        if not self._slots:
            self._timer_set = False  # until the next request
        elif now() < self._silent_since + self._timeout:
            self._set_timer()
        else:  # the loop may have been blocked, so let it read pending data first
            self._loop.call_soon(self._loop.call_soon, self._check_silence, self._silent_since)

    def _check_silence(self, silent_since: float) -> None:
        if self.cause is None and self._slots and self._silent_since == silent_since:
            self.close(TimeoutError(f"silent for {self._timeout:g} s"))
        else:
            self._check_timeout()
