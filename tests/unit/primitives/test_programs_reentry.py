"""Re-entry, stepped through each answer of the store."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks import LockLost
from django_redis_locks.core.hold import Hold, validity
from django_redis_locks.primitives.wishes import Ask, Granted
from tests.unit.primitives.stepping import a_lock, acquire, ask


def held(lease: int = 10_000, renew_for: float = 0.0) -> Hold:
    """A hold of the caller's, acquired at 100."""
    steps = "100: acquire A = granted" + "; watch A" * bool(renew_for)
    hold = acquire(a_lock(lease=lease, renew_for=renew_for), 0, steps)
    assert isinstance(hold, Hold)
    return hold


def re_entry(hold: Hold) -> Ask:
    wish = ask()
    wish.inner = hold
    return wish


@pytest.mark.parametrize(
    ("outer", "inner", "steps", "deadline"),
    [
        ({"lease": 60_000}, {}, "101:", 100 + validity(60_000)),
        ({"renew_for": 60.0}, {"lease": 60_000, "renew_for": 60.0}, "", 100 + validity(10_000)),
        ({}, {"lease": 60_000}, "101: renew A 60000 = yes", 101 + validity(60_000)),
        ({"renew_for": 60.0}, {"lease": 60_000}, "101: renew A 60000 = yes", 101 + validity(60_000)),
        ({}, {}, "109: renew A 10000 = yes", 109 + validity(10_000)),
    ],
    ids=["a shorter lease", "both renewed", "fixed in fixed", "fixed in renewed", "late in the lease"],
)
def test_reentry_renews_only_a_hold_that_would_end_too_early(
    outer: dict[str, Any], inner: dict[str, Any], steps: str, deadline: float
) -> None:
    """[L11] [L13] [H17] Counted in the process, without a command; otherwise one round trip. What counts is when the hold
    ends, not how long it was meant to be."""
    hold = held(**outer)
    assert acquire(a_lock(reentrant=True, **inner), re_entry(hold), steps) is hold
    assert (hold.deadline, len(hold.inside)) == (deadline, 2)


def test_reentry_with_renewal_into_a_fixed_hold_is_renewed() -> None:
    """[H17] In a fixed hold its section would outlive the lease, however long it asked for."""
    hold = held()
    assert acquire(a_lock(reentrant=True, renew_for=60.0), re_entry(hold), "101: renew A 10000 = yes; watch A") is hold
    assert hold.renew_until == 161.0


def test_reentry_of_a_lock_that_was_taken_raises_LockLost() -> None:
    """[H17] And no entry."""
    hold = held()
    with pytest.raises(LockLost):
        acquire(a_lock(reentrant=True, lease=60_000), re_entry(hold), "101: renew A 60000 = no")
    assert (hold.lost_why, len(hold.inside)) == ("taken", 1)


def test_reentry_of_a_hold_that_is_being_released_waits_for_the_lock() -> None:
    """[H17] Another grant.release() is in flight: this caller waits as any other."""
    hold = held()
    assert hold.leave(next(iter(hold.inside)))
    steps = "101: wait 104 = turn; acquire A at inbox 0 = other; leave, pause 2, nowhere"
    assert acquire(a_lock(reentrant=True), re_entry(hold), steps, other=Granted(8)) is not hold
