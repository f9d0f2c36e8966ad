"""Limits of idle connections: their number, their age, and when they are checked before use."""

from __future__ import annotations

import random
from typing import Final

MAX_IDLE: Final = 64
"""The number of idle connections that the threads of one process keep to one server. Further ones are closed when they
are returned."""

MAX_IDLE_TIME: Final = 60.0
"""Seconds after which an idle connection of threads is closed, unless it is the most recently used one."""

IDLE_CHECK_AFTER: Final = 0.05
"""Seconds after which an idle connection is checked before it is used, so that no request is written to one that the
server has closed: such a request can't be distinguished from one with a lost reply, and a repeated release would report
a loss as its own success. The check takes some microseconds, so a busy connection skips it."""


class LastTimeout:
    """The time of the last request to one server that timed out, shared by the connections of threads and loops.

    After a power cut, or behind a firewall that has dropped their state, connections are dead without a notice. Each of
    them would cost its next request a timeout. After the first timeout all connections that were last used before it
    are therefore closed.

    Attributes:
        at: the time on the package's clock; 0.0 if no request timed out.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0.0


def lifetime(max_age: float) -> float:
    """Return 80 to 100 % of ``max_age`` at random, so that connections opened together aren't replaced together."""
    return max_age * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
