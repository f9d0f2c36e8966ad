"""A read-write lock among processes: a writer that waits before readers, and is killed or stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
import redis

from tests.chaos.jobs import READ, WRITE, acquire, release
from tests.chaos.workers import AT_ONCE, CAP, PATIENCE, Worker, connected, wait_until_registered
from tests.waiting import eventually

Start = Callable[..., Worker]

KEYS = [f"lock:{{0}}:{kind}:rw" for kind in "kewh"]

WAITERS = KEYS[2]


class Line(NamedTuple):
    """A process that reads, and behind it one that wants to write, and one that wants to read."""

    reader: Worker
    writer: Worker
    behind: Worker
    writing: Future[Any]
    reading: Future[Any]


@pytest.fixture
def make_line(workers: Start, direct: redis.Redis) -> Callable[..., Line]:
    def make_line(poll_of_writer: float) -> Line:
        reader, writer = workers("reader"), workers("writer", max_poll_interval=poll_of_writer)
        behind = workers("behind", max_poll_interval=0.5)
        assert reader.call(acquire, READ)
        writing = writer.start(acquire, WRITE)
        wait_until_registered(direct, 1, WAITERS)
        reading = behind.start(acquire, READ)
        wait_until_registered(direct, 2, WAITERS)
        return Line(reader, writer, behind, writing, reading)

    return make_line


def test_killed_writer_keeps_no_reader_waiting(make_line: Callable[..., Line], direct: redis.Redis) -> None:
    """[L33] [L34] The server sees that its process has no connection, long before it was silent for too long."""
    line = make_line(CAP)
    line.writer.kill()
    eventually(lambda: not connected(direct, "writer"))
    assert line.reading.result(AT_ONCE)
    line.behind.call(release, READ)
    line.reader.call(release, READ)
    assert direct.exists(*KEYS) == 0


def test_stopped_writer_keeps_readers_waiting_until_it_was_silent(
    make_line: Callable[..., Line], direct: redis.Redis
) -> None:
    """[L33] [L34] For twice its poll interval. When it runs again, it is registered again, and stops new readers."""
    line = make_line(1.0)
    line.writer.signal(signal.SIGSTOP)
    try:
        assert line.reading.result(AT_ONCE)
    finally:
        line.writer.signal(signal.SIGCONT)
    wait_until_registered(direct, 1, WAITERS)
    line.behind.call(release, READ)
    assert line.behind.call(acquire, READ, timeout=0) is None
    line.reader.call(release, READ)
    assert line.writing.result(PATIENCE)
    line.writer.call(release, WRITE)
    assert direct.exists(*KEYS) == 0
