"""A waiting thread reads the subscribed connection itself, and gives it back to the subscriber's thread."""

from __future__ import annotations

import contextlib
import errno
import itertools
import linecache
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from django_redis_locks.backends.redis import pubsub_reader
from django_redis_locks.backends.redis.pubsub_reader import PubSubReader
from django_redis_locks.backends.redis.resp import pack
from django_redis_locks.core.wait_events import ThreadEvent
from tests.waiting import eventually, in_thread

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="only the subscriber's thread reads")

LONG = 20.0


class Connection:
    """A connection, its reader, and a thread that reads it as the subscriber's does, until the connection is broken."""

    def __init__(self, *, subscriber: bool = True) -> None:
        self.here, self.there = socket.socketpair()
        self.handled: list[tuple[str, int]] = []
        """Each message, and the thread that handled it."""
        self.on_message: Callable[[str], object] = lambda text: None
        self.events: dict[str, ThreadEvent] = {}
        """The events that messages set."""
        self.reader = PubSubReader(self.here, 1.0, self._handle)
        self.broken = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        if subscriber:
            self.thread.start()

    def _handle(self, message: list[bytes]) -> None:
        text = message[0].decode()
        self.handled.append((text, threading.get_ident()))
        self.on_message(text)
        if text in self.events:
            self.events[text].set()

    def _read(self) -> None:
        try:
            while not self.broken.is_set():
                self.reader.read(LONG)
        except Exception:  # noqa: BLE001 - the subscriber reconnects after any
            self.broken.set()

    def send(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader has shut the connection down
            self.there.sendall(pack(text))

    def waits(self) -> bool:
        """Whether a waiting thread reads."""
        assert self.reader._shared is not None
        return self.reader._shared._reader is not None

    def receives(self) -> bool:
        """Whether the subscriber's thread handles a message, or finds the connection broken."""
        self.send("probe")
        eventually(lambda: ("probe", self.thread.ident) in self.handled or self.broken.is_set())
        return True

    def close(self) -> None:
        self.broken.set()
        self.there.close()
        self.thread.join(LONG)
        self.reader.close()
        self.here.close()


@pytest.fixture
def connection() -> Iterator[Connection]:
    connection = Connection()
    yield connection
    connection.close()


def wait(connection: Connection, event: ThreadEvent) -> threading.Thread:
    """Wait for an event in another thread, which reads."""
    thread = threading.Thread(target=connection.reader.wait, args=(event, LONG), daemon=True)
    thread.start()
    eventually(lambda: event.on_set is not None)
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(LONG / 2)
    assert not thread.is_alive()


def raising(failure: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise failure

    return fail


def test_waiting_thread_handles_messages_until_its_event_is_set(connection: Connection) -> None:
    """A message for another waiter doesn't end its wait. Afterwards the subscriber's thread reads again."""
    event = connection.events["mine"] = ThreadEvent()
    thread = wait(connection, event)
    connection.send("another's")
    connection.send("mine")
    ended(thread)
    assert connection.handled == [("another's", thread.ident), ("mine", thread.ident)]
    assert not event.take(), "the wait has reset it"
    assert connection.receives()
    assert connection.handled[-1] == ("probe", connection.thread.ident)


def test_event_that_another_thread_sets_ends_the_wait(connection: Connection) -> None:
    """For example a hand-over within the process, or a timer. It may also be set before the wait."""
    event = ThreadEvent()
    thread = wait(connection, event)
    event.set()
    ended(thread)
    event.set()
    connection.reader.wait(event, LONG)
    assert connection.receives()


def test_wait_without_a_message_ends_after_its_time(connection: Connection) -> None:
    connection.reader.wait(ThreadEvent(), 0.05)
    assert connection.receives()


def test_second_waiting_thread_is_woken_by_the_first(connection: Connection) -> None:
    first, second = ThreadEvent(), ThreadEvent()
    connection.events["for the second"] = second
    reading = wait(connection, first)
    other = threading.Thread(target=connection.reader.wait, args=(second, LONG), daemon=True)
    other.start()
    connection.send("for the second")
    ended(other)
    assert connection.handled == [("for the second", reading.ident)]
    first.set()
    ended(reading)


@pytest.mark.parametrize("data", [b"", b"nonsense\r\n", b"-NOPERM no\r\n"], ids=["closed", "malformed", "an error"])
def test_broken_connection_is_left_to_the_subscriber(connection: Connection, data: bytes) -> None:
    """[L25] It reconnects, and then sets the events of all waiters. Until then the waiter sleeps."""
    event = ThreadEvent()
    thread = wait(connection, event)
    if data:
        connection.there.sendall(data)
    else:
        connection.there.close()
    assert connection.broken.wait(LONG)
    assert thread.is_alive()
    event.set()
    ended(thread)


def test_closed_reader_lets_its_waiter_sleep(connection: Connection) -> None:
    event = ThreadEvent()
    thread = wait(connection, event)
    connection.reader.close()
    eventually(lambda: not connection.waits())
    assert thread.is_alive()
    event.set()
    ended(thread)


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_error_of_the_network_is_left_to_the_subscriber(connection: Connection, number: int) -> None:
    """The waiter sleeps, as after a closed connection."""

    class Unreachable:
        def recv(self, size: int, flags: int) -> bytes:
            raise OSError(number, os.strerror(number))

    assert connection.reader._shared is not None
    connection.reader._shared._sock = Unreachable()
    connection.send("unread")
    connection.reader.wait(ThreadEvent(), 0.05)
    assert connection.broken.wait(LONG)


def test_subscriber_without_free_descriptors_reads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "epoll", raising(OSError(errno.EMFILE, "Too many open files")))
    connection = Connection()
    event = connection.events["mine"] = ThreadEvent()
    connection.send("mine")
    connection.reader.wait(event, LONG)
    assert connection.handled == [("mine", connection.thread.ident)]
    connection.close()


def test_waiter_does_not_wait_for_a_message_to_be_handled(connection: Connection) -> None:
    """It may be a signal handler, in a thread that has the mutex which the subscriber's thread waits for."""
    mutex, handling = threading.Lock(), threading.Event()

    def handle(text: str) -> None:
        handling.set()
        with mutex:
            pass

    connection.on_message = handle
    with mutex:
        connection.send("first")
        assert handling.wait(LONG)
        connection.send("second")
        waiter = threading.Thread(target=connection.reader.wait, args=(ThreadEvent(), 0.05), daemon=True)
        waiter.start()
        ended(waiter)
    assert connection.receives()


def test_forked_child_does_not_handle_the_messages_of_the_parent() -> None:
    """A signal handler may fork while its thread handles a message."""
    connection = Connection(subscriber=False)
    connection.on_message = lambda text: connection.reader.after_fork_in_child()
    connection.there.sendall(pack("first") + pack("second"))
    connection.reader.wait(ThreadEvent(), 0.05)
    assert [text for text, _ in connection.handled] == ["first"]
    connection.thread.start()
    connection.close()


def test_waiter_in_a_forked_child_leaves_the_connection_to_the_parent(connection: Connection) -> None:
    """A signal handler may fork in the middle of a wait."""
    event = ThreadEvent()
    connection.reader.after_fork_in_child()
    thread = threading.Thread(target=connection.reader.wait, args=(event, LONG), daemon=True)
    thread.start()
    event.set()
    ended(thread)


class HandlerFailed(Exception):
    """The exception of a signal handler."""


class Interruption:
    """Raises before the n-th executed line of the reader, except where a ``with`` releases a mutex (its second visit): no
    signal is handled there."""

    def __init__(self, number: int) -> None:
        self.lines_left = number
        self._visited: set[tuple[FrameType, int]] = set()

    def trace(self, frame: FrameType, kind: str, arg: object) -> Any:
        file, number = frame.f_code.co_filename, frame.f_lineno
        if file != pubsub_reader.__file__:
            return None
        again = (frame, number) in self._visited and "with " in linecache.getline(file, number)
        if kind == "line" and not again:
            self._visited.add((frame, number))
            self.lines_left -= 1
            if self.lines_left == -1:
                raise HandlerFailed
        return self.trace


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="newer Pythons trace lines at which no signal is handled")
def test_exception_at_any_line_leaves_the_messages_to_the_subscriber() -> None:
    for number in itertools.count():
        connection, event, interruption = Connection(subscriber=False), ThreadEvent(), Interruption(number)
        connection.events["mine"] = event
        connection.send("mine")
        try:
            sys.settrace(interruption.trace)
            connection.reader.wait(event, 0.05)
        except HandlerFailed:
            pass
        finally:
            sys.settrace(None)
        assert not connection.waits()
        connection.thread.start()
        assert connection.receives()
        connection.close()
        if interruption.lines_left >= 0:
            assert number > 30, "too few lines were executed"
            return


def test_signal_handler_that_waits_gets_its_message(connection: Connection) -> None:
    """It interrupts the thread that reads. The subscriber's thread reads meanwhile."""
    outer, inner = ThreadEvent(), ThreadEvent()
    inner_waits = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        inner_waits.set()
        connection.reader.wait(inner, LONG)

    def story() -> None:
        eventually(lambda: outer.on_set is not None)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert inner_waits.wait(LONG)
        connection.send("inner")
        eventually(lambda: connection.handled)
        outer.set()

    connection.events["inner"] = inner
    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        other = threading.Thread(target=story)
        other.start()
        connection.reader.wait(outer, LONG)
        other.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert in_thread(connection.receives)


def test_messages_are_handled_once_and_in_order(connection: Connection) -> None:
    """While waiters come and go, and the subscriber's thread reads in between."""
    events = [ThreadEvent(), ThreadEvent()]
    connection.on_message = lambda text: events[int(text) % 2].set()
    stop = threading.Event()

    def come_and_go(event: ThreadEvent) -> None:
        while not stop.is_set():
            connection.reader.wait(event, 0.001)

    threads = [threading.Thread(target=come_and_go, args=(event,)) for event in events]
    for thread in threads:
        thread.start()
    for number in range(2000):
        connection.send(str(number))
    eventually(lambda: len(connection.handled) == 2000)
    stop.set()
    for thread in threads:
        ended(thread)
    assert [text for text, _ in connection.handled] == [str(number) for number in range(2000)]
