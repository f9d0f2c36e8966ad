"""The connections of one server that are in no use just now.

No mutex guards them: each step is one that the list does at once, whatever other threads, a signal handler or the
collector do between two of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

from ...core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

C = TypeVar("C")

RESTED = 0.05
"""Seconds after which an idle connection is looked at before it is used. What the server closed meanwhile isn't written
to: nobody could tell such a request from one whose answer was lost, and a release would take "not mine" for its own
work. Looking costs some microseconds, so a busy connection is spared it."""


class Line(Generic[C]):
    """A connection, and what we know of it."""

    __slots__ = ("born", "connection", "pid", "used")

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.pid = os.getpid()
        self.born = self.used = clock.now()


class Stack(Generic[C]):
    """The idle connections of one server and home; the last one in is the first one out."""

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._idle: list[Line[C]] = []

    def pop(self, close: Callable[[C], None], closed: Callable[[C], bool]) -> Line[C] | None:
        self._close_oldest(close)
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if line.pid != os.getpid():  # a fork that didn't run Python's hooks
                continue
            now = clock.now()
            if now - line.born < self._max_age and (now - line.used < RESTED or not closed(line.connection)):
                return line
            close(line.connection)
        return None

    def _close_oldest(self, close: Callable[[C], None]) -> None:
        """What lies at the bottom since a rush is never taken again, and would stay open for ever."""
        try:
            oldest = self._idle[0]
            if clock.now() - oldest.used > self._max_age and oldest.pid == os.getpid():
                self._idle.remove(oldest)
                close(oldest.connection)
        except (IndexError, ValueError):  # another thread took it
            pass

    def push(self, line: Line[C]) -> None:
        line.used = clock.now()
        self._idle.append(line)

    def clear(self) -> Iterator[Line[C]]:
        """Take out what is there now, one by one: other threads go on pushing and popping meanwhile."""
        for _ in range(len(self._idle)):
            try:
                yield self._idle.pop(0)
            except IndexError:  # another thread took the last one
                return
