"""Early refresh: decide whether to load a fresh value again before it is stale, so that no caller finds it stale."""

from __future__ import annotations

import math
from random import random

from ..options import XFetch

MAX_NAMES = 1024
"""The number of names of loads whose durations are remembered."""

NEWEST_WEIGHT = 0.2
"""The weight of the newest load in the moving average."""

LATEST_PART = 4
"""With ``XFetch`` a value is loaded in the last quarter of its ttl at the earliest, even if its loader is slow."""


_seconds: dict[str, float] = {}
"""The average duration of successful loads, by name."""


def learn(name: str, seconds: float) -> None:
    """Record the duration of a successful load."""
    known = _seconds.get(name)
    if known is None and len(_seconds) >= MAX_NAMES:
        _seconds.clear()
    _seconds[name] = seconds if known is None else known + NEWEST_WEIGHT * (seconds - known)


def due(early: float | XFetch | None, name: str, fresh_for: float, ttl: float) -> bool:
    """Whether to load a value again that is still fresh.

    For ``XFetch`` see "Optimal Probabilistic Cache Stampede Prevention" (Vattani, Chierichetti, Lowenstein, VLDB 2015).

    Args:
        early: the option of the load.
        name: the label of the load, by which its average duration is known.
        fresh_for: seconds that are left of the value's ttl.
        ttl: that ttl in seconds.
    """
    if early is None:
        return False
    if isinstance(early, XFetch):
        gap = _seconds.get(name, 0.0) * early.beta
        return min(gap * -math.log(1.0 - random()), ttl / LATEST_PART) >= fresh_for  # noqa: S311 - no secret
    return fresh_for <= (1.0 - early) * ttl
