"""[H3] [X1] A lock that stays within a process: its holder asks nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_redis_locks.core import events
from django_redis_locks.core.constants import HAND_OVERS
from django_redis_locks.core.effects import HandOver
from django_redis_locks.core.hold import Hold, State
from tests.unit.primitives.heirs import END, a_hold, given_back
from tests.unit.primitives.stepping import a_lock, play


def test_who_hands_over_asks_nobody(heard: list[events.Event]) -> None:
    """[H3] The token stays in the store, for the heir; to its holder the lock is gone, and confirmed so."""
    hold = given_back(a_hold())
    story = [("unwatch A", None), ("now", 105.0), ("hand over A", True)]
    assert play(a_lock().releasing(hold, None), story) is True
    assert hold.state is State.GONE
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
def test_what_may_not_be_there_is_handed_to_nobody(how: str) -> None:
    """[H2] [H3] A token that the janitor sweeps, or that may be gone, is no heirloom: it is freed in the store."""
    hold = given_back(a_hold())
    spoil(hold, how)
    now = END if how == "the deadline" else 105.0
    story: list[tuple[str, Any]] = [("unwatch A", None), ("now", now), ("now", now)]
    with pytest.raises(KeyboardInterrupt):
        play(
            a_lock().releasing(hold, None),
            [*story, ("lock/free A", KeyboardInterrupt()), ("sweep A for 10", None), ("freed", None)],
        )


def test_the_end_of_a_lease_is_an_instant() -> None:
    """[H3] Before it the lock is handed over."""
    hold = given_back(a_hold())
    play(a_lock().releasing(hold, None), [("unwatch A", None), ("now", END - 0.001), ("hand over A", True)])


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupted_hand_over_is_doubtful(interruption: type[BaseException]) -> None:
    """[H3] [X2] The heir may have it already, and the janitor will free it all the same: that is no theft."""
    hold = given_back(a_hold())
    program = a_lock().releasing(hold, None)
    effect = program.send(None)
    while not isinstance(effect, HandOver):
        effect = program.send(105.0)
    assert not effect.handed.doubtful
    with pytest.raises(interruption):
        program.throw(interruption())
    assert effect.handed.doubtful
    assert hold.state is State.RELEASING, "so that whoever runs the program has it swept"


# Sixteen times in a row


def held_for(hand_overs: int) -> Hold:
    hold = given_back(a_hold())
    hold.hand_overs = hand_overs
    return hold


def test_the_sixteenth_is_the_last_one() -> None:
    """[H4] So many times in a row a lock stays in a process while others wait."""
    assert HAND_OVERS == 16
    play(a_lock().releasing(held_for(15), None), [("unwatch A", None), ("now", 105.0), ("hand over A", True)])


@pytest.mark.parametrize(
    ("answer", "then"), [(2, "freed, another woken, lined up inbox 0"), (1, "freed, lined up inbox 0")]
)
def test_after_sixteen_it_is_freed_and_the_heirs_line_up(answer: int, then: str) -> None:
    """[H4] Behind all others, in the same step; and the process lets the one go first that was woken."""
    story: list[tuple[str, Any]] = [
        ("unwatch A", None),
        ("now", 105.0),
        ("line up", "inbox 0"),
        ("now", 105.0),
        ("lock/free A, line up inbox 0", answer),
        (then, None),
    ]
    assert play(a_lock().releasing(held_for(16), None), story) is True


def test_heirs_that_may_have_lined_up_are_named() -> None:
    """[H9] [H15] The answer was lost, so they may be in line or not: whoever hears of the release knows where to look."""
    story: list[tuple[str, Any]] = [
        ("unwatch A", None),
        ("now", 105.0),
        ("line up", "inbox 0"),
        ("now", 105.0),
        ("lock/free A, line up inbox 0", KeyboardInterrupt()),
        ("sweep A for 10", None),
        ("freed, lined up inbox 0", None),
    ]
    with pytest.raises(KeyboardInterrupt):
        play(a_lock().releasing(held_for(16), None), story)


def test_without_heirs_nobody_lines_up() -> None:
    """[H9] Nor does a process that can't be told."""
    story: list[tuple[str, Any]] = [
        ("unwatch A", None),
        ("now", 105.0),
        ("line up", ""),
        ("now", 105.0),
        ("lock/free A", 2),
        ("freed, another woken", None),
    ]
    assert play(a_lock().releasing(held_for(16), None), story) is True
