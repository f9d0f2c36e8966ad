"""[H3] [X1] A lock that stays within a process: its holder asks nobody."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from django_redis_locks import Grant, LockLost
from django_redis_locks.core import events
from django_redis_locks.core.effects import HandOver
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.tuning import DEFAULT
from tests.unit.primitives.handover_fixtures import END, a_hold, given_back, losses
from tests.unit.primitives.stepping import WORLD, a_lock, release


def test_release_with_a_local_waiter_sends_no_command(heard: list[events.Event]) -> None:
    """[H3] The token stays in the store, for the heir; to its holder the lock is gone, and confirmed so."""
    hold = given_back(a_hold())
    story = [("now", 105.0), ("hand over A", True)]
    assert release(a_lock(), hold, story) is True
    assert heard == []


def spoil(hold: Hold, how: str) -> None:
    match how:
        case "an unanswered acquire":
            hold.unanswered = True
        case "an earlier release that failed":
            hold.doubted = True
        case "a loss":
            hold.lost_why = "taken"


@pytest.mark.parametrize("how", ["an unanswered acquire", "an earlier release that failed", "a loss", "the deadline"])
def test_release_of_a_doubtful_lock_is_sent_to_the_store(how: str) -> None:
    """[H2] [H3] A token that the janitor sweeps, or that may be gone, is no heirloom: it is freed in the store."""
    hold = given_back(a_hold())
    spoil(hold, how)
    now = END if how == "the deadline" else 105.0
    then = [("sweep A for 10", None)] if how == "an unanswered acquire" else []
    with pytest.raises(LockLost) if how == "a loss" else nullcontext():
        release(a_lock(), hold, [("now", now), ("lock/free A", 1), ("freed", None), *then])


def test_lock_at_its_deadline_is_not_handed_over() -> None:
    """[H3] Before it the lock is handed over."""
    hold = given_back(a_hold())
    release(a_lock(), hold, [("now", END - 0.001), ("hand over A", True)])


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError])
def test_handover_interrupted_is_doubtful(heard: list[events.Event], interruption: type[BaseException]) -> None:
    """[H3] [X2] The heir may have it already, and the janitor will free it all the same: that is no theft."""
    hold, lock = given_back(a_hold()), a_lock()
    with WORLD.telling([("now", 105.0), ("unwatch A", None), ("sweep A for 10", None), ("freed", None)]):
        program = lock.releasing(hold, None)
        effect = program.send(None)
        assert isinstance(effect, HandOver)
        with pytest.raises(interruption) as caught:
            program.throw(interruption())
        lock._not_released(Grant(hold, lock, 0), caught.value)
        effect.handed.gone()
    assert losses(heard) == []
    assert hold.lost_why is None


# Sixteen times in a row


def held_for(hand_overs: int) -> Hold:
    hold = given_back(a_hold())
    hold.hand_overs = hand_overs
    return hold


def test_sixteenth_handover_is_the_last() -> None:
    """[H4] So many times in a row a lock stays in a process while others wait."""
    assert DEFAULT.hand_overs == 16
    release(a_lock(), held_for(15), [("now", 105.0), ("hand over A", True)])


@pytest.mark.parametrize(
    ("answer", "then"), [(2, "freed, another woken, lined up inbox 0"), (1, "freed, lined up inbox 0")]
)
def test_release_after_sixteen_handovers_requeues_local_waiters(answer: int, then: str) -> None:
    """[H4] Behind all others, in the same step; and the process lets the one go first that was woken."""
    story: list[tuple[str, Any]] = [
        ("now", 105.0),
        ("line up", "inbox 0"),
        ("now", 105.0),
        ("lock/free A, line up inbox 0", answer),
        (then, None),
    ]
    assert release(a_lock(), held_for(16), story) is True


def test_release_not_answered_names_the_requeued_waiters() -> None:
    """[H9] [H15] The answer was lost, so they may be in line or not: whoever hears of the release knows where to look."""
    story: list[tuple[str, Any]] = [
        ("now", 105.0),
        ("line up", "inbox 0"),
        ("now", 105.0),
        ("lock/free A, line up inbox 0", KeyboardInterrupt()),
        ("unwatch A", None),
        ("sweep A for 10", None),
        ("freed, lined up inbox 0", None),
    ]
    with pytest.raises(KeyboardInterrupt):
        release(a_lock(), held_for(16), story)


def test_release_after_sixteen_handovers_without_waiters_requeues_none() -> None:
    """[H9] Nor does a process that can't be told."""
    story: list[tuple[str, Any]] = [
        ("now", 105.0),
        ("line up", ""),
        ("now", 105.0),
        ("lock/free A", 2),
        ("freed, another woken", None),
    ]
    assert release(a_lock(), held_for(16), story) is True
