"""Limits of idle connections: their number, their age, and when they are checked before use."""

from __future__ import annotations

import random
from typing import Final

MAX_IDLE: Final = 64
"""The largest number of idle connections to one server for the threads of a process. Further connections are closed
when they are returned to the pool."""

MAX_IDLE_TIME: Final = 60.0
"""Seconds after which an idle connection in the pool is closed, unless it is the most recently used one."""

IDLE_CHECK_AFTER: Final = 0.05
"""Seconds after which an idle connection is checked before use, so that no request is written to a connection that the
server has closed. Such a request can't be distinguished from one whose reply was lost, and a repeated release would
then report a lost lock as released. The check takes a few microseconds, so a busy connection skips it."""


class LastTimeout:
    """The time of the last request to one server that timed out, shared by the connections of threads and loops.

    After a power failure of the server, or behind a firewall that has dropped its state, connections are dead without a
    notice, and the next request on each of them would time out. So after the first timeout all connections that were
    last used before it are closed.

    Attributes:
        at: the time on the package's clock; 0.0 if no request timed out.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0.0


def lifetime(max_age: float) -> float:
    """Return 80 to 100 % of ``max_age`` at random, so that connections opened together aren't replaced together."""
    return max_age * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
