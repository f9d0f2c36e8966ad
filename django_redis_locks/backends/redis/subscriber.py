"""The Pub/Sub subscriber of this process: one connection that receives the messages for its waiters, and those about
forced releases of its locks.

A script that finds a lock busy registers the name of the waiter's channel. A script that frees a lock grants it to the
waiter that was registered first, and publishes that to its channel. So ``channel_name`` returns a name only while the
subscription is confirmed. After a reconnect every waiter tries once, because messages may have been lost.

Source: Redisson's locks. Their release publishes to the subscribed waiters, and the fair lock keeps the waiters in a
queue.

The thread ends when the process hasn't waited for a lock or held one for a while. It starts with the next waiter.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from ...core import clock
from ...core.background_thread import run_to_end
from ...core.clock import system_now as now
from ...core.keys import BROADCAST
from ..base import Subscriber
from .idle import lifetime
from .pubsub_reader import PubSubReader
from .redispy import connect, drop, socket_of
from .resp import ServerError, pack
from .sockets import close_inherited, interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import redis

    from ...core.wait_events import ThreadEvent
    from ..base import MessageHandler

_log = logging.getLogger("django_redis_locks.backend")

PING = pack("PING")


def new_id() -> str:
    """Return a random name for the channels of a process."""
    return urlsafe_b64encode(os.urandom(9)).decode()


class RedisSubscriber(Subscriber):
    """Subscribes to the channels of this process on a thread of its own, and reconnects until it is closed. If another
    server takes over soon after a failure (``fails_over``), the pauses between the attempts are shorter."""

    def __init__(
        self,
        make: Callable[[], redis.Connection],
        handler: MessageHandler,
        location: str,
        max_age: float,
        *,
        fails_over: bool = False,
    ) -> None:
        self._make = make
        self._fails_over = fails_over
        self._handler = handler
        self._location = location
        self._max_age = max_age
        self._connection: redis.Connection | None = None
        self._reader: PubSubReader | None = None
        self._warned = False
        self._problem = ""
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_inherited(socket_of(connection))
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.after_fork_in_child()
        self._pid = os.getpid()
        self._id = new_id()
        self._mutex = threading.RLock()
        self._channels: set[str] = set()
        self._subscribed: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._callbacks: list[tuple[str, Callable[[], object]]] = []
        self._thread: threading.Thread | None = None
        self._refused_until = self._next_reconnect = 0.0
        self._reconnects = 0
        self._retry_delay = self._handler.tuning.min_retry_delay

    def channel_name(self, channel: str) -> str:
        return self._subscribed.get(channel, "")

    def open(self, channel: str, callback: Callable[[], object]) -> None:
        with self._mutex:
            if self._subscribed.get(channel) or now() < self._refused_until:
                callback()
                return
            self._callbacks.append((channel, callback))
            if channel not in self._channels:
                self._channels.add(channel)
                self._subscribe_to(channel)
            if self._thread is None:
                self._start()

    def _subscribe_to(self, channel: str) -> None:
        """Subscribe to another channel: the thread subscribes to all of them on a new connection."""
        self._interrupt()

    def wait(self, event: ThreadEvent, seconds: float, channel: str) -> None:
        reader = self._reader
        if reader is None or clock.installed():
            event.wait(seconds)
        else:
            reader.wait(event, seconds)

    def _start(self) -> None:
        thread = threading.Thread(
            target=run_to_end, args=(self._run,), name="django-redis-locks subscriber", daemon=True
        )
        try:
            self._thread = thread
            thread.start()
        except BaseException as error:
            self._thread = None
            self._run_callbacks()
            if not isinstance(error, RuntimeError):  # RuntimeError: no thread can be started, so waiters poll
                raise

    def close(self) -> None:
        with self._mutex:
            self._thread = None
            self._subscribed = {}
            self._interrupt()
        self._run_callbacks()

    def reconnect(self) -> None:
        """Subscribe on a new connection, at most once a second, because the current server may be a demoted master."""
        with self._mutex:
            if now() >= self._next_reconnect:
                self._next_reconnect = now() + self._handler.tuning.max_retry_delay
                self._reconnects += 1
                self._interrupt()

    def _interrupt(self) -> None:
        if self._connection is not None:
            interrupt(socket_of(self._connection))

    def _run_callbacks(self, channels: Collection[str] | None = None) -> None:
        """Call and remove the callbacks of these channels; by default those of all channels."""
        with self._mutex:
            ready = [entry for entry in self._callbacks if channels is None or entry[0] in channels]
            self._callbacks = [entry for entry in self._callbacks if entry not in ready]
        for _, callback in ready:
            callback()

    # The thread

    def _is_current_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        self._retry_delay = self._handler.tuning.min_retry_delay
        while self._is_current_thread():
            channels_before = len(self._channels)
            try:
                self._subscribe()
            except (ServerError, ResponseError) as error:
                self._on_refused(error)
            except Exception as failure:  # noqa: BLE001 - after any error waiters poll until a subscription succeeds
                if len(self._channels) > channels_before:  # interrupted by open(), for a new channel
                    continue
                if self._is_current_thread():
                    self._run_callbacks()
                if (problem := str(failure)) != self._problem:  # once, however often it is repeated
                    self._problem = problem
                    _log.info("The subscription at %s was lost: %s", self._location, problem)
                self._on_lost()
                self._pause()
            with self._mutex:
                if self._is_current_thread() and (
                    not self._channels or (not self._callbacks and not self._handler.expects_messages())
                ):
                    self._thread = None

    def _on_lost(self) -> None:
        """Called after the connection was lost, before the next one."""

    def _pause(self) -> None:
        """Wait before the next connection."""
        if self._is_current_thread():
            tuning = self._handler.tuning
            time.sleep(self._retry_delay)
            longest = tuning.max_failover_delay if self._fails_over else tuning.max_retry_delay
            self._retry_delay = min(2 * self._retry_delay, longest)

    def _on_refused(self, error: Exception) -> None:
        with self._mutex:
            self._refused_until = now() + self._handler.tuning.subscribe_retry_delay
            self._thread = None
        self._run_callbacks()
        if not self._warned:
            self._warned = True
            _log.warning(
                "Waiters poll %s every %g s instead of being woken, because it denies the subscription: %s. "
                'Allow the channels "&<KEY_PREFIX>:*"',
                self._location,
                self._handler.tuning.max_poll_interval,
                error,
            )

    def _subscribe(self) -> None:
        """Subscribe and read messages until the subscriber is idle, or another channel is opened."""
        connection, reconnects = self._make(), self._reconnects
        reader: PubSubReader | None = None
        try:
            timeout = self._handler.tuning.subscribe_timeout
            reader = PubSubReader(connect(connection), timeout, self._handle)
            with self._mutex:
                if not self._is_current_thread():
                    return
                self._connection = connection
                names = {channel: channel + self._id for channel in self._channels}
            if not names:
                return
            reader.send(self._subscription(names))
            deadline = now() + timeout
            while reader.received < 2 * len(names):
                if not reader.read(deadline - now()):
                    raise TimeoutError("no answer to SUBSCRIBE")
            with self._mutex:
                if not self._is_current_thread() or self._reconnects != reconnects:
                    return
                self._subscribed, self._reader = dict(names), reader
                self._names = names
            self._retry_delay = self._handler.tuning.min_retry_delay
            self._problem = ""
            self._handler.on_reconnect()
            self._run_callbacks(names)
            self._read_messages(reader, names)
        finally:
            with self._mutex:
                if self._connection is connection:
                    self._connection = self._reader = None
                    self._subscribed = {}
            if reader is not None:
                reader.close()
            drop(connection)

    def _subscription(self, names: dict[str, str]) -> bytes:
        """Return the request that subscribes to channels, given with their full names, and to their broadcasts."""
        return pack("SUBSCRIBE", *names.values(), *(channel + BROADCAST for channel in names))

    def _handle(self, message: Any) -> None:
        if message[0] == b"message":
            word, _, lock = message[2].decode().partition(" ")
            self._handler.on_message(word, lock)

    def _read_messages(self, reader: PubSubReader, names: dict[str, str]) -> None:
        ping_sent = False
        last_used = now()
        deadline = last_used + lifetime(self._max_age)
        received = reader.received
        while self._is_current_thread() and names.keys() >= self._channels:
            reader.read(self._handler.tuning.max_poll_interval)
            if reader.received != received:  # perhaps in a waiting thread
                received, ping_sent, last_used = reader.received, False, now()
            elif ping_sent:
                raise TimeoutError("no answer to PING")
            elif now() > deadline:  # reconnect, so that a changed password or address takes effect
                return
            elif self._handler.expects_messages():
                last_used = now()
                reader.send(PING)
                ping_sent = True
            elif now() - last_used > self._handler.tuning.subscriber_idle_timeout:
                return
