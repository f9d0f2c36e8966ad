"""The only place where a time that a user gave is checked. [F2]"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf, nan

import pytest

from django_redis_locks.core.durations import lease_ms, patience

OTHER_NUMBERS = [Decimal(5), Decimal(-1), Fraction(5), Fraction(-1), 5j, -1 + 0j]
NO_TIME = [None, True, False, "5", "", b"5", [], {}, (), *OTHER_NUMBERS, object(), nan, inf, -inf, 10**400]
NEGATIVE = [-2, -1.5, -0.001, -(10**400), timedelta(seconds=-1), timedelta(seconds=-5), timedelta.min]


class TestLease:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (30, 30_000),
            (0.5, 500),
            (0.01, 10),
            (timedelta(milliseconds=10), 10),
            (timedelta(minutes=2), 120_000),
            (1.0001, 1001),
            (0.1 + 0.2, 301),
            (10 * 365 * 86400, 315_360_000_000),
        ],
    )
    def test_milliseconds(self, value: float | timedelta, expected: int) -> None:
        """Seconds become milliseconds, rounded up: a lease is never shorter than asked for."""
        assert lease_ms(value) == expected
        assert type(lease_ms(value)) is int

    @pytest.mark.parametrize("value", [*NO_TIME, *NEGATIVE, -1, -1.0, 0, 0.0, -0.0, timedelta(0), 0.009, 315_360_001])
    def test_refused(self, value: object) -> None:
        """[F2] No lease is nothing, negative, for ever, not a number, a bool, a text, or out of its bounds."""
        with pytest.raises(ValueError, match=r"^EXPIRE must be "):
            lease_ms(value, "EXPIRE")  # type: ignore[arg-type]


class TestPatience:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [(0, 0.0), (-0.0, 0.0), (5, 5.0), (0.25, 0.25), (timedelta(seconds=3), 3.0), (timedelta(0), 0.0), (1e9, 1e9)],
    )
    def test_seconds(self, value: float | timedelta, expected: float) -> None:
        """Seconds stay what they are; 0 is one attempt."""
        assert patience(value) == expected

    @pytest.mark.parametrize("value", [-1, -1.0])
    def test_for_ever(self, value: float) -> None:
        """[F2] -1 waits for ever."""
        assert patience(value) == inf

    @pytest.mark.parametrize("value", [*NO_TIME, *NEGATIVE])
    def test_refused(self, value: object) -> None:
        """[F2] Other negatives, NaN, infinity, bool, text and None aren't a wait."""
        with pytest.raises(ValueError, match=r"^timeout must be "):
            patience(value, "timeout")  # type: ignore[arg-type]

    def test_infinity_is_spelled_minus_one(self) -> None:
        """[F2] The message for infinity says how to wait for ever."""
        with pytest.raises(ValueError, match=r"wait must be finite, not inf \(-1 waits for ever\)"):
            patience(inf)
