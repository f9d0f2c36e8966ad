"""Validation of times given by the caller. [F2]"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf, nan

import pytest

from django_redis_locks.core.durations import lease_ms, wait_seconds

OTHER_NUMBERS = [Decimal(5), Decimal(-1), Fraction(5), Fraction(-1), 5j, -1 + 0j]
NO_TIME = [None, True, False, "5", "", b"5", [], {}, (), *OTHER_NUMBERS, object(), nan, inf, -inf, 10**400]
NEGATIVE = [-2, -1.5, -0.001, -(10**400), timedelta(seconds=-1), timedelta(seconds=-5), timedelta.min]
NO_LEASE = [-1, -1.0, 0, 0.0, -0.0, timedelta(0), 0.009, 315_360_001]


def test_lease_in_milliseconds_is_rounded_up() -> None:
    """A lease is never shorter than asked for."""
    for value, expected in {
        30: 30_000,
        0.5: 500,
        0.01: 10,
        timedelta(milliseconds=10): 10,
        timedelta(minutes=2): 120_000,
        1.0001: 1001,
        0.1 + 0.2: 301,
        10 * 365 * 86400: 315_360_000_000,
    }.items():
        assert lease_ms(value) == expected
        assert type(lease_ms(value)) is int


def test_lease_that_is_no_duration_or_out_of_bounds_raises_ValueError() -> None:
    """[F2] None, negative, infinite, not a number, a bool, a string."""
    for value in [*NO_TIME, *NEGATIVE, *NO_LEASE]:
        with pytest.raises(ValueError, match=r"^EXPIRE must be "):
            lease_ms(value, "EXPIRE")  # type: ignore[arg-type]


def test_wait_in_seconds_is_unchanged_and_minus_one_waits_for_ever() -> None:
    """[F2] Numbers and timedeltas."""
    waits = {0: 0.0, 5: 5.0, 0.25: 0.25, timedelta(seconds=3): 3.0, timedelta(0): 0.0, 1e9: 1e9, -1: inf}
    assert {value: wait_seconds(value) for value in waits} == waits
    assert wait_seconds(-1.0) == inf


def test_wait_that_is_no_duration_raises_ValueError() -> None:
    """[F2] The message for infinity says how to wait for ever."""
    for value in [*NO_TIME, *NEGATIVE]:
        with pytest.raises(ValueError, match=r"^timeout must be "):
            wait_seconds(value, "timeout")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"wait must be 0 or more seconds, or -1 for ever, not inf"):
        wait_seconds(inf)
