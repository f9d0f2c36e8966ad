"""When a value is loaded again although it is still fresh, so that nobody meets the moment when it isn't."""

from __future__ import annotations

import math
from random import random

from ..options import XFetch

MAX_NAMES = 1024
"""So many kinds of loads are remembered."""

NEWEST_WEIGHT = 0.2
"""Of the newest load in the average."""

LATEST_PART = 4
"""A value is never loaded earlier than in the last quarter of its ttl, however slow its loader is."""


_seconds: dict[str, float] = {}
"""By the names of loads, what one takes, averaged over those that went well."""


def learn(name: str, seconds: float) -> None:
    """A load of this name took so long, from the loader's begin to its end."""
    known = _seconds.get(name)
    if known is None and len(_seconds) >= MAX_NAMES:
        _seconds.clear()
    _seconds[name] = seconds if known is None else known + NEWEST_WEIGHT * (seconds - known)


def due(early: float | XFetch | None, name: str, fresh_for: float, ttl: float) -> bool:
    """Whether a value that is fresh for ``fresh_for`` more of its ``ttl`` seconds is to be loaded now."""
    if early is None:
        return False
    if isinstance(early, XFetch):
        gap = _seconds.get(name, 0.0) * early.beta
        return min(gap * -math.log(1.0 - random()), ttl / LATEST_PART) >= fresh_for  # noqa: S311 - no secret
    return fresh_for <= (1.0 - early) * ttl
