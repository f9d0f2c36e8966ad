"""Frozen time in a test of the user's stops neither waiting nor renewal: the engine's clock is one that freezegun leaves
alone. Only the leases of the memory backend run on the frozen clock, so that ``freezer.tick()`` ends them."""

from __future__ import annotations

import threading
import time

import pytest
from freezegun import freeze_time

from django_redis_locks import LockNotAcquired
from tests.contract.matrix import BACKENDS, Caller, Face


def real() -> float:
    """Seconds on a clock that isn't frozen."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def spent() -> float:
    """Seconds that all threads of this process have computed."""
    return time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)


def test_locks_live_on_while_time_is_frozen(face: Face, alice: Caller, bob: Caller) -> None:
    """[H14] A renewed lock outlives three leases, a wait ends when it should and costs no CPU, a release frees."""
    lock = face.lock(expire=0.2, renew=True, wait=0.5)
    with freeze_time("2012-01-14"):
        begin = real()
        grant = alice(lock.acquire)
        threading.Event().wait(0.15)
        start, cost = real(), spent()
        with pytest.raises(LockNotAcquired):
            bob(lock.acquire)
        assert 0.4 < real() - start < 0.8
        assert spent() - cost < 0.02
        assert real() - begin > 3 * 0.2
        assert not grant.lost
        alice(grant.ensure_held, confirm=True)
        waiting = face.start_waiting(bob, lock)
        alice(grant.release)
        assert waiting.result(5)
        bob(lock.release)


@pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
def test_a_tick_ends_a_lease_in_memory(face: Face, alice: Caller, bob: Caller) -> None:
    """[H14] For tests of the user's that want a lease to end without waiting for it."""
    lock = face.lock(expire=30)
    with freeze_time("2012-01-14") as freezer:
        alice(lock.acquire)
        freezer.tick(29)
        assert bob(lock.acquire, timeout=0) is None
        freezer.tick(2)
        assert bob(lock.acquire, timeout=0)
