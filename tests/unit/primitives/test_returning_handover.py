"""[H3] [X1] A lock that stays within a process: its holder sends no command."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from django_redis_locks import Grant, LockLost
from django_redis_locks.core import events
from django_redis_locks.core.effects import HandOver
from django_redis_locks.core.hold import Hold
from django_redis_locks.core.tuning import DEFAULT
from tests.unit.primitives.handover_fixtures import END, a_hold, given_back, losses
from tests.unit.primitives.stepping import WORLD, a_lock, release, story


def test_release_with_a_local_waiter_sends_no_command(heard: list[events.Event]) -> None:
    """[H3] The token stays in the store, for the heir; to its holder the lock is gone, and confirmed so; until its end."""
    for now in (105.0, END - 0.001):
        assert release(a_lock(), given_back(a_hold()), f"{now!r}: hand over A = yes") is True
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
    with pytest.raises(LockLost) if how == "a loss" else nullcontext():
        swept = "; sweep A for 10" * (how == "an unanswered acquire")
        release(a_lock(), hold, f"{now!r}: free A = 1; freed{swept}")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError])
def test_handover_interrupted_is_doubtful(heard: list[events.Event], interruption: type[BaseException]) -> None:
    """[H3] [X2] The heir may have it already, and the janitor will free it all the same: that is no theft."""
    hold, lock = given_back(a_hold()), a_lock()
    with WORLD.telling(story("105: unwatch A; sweep A for 10; freed")):
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

LINED_UP = "105: line up = here; free A, line up inbox 0 = "
ENDS = {
    # [H4] So many times in a row a lock stays in a process while others wait
    (15, "the last"): "105: hand over A = yes",
    # [H4] Behind all others, in the same step; and the process lets the one go first that was woken
    (16, "woke"): LINED_UP + "2; freed, another woken, lined up inbox 0",
    (16, "woke none"): LINED_UP + "1; freed, lined up inbox 0",
    # [H9] Nor does a process that has no inbox
    (16, "no waiters"): "105: line up = deaf; free A = 2; freed, another woken",
}


def test_release_after_sixteen_handovers_requeues_local_waiters() -> None:
    """[H4] [H9] The sixteenth is the last."""
    assert DEFAULT.hand_overs == 16
    for (hand_overs, _), steps in ENDS.items():
        assert release(a_lock(), held_for(hand_overs), steps, here="inbox 0", deaf="") is True, steps


def held_for(hand_overs: int) -> Hold:
    hold = given_back(a_hold())
    hold.hand_overs = hand_overs
    return hold


def test_release_not_answered_names_the_requeued_waiters() -> None:
    """[H9] [H15] The answer was lost, so they may be in line or not: who hears of the release knows where to look."""
    steps = LINED_UP + "interrupt; unwatch A; sweep A for 10; freed, lined up inbox 0"
    with pytest.raises(KeyboardInterrupt):
        release(a_lock(), held_for(16), steps, here="inbox 0")
