"""How many connections may lie idle, for how long, and which of them are used again."""

from __future__ import annotations

import random
from typing import Final

MAX_IDLE: Final = 64
"""Idle connections of threads that one process keeps to one server. A rush of more of them closes the others at its end."""

MAX_IDLE_TIME: Final = 60.0
"""Seconds after which an idle connection of threads is closed, unless it is the only one."""

IDLE_CHECK_AFTER: Final = 0.05
"""Seconds after which an idle connection is looked at before it is used. What the server closed meanwhile isn't written
to: nobody could tell such a request from one whose answer was lost, and a release would take "not mine" for its own
work. Looking costs some microseconds, so a busy connection is spared it."""


class LastTimeout:
    """Of all idle connections to one server, of threads and loops.

    After a power cut, or behind a firewall that has forgotten them, connections are dead and say nothing of it. Each would
    cost its next request a timeout, so the first one that does condemns all that were used before.

    Attributes:
        at: when a request went unanswered last.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0.0


def lifetime(max_age: float) -> float:
    """A little less than the greatest age: connections that were opened at once aren't replaced at once."""
    return max_age * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
