"""The engine's clock continues when other clocks are frozen or moved."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from freezegun import freeze_time

from django_redis_locks.core import clock
from django_redis_locks.core.hold import validity


def test_clock_runs_in_frozen_time() -> None:
    """[H14] freezegun freezes all other clocks; with those, waits would never end and deadlines never pass."""
    with freeze_time("2012-01-14"):
        frozen, begin = time.monotonic(), clock.now()
        threading.Event().wait(0.02)
        assert time.monotonic() == frozen
        assert 0.02 <= clock.now() - begin < 60


def test_clock_is_not_moved_by_a_tick_of_frozen_time() -> None:
    """[H14] A test that advances frozen time by an hour ends no lease."""
    with freeze_time("2012-01-14") as freezer:
        begin = clock.now()
        freezer.tick(3600)
        assert 0 <= clock.now() - begin < 60


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_clock_counts_while_the_machine_sleeps() -> None:
    """[H14] [L2] The server's leases continue, too. CLOCK_BOOTTIME is used where it exists."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock.now() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize(("lease", "seconds"), [(30_000, 29.698), (1_000, 0.988), (10, 0.0079)])
def test_hold_ends_before_its_lease_by_the_drift(lease: int, seconds: float) -> None:
    """[H14] Two clocks may differ by 1 % and 2 ms: the holder stops first."""
    assert validity(lease) == pytest.approx(seconds)
