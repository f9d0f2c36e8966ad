"""The only clock of the engine.

It counts through a suspended laptop or virtual machine, as the server's lease does (CLOCK_BOOTTIME, Linux), and no
test's frozen time stops it: freezegun replaces ``time.monotonic``, on which a wait would then never end and a lease
never run out.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

now: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))
)
"""Seconds since some fixed moment."""

wall: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_REALTIME", 0))
"""Seconds since 1970, to compare other machines' clocks with ours. Nothing is measured with it."""
