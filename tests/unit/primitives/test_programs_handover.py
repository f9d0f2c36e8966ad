"""[H3] [X1] The heir of a lock that stays within its process: its own question takes it over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_redis_locks.core import events
from django_redis_locks.core.effects import Handed, Seat, Standing, Turn
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.core.tuning import DEFAULT, RESERVED_FENCES
from django_redis_locks.primitives.wishes import Busy, Granted
from tests.unit.primitives.handover_fixtures import BUSY, END, a_hold, ask, handed_over, losses, lost_answer
from tests.unit.primitives.stepping import WORLD, a_lock, acquire, at


def test_handover_count_rises_only_while_others_wait() -> None:
    """[H4] A lock that no other process waits for stays as long as it likes."""
    for before in (0, 7, 15):
        for others in (True, False):
            handed = handed_over()
            handed.hold.hand_overs = before
            hold = take_over(handed, Granted(8, free=False, standing=Standing(0, others)))
            assert hold.hand_overs == (before + 1 if others else 0)


def take_over(handed: Handed, answer: Granted) -> Hold:
    """Acquire at 105, in a process that doesn't hear the store."""
    hold = acquire(
        a_lock(),
        ask(),
        [
            ("now", 104.0),
            ("wait until 107", Turn(handed=handed)),
            ("now", 105.0),
            ("lock/acquire A, handed B", answer),
            ("leave, pause 2, nowhere" + " with others" * answer.standing.others, None),
            ("now", 105.0),
        ],
    )
    assert isinstance(hold, Hold)
    return hold


def test_handed_over_lock_is_a_hold_of_its_own(heard: list[events.Event]) -> None:
    """[H3] Its own token, fence and lease, which counts from its own question; the predecessor lost nothing."""
    handed = handed_over()
    hold = take_over(handed, Granted(8, free=False))
    assert hold.token != handed.hold.token
    assert (hold.fence, hold.deadline) == (8, 105.0 + validity(10_000))
    assert hold.state is State.HELD
    assert losses(heard) == []


@pytest.mark.parametrize("answer", [Granted(8), BUSY], ids=["free", "busy"])
@pytest.mark.parametrize(
    ("now", "doubtful", "why"),
    [(END - 0.001, False, ["taken"]), (END, False, []), (105.0, True, [])],
    ids=["in time", "after its deadline", "doubtful"],
)
def test_handed_over_lock_that_was_gone_is_the_previous_holders_loss(
    heard: list[events.Event], answer: Granted | Busy, now: float, doubtful: bool, why: list[str]
) -> None:
    """[H3] Nobody else can tell him. Not if its lease had ended, nor if the janitor may have freed it."""
    handed = handed_over()
    handed.doubtful = doubtful
    then = max(now, 107.0) if answer is BUSY else now
    acquire(
        a_lock(),
        ask(),
        [
            ("now", 104.0),
            ("wait until 107", Turn("inbox 0", handed=handed)),
            ("now", 105.0),
            ("lock/acquire A at inbox 0, handed B", answer),
            ("now", then),
            ("leave, since 7" if answer is BUSY else "leave, pause 2, nowhere", None),
            ("now", 107.0),
        ],
    )
    assert losses(heard) == why
    assert handed.hold.lost_why == (why[0] if why else None)


@pytest.mark.parametrize("answer", [Granted(8), BUSY], ids=["free", "busy"])
def test_handover_after_a_lost_answer_reports_no_loss(heard: list[events.Event], answer: Granted | Busy) -> None:
    """[H3] [H15] The first copy may have taken it over, and the lock may have gone on since. Asked again it is the same
    question."""
    swept: list[tuple[str, Any]] = [("sweep A for 10", None), ("now", 107.0)] if answer is BUSY else []
    acquire(
        a_lock(),
        ask(),
        [
            ("now", 104.0),
            ("wait until 107", Turn("inbox 0", handed=handed_over())),
            ("now", 105.0),
            ("lock/acquire A at inbox 0, handed B", lost_answer()),
            ("now", 105.0),
            ("pause 0.05", None),
            ("now", 105.1),
            ("lock/acquire A at inbox 0, handed B", answer),
            *swept,
            ("leave, since 7" if answer is BUSY else "leave, pause 2, nowhere", None),
            ("now", 107.0),
        ],
    )
    assert losses(heard) == []


def test_handed_over_lock_is_taken_once(heard: list[events.Event]) -> None:
    """[H3] The next question doesn't name it any more: the queue has been told."""
    hold = acquire(
        a_lock(),
        ask(),
        [
            ("now", 104.0),
            ("wait until 107", Turn("inbox 0", handed=handed_over())),
            ("now", 105.0),
            ("lock/acquire A at inbox 0, handed B", BUSY),
            ("now", 105.0),
            ("wait until 107, pause 2, since 7", Turn("inbox 0", 7)),
            ("now", 106.0),
            ("lock/acquire A at inbox 0 since 7", Granted(9)),
            ("leave, pause 2, nowhere", None),
            ("now", 106.0),
        ],
    )
    assert hold.fence == 9
    assert losses(heard) == ["taken"]


def test_handed_over_lock_granted_after_its_lease_leaves_cleanup() -> None:
    """[H14] The heir's answer took longer than its lease: its token is spent, and the old one isn't there any more."""
    acquire(
        a_lock(),
        ask(60),
        [
            ("now", 104.0),
            ("wait until 164", Turn("inbox 0", handed=handed_over())),
            ("now", 105.0),
            ("lock/acquire A at inbox 0, handed B", at(115.0, Granted(8, free=False))),
            ("sweep A for 10", None),
            ("now", 115.0),
            ("wait until 164, pause 0, nowhere", Turn("inbox 0")),
            ("now", 115.0),
            ("lock/acquire C at inbox 0", Granted(9)),
            ("leave, pause 2, nowhere", None),
            ("now", 115.0),
        ],
    )


@pytest.mark.parametrize(
    ("last", "cleared"),
    [
        (1, ["leave, pause 0"]),
        (3, ["leave, pause 0", "sweep A for 10"]),
        (5, ["leave, pause 0", "unwatch A", "sweep A for 10"]),
    ],
)
def test_handover_interrupted_at_each_step_cleans_up(heard: list[events.Event], last: int, cleared: list[str]) -> None:
    """[H3] [X2] Its own token is the janitor's; what was handed over stays the queue's, where it is doubtful now."""
    story: list[tuple[str, Any]] = [
        ("now", 104.0),
        ("wait until 107", Turn("inbox 0", handed=handed_over())),
        ("now", 105.0),
        ("lock/acquire A at inbox 0, handed B", Granted(8)),
        ("now", 105.0),
        ("watch A", None),
    ]
    with pytest.raises(asyncio.CancelledError):
        acquire(
            a_lock(renew_for=60.0),
            ask(),
            [*story[:last], (story[last][0], asyncio.CancelledError()), *((line, None) for line in cleared)],
        )
    assert losses(heard) == (["taken"] if last == 5 else [])


# Without a question


def go_on(handed: Handed) -> Hold:
    """Take it over at 100.01, as it is."""
    hold = acquire(
        a_lock(renew_for=60.0),
        ask(),
        [
            ("now", 100.005),
            ("wait until 103.005", Turn(taken=handed)),
            ("now", 100.01),
            ("watch A, telling of 8", None),
            ("leave, pause 2, nowhere", None),
        ],
    )
    assert isinstance(hold, Hold)
    return hold


def test_lock_reused_locally_keeps_token_and_lease_and_takes_a_reserved_fence() -> None:
    """[H3] He is another holder: his own fence, and his own time of renewal. The lease is that of the last question."""
    handed = handed_over()
    handed.hold.spare, handed.hold.hand_overs = 3, 1
    hold = go_on(handed)
    assert (hold.token, hold.fence) == (handed.hold.token, 8)
    assert (hold.deadline, hold.asked, hold.since) == (100.01 + validity(10_000), 100.0, 100.01)
    assert hold.renew_until == 160.01
    assert (hold.spare, hold.hand_overs) == (2, 2)


@pytest.mark.parametrize("mine", [True, False])
def test_lock_reused_locally_and_interrupted_is_given_back(mine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H3] [H21] What he took over is freed, unless his queue has it again."""
    handed = handed_over()
    turn = Turn(taken=handed)

    def calm(seat: Seat) -> bool:
        seat.turn, handed.taker = turn, seat if mine else None
        return False

    monkeypatch.setattr(WORLD, "calm", calm)
    told: list[tuple[str, Any]] = [
        ("now", 100.005),
        ("wait until 103.005", turn),
        ("now", 100.01),
        ("watch A, telling of 8", None),
        ("leave, pause 2, nowhere", KeyboardInterrupt()),
        ("leave, pause 0", None),
        ("unwatch A", None),
    ]
    with pytest.raises(KeyboardInterrupt):
        acquire(a_lock(renew_for=60.0), ask(), told + [("sweep A for 10", None)] * mine)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("lined_up", [True, False])
def test_fences_are_reserved_for_registered_waiters_only(lined_up: bool, others: bool) -> None:
    """[H3] [H4] The store keeps them for who may wait; and as long as another process waits, it is asked each time."""
    standing = Standing(7, others)
    turn = Turn("inbox:i 0") if lined_up else Turn()
    question = "lock/acquire A at inbox:i 0" if lined_up else "lock/acquire A"
    hold = acquire(
        a_lock(),
        ask(),
        [
            ("now", 104.0),
            ("wait until 107", turn),
            ("now", 105.0),
            (question, Granted(8, standing=standing)),
            ("leave, pause 2, since 7" + " with others" * others, None),
            ("now", 105.0),
        ],
    )
    assert isinstance(hold, Hold)
    assert hold.spare == (RESERVED_FENCES if lined_up and not others else 0)


def test_lease_reused_locally_ends_when_the_store_ends_it() -> None:
    """[H2] [H14] That of the last question, which was so much longer."""
    hold = take_over(handed_over(), Granted(8, free=False))
    last = a_hold()
    last.follow(hold, DEFAULT.local_reuse_window)
    assert last.deadline == 100.0 + validity(10_000)
    hold.asked = 99.97
    late = a_hold()
    late.follow(hold, DEFAULT.local_reuse_window)
    assert late.deadline == pytest.approx(99.97 + validity(10_000 + 1000 * DEFAULT.local_reuse_window))
