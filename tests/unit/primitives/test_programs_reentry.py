"""Re-entry, stepped through each answer of the store."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks import LockLost
from django_redis_locks.core import owners
from django_redis_locks.core.effects import Turn
from django_redis_locks.core.hold import Hold, validity
from django_redis_locks.primitives.wishes import Ask, Granted
from tests.unit.primitives.stepping import a_lock, acquire


def an_ask(wait: float = 3.0) -> Ask:
    return Ask(wait, owners.me(), None)


def held(lease: int = 10_000, renew_for: float = 0.0) -> Hold:
    """A hold of the caller's, acquired at 100."""
    lock = a_lock(lease=lease, renew_for=renew_for)
    story: list[tuple[str, Any]] = [("now", 100.0), ("lock/acquire A", Granted(7))]
    hold = acquire(lock, an_ask(0), [*story, *([("watch A", None)] if renew_for else []), ("now", 100.0)])
    assert isinstance(hold, Hold)
    return hold


def re_entry(hold: Hold) -> Ask:
    ask = an_ask()
    ask.inner = hold
    return ask


@pytest.mark.parametrize(
    ("outer", "inner", "story"),
    [
        ({"lease": 60_000}, {}, [("now", 101.0)]),
        ({"renew_for": 60.0}, {"lease": 60_000, "renew_for": 60.0}, []),
    ],
    ids=["a shorter lease", "both renewed"],
)
def test_reentry_within_the_lease_sends_no_command(
    outer: dict[str, Any], inner: dict[str, Any], story: list[tuple[str, Any]]
) -> None:
    """[L13] [H17] Counted in the process."""
    hold = held(**outer)
    deadline = hold.deadline
    assert acquire(a_lock(reentrant=True, **inner), re_entry(hold), story) is hold
    assert len(hold.inside) == 2
    assert hold.deadline == deadline


@pytest.mark.parametrize(
    ("outer", "inner"),
    [({}, {"lease": 60_000}), ({"renew_for": 60.0}, {"lease": 60_000})],
    ids=["fixed in fixed", "fixed in renewed"],
)
def test_reentry_with_a_longer_lease_renews(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    """[H17] [L11] One round trip."""
    hold = held(**outer)
    story: list[tuple[str, Any]] = [("now", 101.0), ("lock/renew A 60000", True)]
    assert acquire(a_lock(reentrant=True, **inner), re_entry(hold), story) is hold
    assert hold.deadline == 101.0 + validity(60_000)


def test_reentry_with_renewal_into_a_fixed_hold_is_renewed() -> None:
    """[H17] In a fixed hold its section would outlive the lease, however long it asked for."""
    hold = held()
    story = [("now", 101.0), ("lock/renew A 10000", True), ("watch A", None)]
    assert acquire(a_lock(reentrant=True, renew_for=60.0), re_entry(hold), story) is hold
    assert hold.renew_until == 161.0


def test_reentry_late_in_the_lease_renews() -> None:
    """[H17] What counts is when the hold ends, not how long it was meant to be."""
    hold = held()
    story = [("now", 109.0), ("lock/renew A 10000", True)]
    assert acquire(a_lock(reentrant=True), re_entry(hold), story) is hold
    assert hold.deadline == 109.0 + validity(10_000)


def test_reentry_of_a_lock_that_was_taken_raises_LockLost() -> None:
    """[H17] And no entry."""
    hold = held()
    with pytest.raises(LockLost):
        acquire(
            a_lock(reentrant=True, lease=60_000),
            re_entry(hold),
            [("now", 101.0), ("lock/renew A 60000", False)],
        )
    assert hold.lost_why == "taken"
    assert len(hold.inside) == 1


def test_reentry_of_a_hold_that_is_being_released_waits_for_the_lock() -> None:
    """[H17] Another grant.release() is in flight: this caller waits as any other."""
    hold = held()
    assert hold.leave(next(iter(hold.inside)))
    outcome = acquire(
        a_lock(reentrant=True),
        re_entry(hold),
        [
            ("now", 101.0),
            ("wait until 104", Turn("inbox 0")),
            ("now", 101.0),
            ("lock/acquire A at inbox 0", Granted(8)),
            ("leave, pause 2, nowhere", None),
            ("now", 101.0),
        ],
    )
    assert outcome is not hold
