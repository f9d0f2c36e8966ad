"""Reads the subscribed connection of this process: in the subscriber's thread, or in a thread that waits for a lock.

To be woken by another thread takes a waiting thread longer than any other step of a hand-over. So the first waiting
thread *takes the connection over*: it handles the messages itself until its event is set. The subscriber's thread isn't
woken for that: it sleeps in an epoll, in which the waiting thread disables the socket, and enables it again when it
leaves. Pings and reconnections stay with the subscriber's thread. So do all messages on a system without epoll, and on
a socket that isn't a plain one (TLS, gevent).
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from ...core.clock import system_now as now
from ...core.commands import PARSE_ERRORS
from .resp import ProtocolError, Reader, ServerError
from .sockets import interrupt, use_kernel_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.wait_events import ThreadEvent

_BUFFER: Final = 8192
_CONNECTION_FAILURES: Final = (ConnectionError, ProtocolError, ServerError, *PARSE_ERRORS)
"""What a broken connection or a malformed message raises. Other exceptions come from signal handlers."""

_LONGEST_POLL: Final = 3600.0
"""The longest sleep in seconds. Operating systems limit timeouts."""


class PubSubReader:
    """Receives the replies and messages of a subscribed connection.

    Args:
        sock: the socket.
        timeout: seconds in which a request must be sent.
        handle: called with each reply or message, in the order of their arrival, one at a time.
    """

    def __init__(self, sock: Any, timeout: float, handle: Callable[[Any], object]) -> None:
        self._sock = sock
        self._timeout = timeout
        self._handle = handle
        self._parser = Reader()
        self.received = 0
        """The number of messages so far."""
        self._error: ServerError | None = None  # what the server returned to any thread, for the subscriber's thread
        self._shared = _share(sock, timeout)

    @property
    def sends_anywhere(self) -> bool:
        """Whether any thread may call ``send``."""
        return self._shared is not None

    def send(self, request: bytes) -> None:
        """Send a request. Called by the subscriber's thread."""
        if self._shared is None:
            self._sock.settimeout(self._timeout)
        self._sock.sendall(request)

    def read(self, seconds: float) -> bool:
        """Handle the next messages. Called by the subscriber's thread.

        Returns:
            False if none is complete after this many seconds, or other threads have handled all.

        Raises:
            ServerError: the server returned an error.
            OSError, ProtocolError: the connection is broken.
        """
        before, deadline = self.received, now() + seconds
        while self.received == before and (left := deadline - now()) > 0:
            if self._shared is None:
                self._sock.settimeout(left)
                try:
                    self._parse(self._sock.recv(_BUFFER))
                except TimeoutError:
                    break
            elif self._shared.epoll.poll(left):
                with self._shared.mutex:
                    self._parse(self._shared.receive())
        return self.received != before

    def wait(self, event: ThreadEvent, seconds: float) -> None:
        """Sleep until an event is set, at most for this many seconds, then reset it. Until then handle messages, unless
        another thread does."""
        shared = self._shared
        if shared is None:
            event.wait(seconds)
            return
        deadline = now() + seconds
        try:
            done = shared.take_over(event) and self._read_until(event, deadline, shared)
            shared.give_back(event)
        except BaseException:  # a signal handler may raise anywhere
            shared.give_back(event)
            raise
        if not done:
            event.wait(max(0.0, deadline - now()))

    def close(self) -> None:
        """Stop reading. The socket may be closed afterwards."""
        if self._shared is not None:
            self._shared.close()

    def after_fork_in_child(self) -> None:
        """Leave the socket to the parent, and the messages that the forking thread has received."""
        if self._shared is not None:
            self._shared.closed = True
            self._shared.epoll.close()

    def _read_until(self, event: ThreadEvent, deadline: float, shared: _SharedSocket) -> bool:
        """Handle messages until the event is set or the time is over. Return False if the connection is broken, or the
        subscriber's thread handles messages."""
        while True:
            event.on_set = shared.wake_up.set  # before the check: the event may be set at any moment
            if event.take() or (left := deadline - now()) <= 0:
                return True
            readable = shared.poll(left)
            event.on_set = None
            if shared.closed or (readable and not self._receive_safely(shared)):
                return False

    def _receive_safely(self, shared: _SharedSocket) -> bool:
        """Handle messages in a waiting thread. Return False if the connection is broken. Then, and if a signal handler
        raises, a message may be lost: the subscriber's thread reconnects, so that all waiters send a request.

        Also return False if the subscriber's thread handles messages. This thread must not wait for it, because a signal
        handler may have interrupted this thread while it had a mutex that the other thread waits for.
        """
        try:
            if not shared.mutex.acquire(blocking=False):
                return False
            self._parse(shared.receive())
            shared.mutex.release()
        except BaseException as failure:
            shared.release_mutex()
            interrupt(self._sock)
            if not isinstance(failure, _CONNECTION_FAILURES):
                raise
            return False
        return True

    def _parse(self, data: bytes | None) -> None:
        """Handle the messages in these bytes, of which there are none if another thread was faster."""
        if self._error is not None:
            raise self._error
        if data is None:
            return
        if not data:
            raise ConnectionResetError("the server closed the connection")
        for message in self._parser.feed(data):
            if type(message) is ServerError:
                self._error = message
                raise message
            if self._shared is not None and self._shared.closed:
                raise ConnectionAbortedError("the connection was closed")
            self.received += 1
            self._handle(message)


def _share(sock: Any, timeout: float) -> _SharedSocket | None:
    """Return a socket that waiting threads can read, too. None if this system doesn't support that, or refuses another
    descriptor."""
    if use_kernel_timeout(sock, timeout) is None and hasattr(select, "epoll") and hasattr(os, "eventfd"):
        try:
            return _SharedSocket(sock)
        except OSError:
            pass
    return None


class _SharedSocket:
    """A socket that the subscriber's thread reads, unless a waiting thread has taken it over.

    Attributes:
        mutex: held while messages are received and handled. It is reentrant, because a signal handler may wait for a
            lock in the thread that has it.
    """

    def __init__(self, sock: Any) -> None:
        self.mutex = threading.RLock()
        self._descriptor_mutex = threading.RLock()  # held while the descriptor is used, never while another is acquired
        self.closed = False
        self.wake_up = _WakeUp()
        self.epoll = select.epoll()
        self._sock = sock
        self._fd = sock.fileno()
        self.epoll.register(self._fd, select.EPOLLIN)
        self._reader: tuple[ThreadEvent, int] | None = None  # the waiter that reads, and its thread
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._poll.register(self.wake_up.fd, select.POLLIN)

    def take_over(self, event: ThreadEvent) -> bool:
        """Let the waiter of an event read instead of the subscriber's thread. Return False if another waiter does."""
        thread = get_ident()
        if not self.closed:
            with self._descriptor_mutex:
                if not self.closed:
                    if self._reader is None:
                        self._reader = event, thread
                        self.epoll.modify(self._fd, 0)  # wakes the subscriber's thread only for a broken connection
                        return True
                    if self._reader[1] == thread:  # a signal handler waits, and has interrupted the reader
                        self.epoll.modify(self._fd, select.EPOLLIN)
        return False

    def give_back(self, event: ThreadEvent) -> None:
        """Let the subscriber's thread read, if the waiter of this event was to. May be called twice."""
        event.on_set = None
        if self._reader is not None and self._reader[0] is event:
            self._enable()
            self._reader = None

    def poll(self, seconds: float) -> bool:
        """Wait in the reader until the socket is readable, or the reader's event is set. Return whether the socket is
        readable."""
        readable = False
        for fd, _ in self._poll.poll(1000 * min(seconds, _LONGEST_POLL)):
            if fd == self._fd:
                readable = True
            elif not self.closed:  # a forked child shares the parent's
                self.wake_up.clear()
        return readable

    def receive(self) -> bytes | None:
        """Return the bytes that have arrived, b"" at the end of the connection, or None if another thread was faster.

        Raises:
            ConnectionError: the connection is broken.
        """
        try:
            with self._descriptor_mutex:
                if self.closed:
                    raise ConnectionAbortedError("the connection was closed")
                return self._sock.recv(_BUFFER, socket.MSG_DONTWAIT)  # type: ignore[no-any-return]
        except BlockingIOError:
            return None
        except OSError as failure:
            if failure.errno is None:  # that above, or one of a signal handler
                raise
            raise ConnectionAbortedError(f"the connection is broken: {failure}") from failure

    def release_mutex(self) -> None:
        """Release the mutex, if this thread has it."""
        try:
            self.mutex.release()
        except RuntimeError:
            pass

    def close(self) -> None:
        """Stop reading."""
        with self._descriptor_mutex:
            self.closed = True
        self.wake_up.set()

    def _enable(self) -> None:
        """Wake the subscriber's thread whenever the socket is readable."""
        if not self.closed:
            with self._descriptor_mutex:
                if not self.closed:
                    self.epoll.modify(self._fd, select.EPOLLIN)


class _WakeUp:
    """Wakes a thread that sleeps in ``poll``. The descriptor is closed with the last reference, so no thread uses it
    afterwards."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self.fd).atexit = False

    def set(self) -> None:
        """Wake the thread, now or at its next ``poll``."""
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Sleep again at the next ``poll``."""
        os.eventfd_read(self.fd)
