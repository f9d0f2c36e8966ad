"""Validates and converts durations from users; no other module does.

A duration is a number of seconds or a ``timedelta``. Leases are converted to milliseconds, waits to seconds.
"""

from __future__ import annotations

from datetime import timedelta
from math import ceil, inf
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


def wait_seconds(value: Duration, what: str = "wait", *, least: float = 0.0, for_ever: bool = True) -> float:
    """Return a duration in seconds; infinity for -1.

    Args:
        value: what the user passed.
        what: the name of the argument or setting, for the message.
        least: the least value, in seconds.
        for_ever: whether -1 is allowed.

    Raises:
        ValueError: not a number of seconds, or below ``least`` and not -1.
    """
    if for_ever and isinstance(value, int | float) and value == -1:
        return inf
    seconds = _seconds(value, what)
    if not least <= seconds < inf:
        or_ever = ", or -1 for ever" if for_ever else ""
        raise ValueError(f"{what} must be {least:g} or more seconds{or_ever}, not {value!r}")
    return seconds


def hold_seconds(value: Duration, what: str = "max_hold") -> float:
    """Return the seconds for which a lease is renewed at most; infinity for -1.

    Raises:
        ValueError: neither -1 nor a duration from 10 ms to ten years.
    """
    if isinstance(value, int | float) and value == -1:
        return inf
    return lease_ms(value, what) / 1000


def _seconds(value: Duration, what: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be seconds or a timedelta, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        return inf
