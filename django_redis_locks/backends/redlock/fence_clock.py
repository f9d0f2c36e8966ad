"""``FenceClock``: makes most fences equal on all members, which saves the round that would make them equal."""

from __future__ import annotations

from typing import Final

from ...core import clock

MARGIN: Final = 1000
"""Microseconds by which a request may take longer to reach a member than that by which its clock was read."""


class FenceClock:
    """The clock of the member that is ahead of the others. A fence is the time of its member, unless it has to exceed a
    larger number: that is this time, a little later than on any member."""

    def __init__(self) -> None:
        self._ahead: int | None = None
        self._latest: list[int] = []

    def begin(self) -> None:
        """Begin to compare the clocks: the members that are asked now know nothing of former ones."""
        self._latest = []

    def note(self, sent: float, micros: int) -> None:
        """Compare a clock with the others.

        Args:
            sent: when it was asked for, on the package's clock.
            micros: what it said, in microseconds.
        """
        self._latest.append(micros - round(1_000_000 * sent))
        self._ahead = max(self._latest)

    def least(self) -> int:
        """Return a number that no member's clock has reached when a request arrives there now; 0 if no clock is known."""
        if self._ahead is None:
            return 0
        return round(1_000_000 * clock.now()) + self._ahead + MARGIN
