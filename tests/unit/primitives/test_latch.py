"""What a reply says to the waiter of a latch, and the requests that the store recognizes."""

from __future__ import annotations

import pytest

from django_redis_locks.primitives.shared.latch_commands import LatchReply, Verdict

CLOSED, OPEN, ENDED = Verdict.CLOSED, Verdict.OPEN, Verdict.ENDED


@pytest.mark.parametrize(
    ("left", "generation", "first", "verdicts"),
    [
        (2, 7, 7, {7: CLOSED, 6: ENDED}),
        (0, 7, 7, {7: OPEN, 6: ENDED}),
        (1, 9, 5, {9: CLOSED, 7: OPEN, 5: OPEN, 4: ENDED}),
        (1, 3, 3, {7: ENDED}),  # a replica that lagged behind has become the master
        (0, 0, 0, {7: ENDED, 0: OPEN}),
    ],
)
def test_later_generation_says_whether_an_earlier_one_was_counted_down(
    left: int, generation: int, first: int, verdicts: dict[int, Verdict]
) -> None:
    """[L40] All generations since the first one were."""
    reply = LatchReply(left, generation, first, 1.0)
    assert {known: reply.verdict(known) for known in verdicts} == verdicts
