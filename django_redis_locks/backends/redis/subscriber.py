"""The inbox of this process: one connection that hears of every lock that its waiters wait for, and of the forced release of
those that it holds.

A script that answers "busy" registers the inbox's name, and a script that frees something publishes to the name that
has waited longest. So only an inbox whose subscription is confirmed has a name to register, and whenever a connection
was lost every waiter asks once, since what was published meanwhile is lost too.

The thread ends when the process has neither waited nor held anything for a while, and begins again with the next waiter.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from base64 import urlsafe_b64encode
from collections import deque
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from ...core.background_thread import to_its_end
from ...core.clock import system_now as now
from ...core.keys import ALL
from ..base import Inbox
from .idle import lifetime
from .redispy import connect, drop, socket_of
from .resp import Reader, ServerError, pack
from .sockets import close_inherited, interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import redis

    from ..base import Listener

_log = logging.getLogger("django_redis_locks.backend")

PING = pack("PING")


class RedisSubscriber(Inbox):
    def __init__(self, make: Callable[[], redis.Connection], listener: Listener, where: str, max_age: float) -> None:
        self._make = make
        self._listener = listener
        self._where = where
        self._max_age = max_age
        self._connection: redis.Connection | None = None
        self._warned = False
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_inherited(socket_of(connection))
        self._pid = os.getpid()
        self._id = urlsafe_b64encode(os.urandom(9)).decode()
        self._mutex = threading.RLock()
        self._wanted: set[str] = set()
        self._heard: dict[str, str] = {}
        self._thens: list[tuple[str, Callable[[], object]]] = []
        self._thread: threading.Thread | None = None
        self._refused_until = self._next_reconnect = 0.0
        self._reconnects = 0
        self._pause = self._listener.tuning.first_retry

    def channel_name(self, channel: str) -> str:
        return self._heard.get(channel, "")

    def open(self, channel: str, then: Callable[[], object]) -> None:
        with self._mutex:
            if self._heard.get(channel) or now() < self._refused_until:
                then()
                return
            self._thens.append((channel, then))
            if channel not in self._wanted:
                self._wanted.add(channel)
                self._interrupt()  # and subscribe to all of them anew
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=to_its_end, args=(self._work,), name="django-redis-locks inbox", daemon=True)
        try:
            self._thread = thread
            thread.start()
        except BaseException as error:
            self._thread = None
            self._answer()
            if not isinstance(error, RuntimeError):  # no thread to be had: waiters ask now and then
                raise

    def close(self) -> None:
        with self._mutex:
            self._thread = None
            self._heard = {}
            self._interrupt()
        self._answer()

    def reconnect(self) -> None:
        """Subscribe on another connection, at most once a second: that of now may lead to a demoted master."""
        with self._mutex:
            if now() >= self._next_reconnect:
                self._next_reconnect = now() + self._listener.tuning.longest_retry
                self._reconnects += 1
                self._interrupt()

    def _interrupt(self) -> None:
        if self._connection is not None:
            interrupt(socket_of(self._connection))

    def _answer(self, channels: Collection[str] | None = None) -> None:
        """Those who wait for these channels, or for any."""
        with self._mutex:
            ready = [each for each in self._thens if channels is None or each[0] in channels]
            self._thens = [each for each in self._thens if each not in ready]
        for _, then in ready:
            then()

    # The thread.

    def _mine(self) -> bool:
        return self._thread is threading.current_thread()

    def _work(self) -> None:
        self._pause = self._listener.tuning.first_retry
        while self._mine():
            wanted = len(self._wanted)
            try:
                self._listen()
            except (ServerError, ResponseError) as refusal:
                self._refuse(refusal)
            except Exception as failure:  # noqa: BLE001 - whatever it is, waiters ask now and then until it is over
                if len(self._wanted) > wanted:  # interrupted, for another channel
                    continue
                if self._mine():
                    self._answer()
                _log.info("The inbox at %s was lost: %s", self._where, failure)
                if self._mine():
                    time.sleep(self._pause)
                    self._pause = min(2 * self._pause, self._listener.tuning.longest_retry)
            with self._mutex:
                if self._mine() and not self._thens and not self._listener.waiting():
                    self._thread = None

    def _refuse(self, refusal: Exception) -> None:
        with self._mutex:
            self._refused_until = now() + self._listener.tuning.subscriber_refused
            self._thread = None
        self._answer()
        if not self._warned:
            self._warned = True
            _log.warning(
                "Waiters ask %s every %g s instead of being woken, since it doesn't let us listen: %s. "
                'Allow the channels "&<KEY_PREFIX>:*"',
                self._where,
                self._listener.tuning.max_poll_interval,
                refusal,
            )

    def _listen(self) -> None:
        """Subscribe, and hear until nobody has waited for a while or other channels are wanted."""
        connection, reconnects = self._make(), self._reconnects
        try:
            ear = PubSubReader(connect(connection), self._listener.tuning.subscribe_timeout)
            with self._mutex:
                if not self._mine():
                    return
                self._connection = connection
                names = {channel: channel + self._id for channel in self._wanted}
            subscribed = [*names.values(), *(channel + ALL for channel in names)]
            ear.say(pack("SUBSCRIBE", *subscribed))
            end = now() + self._listener.tuning.subscribe_timeout
            for _ in subscribed:
                if ear.next(end - now()) is None:
                    raise TimeoutError("no answer to SUBSCRIBE")
            with self._mutex:
                if not self._mine() or self._reconnects != reconnects:
                    return
                self._heard = names
            self._pause = self._listener.tuning.first_retry
            self._listener.on_reconnect()
            self._answer(names)
            self._hear(ear, names)
        finally:
            with self._mutex:
                if self._connection is connection:
                    self._connection = None
                    self._heard = {}
            drop(connection)

    def _hear(self, ear: PubSubReader, names: dict[str, str]) -> None:
        silent = False
        used = now()
        end = used + lifetime(self._max_age)
        while self._mine() and names.keys() >= self._wanted:
            heard = ear.next(self._listener.tuning.max_poll_interval)
            if heard is not None:
                silent, used = False, now()
                if heard[0] == b"message":
                    number, _, lock = heard[2].decode().partition(" ")
                    self._listener.told(number, lock)
            elif silent:
                raise TimeoutError("no answer to PING")
            elif now() > end:  # so that a changed password or address reaches this one too
                return
            elif self._listener.waiting():
                used = now()
                ear.say(PING)
                silent = True
            elif now() - used > self._listener.tuning.subscriber_idle:
                return


class PubSubReader:
    """A socket on which a server tells what it wants, and answers now and then."""

    def __init__(self, sock: Any, timeout: float) -> None:
        self._sock = sock
        self._timeout = timeout
        self._reader = Reader()
        self._heard: deque[Any] = deque()

    def say(self, request: bytes) -> None:
        self._sock.settimeout(self._timeout)
        self._sock.sendall(request)

    def next(self, seconds: float) -> Any:
        """What was said next; None if nothing was said to its end for so long.

        Raises:
            Refusal: the server refuses what we said last.
        """
        end = now() + seconds
        while not self._heard:
            left = end - now()
            if left <= 0:
                return None
            self._sock.settimeout(left)
            try:
                data = self._sock.recv(8192)
            except TimeoutError:
                return None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._heard.extend(self._reader.feed(data))
        heard = self._heard.popleft()
        if type(heard) is ServerError:
            raise heard
        return heard
