"""Checks and converts durations that users pass in. No other module does.

They are seconds (int or float) or a ``timedelta``; leases become milliseconds, waits stay seconds.
"""

from __future__ import annotations

from datetime import timedelta
from math import ceil, inf, isfinite
from typing import TypeAlias

from .tuning import LONGEST_LEASE, SHORTEST_LEASE

Duration: TypeAlias = float | timedelta


def lease_ms(value: Duration, what: str = "expire") -> int:
    """Return a lease in milliseconds, rounded up.

    Raises:
        ValueError: not a number of seconds, below 10 ms or above ten years.
    """
    seconds = _seconds(value, what)
    if not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
        raise ValueError(f"{what} must be between {SHORTEST_LEASE} seconds and ten years, not {value!r}")
    return ceil(seconds * 1000)


def wait_seconds(value: Duration, what: str = "wait") -> float:
    """Return a wait in seconds; infinity for -1.

    Raises:
        ValueError: not a number of seconds, or negative and not -1.
    """
    if isinstance(value, int | float) and value == -1:
        return inf
    seconds = _seconds(value, what)
    if seconds < 0:
        raise ValueError(f"{what} must be 0 or more seconds, or -1 to wait for ever, not {value!r}")
    return seconds


def _seconds(value: Duration, what: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be seconds or a timedelta, not {value!r}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = inf
    if not isfinite(seconds):
        raise ValueError(
            f"{what} must be finite, not {value!r}"
            + (" (-1 waits for ever)" if value == inf and what != "expire" else "")
        )
    return seconds
