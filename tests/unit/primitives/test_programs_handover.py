"""[H3] [X1] The heir of a lock that stays within its process: its own question takes it over."""

from __future__ import annotations

import asyncio

import pytest

from django_redis_locks.core import events
from django_redis_locks.core.effects import Handed, Seat, Standing, Turn
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.core.tuning import DEFAULT, RESERVED_FENCES
from django_redis_locks.primitives.wishes import Busy, Granted
from tests.unit.primitives.handover_fixtures import BUSY, END, a_hold, handed_over, losses
from tests.unit.primitives.stepping import WORLD, a_lock, acquire, interrupted, story

BEGIN = "104: wait 107 = heir; 105: acquire A at inbox 0, handed B = "


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
    steps = "104: wait 107 = heir; 105: acquire A, handed B = answer; leave, pause 2, nowhere"
    steps += " with others" * answer.standing.others
    hold = acquire(a_lock(), 3, steps, heir=Turn(handed=handed), answer=answer)
    assert isinstance(hold, Hold)
    return hold


def test_handed_over_lock_is_a_hold_of_its_own(heard: list[events.Event]) -> None:
    """[H3] Its own token, fence and lease, which counts from its own question; the predecessor lost nothing."""
    handed = handed_over()
    hold = take_over(handed, Granted(8, free=False))
    assert hold.token != handed.hold.token
    assert (hold.fence, hold.deadline, hold.state) == (8, 105.0 + validity(10_000), State.HELD)
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
    """[H3] Nothing else can report it. Not if its lease had ended, nor if the janitor may have freed it."""
    handed = handed_over()
    handed.doubtful = doubtful
    then = f"{max(now, 107)!r}: leave, since 7" if answer is BUSY else f"{now!r}: leave, pause 2, nowhere"
    acquire(a_lock(), 3, BEGIN + f"answer; {then}; 107:", heir=Turn("inbox 0", handed=handed), answer=answer)
    assert losses(heard) == why
    assert handed.hold.lost_why == (why[0] if why else None)


@pytest.mark.parametrize("answer", [Granted(8), BUSY], ids=["free", "busy"])
def test_handover_after_a_lost_answer_reports_no_loss(heard: list[events.Event], answer: Granted | Busy) -> None:
    """[H3] [H15] The first copy may have taken it over, and the lock may have gone on since. Asked again it is the same
    question."""
    end = "sweep A for 10; 107: leave, since 7" if answer is BUSY else "leave, pause 2, nowhere; 107:"
    steps = BEGIN + "lost; pause 0.05; 105.1: acquire A at inbox 0, handed B = answer; " + end
    acquire(a_lock(), 3, steps, heir=Turn("inbox 0", handed=handed_over()), answer=answer)
    assert losses(heard) == []


def test_handed_over_lock_is_taken_once(heard: list[events.Event]) -> None:
    """[H3] The next question doesn't name it any more: the queue knows."""
    steps = BEGIN + "busy; wait 107, pause 2, since 7 = again; 106: acquire A at inbox 0 since 7 = granted"
    hold = acquire(a_lock(), 3, steps + "; leave, pause 2, nowhere", heir=Turn("inbox 0", handed=handed_over()))
    assert hold.fence == 7
    assert losses(heard) == ["taken"]


def test_handed_over_lock_granted_after_its_lease_leaves_cleanup() -> None:
    """[H14] The heir's answer took longer than its lease: its token is spent, and the old one isn't there any more."""
    steps = BEGIN.replace("107", "164") + "late @115; sweep A for 10; wait 164, pause 0, nowhere = turn"
    steps += "; 115: acquire C at inbox 0 = granted; leave, pause 2, nowhere"
    acquire(a_lock(), 60, steps, heir=Turn("inbox 0", handed=handed_over()), late=Granted(8, free=False))


@pytest.mark.parametrize("step", [0, 1, 2])
def test_handover_interrupted_at_each_step_cleans_up(heard: list[events.Event], step: int) -> None:
    """[H3] [X2] Its own token is the janitor's; what was handed over stays the queue's, where it is doubtful now."""
    steps = story(BEGIN + "granted; watch A", heir=Turn("inbox 0", handed=handed_over()))
    cleared = "leave, pause 0" + "; unwatch A" * (step == 2) + "; sweep A for 10" * (step > 0)
    with pytest.raises(asyncio.CancelledError):
        acquire(a_lock(renew_for=60.0), 3, interrupted(steps, step, asyncio.CancelledError(), cleared))
    assert losses(heard) == (["taken"] if step == 2 else [])


# Without a question

REUSED = "100.005: wait 103.005 = heir; 100.01: watch A, telling of 8; leave, pause 2, nowhere"


def test_lock_reused_locally_keeps_token_and_lease_and_takes_a_reserved_fence() -> None:
    """[H3] Another holder: its own fence, and its own time of renewal. The lease is that of the last question."""
    handed = handed_over()
    handed.hold.spare, handed.hold.hand_overs = 3, 1
    hold = acquire(a_lock(renew_for=60.0), 3, REUSED, heir=Turn(taken=handed))
    assert (hold.token, hold.fence) == (handed.hold.token, 8)
    assert (hold.deadline, hold.asked, hold.since) == (100.01 + validity(10_000), 100.0, 100.01)
    assert (hold.renew_until, hold.spare, hold.hand_overs) == (160.01, 2, 2)


@pytest.mark.parametrize("mine", [True, False])
def test_lock_reused_locally_and_interrupted_is_given_back(mine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H3] [H21] What was taken over is freed, unless its queue has it again."""
    handed = handed_over()
    turn = Turn(taken=handed)

    def calm(seat: Seat) -> bool:
        seat.turn, handed.taker = turn, seat if mine else None
        return False

    monkeypatch.setattr(WORLD, "calm", calm)
    steps = REUSED + " = interrupt; leave, pause 0; unwatch A" + "; sweep A for 10" * mine
    with pytest.raises(KeyboardInterrupt):
        acquire(a_lock(renew_for=60.0), 3, steps, heir=turn)


def test_fences_are_reserved_for_registered_waiters_only() -> None:
    """[H3] [H4] The store keeps them for those that may wait; and while another process waits, it is asked each time."""
    for inbox, others in (("", False), ("", True), ("inbox:i 0", False), ("inbox:i 0", True)):
        steps = "104: wait 107 = here; 105: acquire A" + f" at {inbox}" * bool(inbox)
        steps += " = answer; leave, pause 2, since 7" + " with others" * others
        hold = acquire(a_lock(), 3, steps, here=Turn(inbox), answer=Granted(8, standing=Standing(7, others)))
        assert hold.spare == (RESERVED_FENCES if inbox and not others else 0), (inbox, others)


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
