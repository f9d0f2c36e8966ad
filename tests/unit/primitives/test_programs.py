"""The program that acquires, stepped through each answer of the store and the queue."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from django_redis_locks import LockBackendError, LockKeyError
from django_redis_locks.core.effects import Standing
from django_redis_locks.core.hold import Hold, State, validity
from django_redis_locks.primitives.wishes import Busy, Foreign, Granted
from tests.unit.primitives.stepping import PLACE, WORLD, a_lock, acquire, ask, interrupted, lost_answer, story

BUSY = Busy(5.0, None, Standing(7))


def test_acquire_of_a_free_lock_is_one_command() -> None:
    """One command; the deadline counts from its sending, less the drift [H14]; the next waiter is made patient."""
    wish = ask()
    steps = "100: wait 103 = turn; 100.5: acquire A at inbox 0 = granted @100.75; leave, pause 2, nowhere; 101:"
    hold = acquire(a_lock(), wish, steps)
    assert isinstance(hold, Hold)
    assert (hold.token, hold.fence, hold.lease, hold.state) == (wish.token, 7, 10_000, State.HELD)
    assert (hold.deadline, hold.unanswered, wish.waited) == (100.5 + validity(10_000), False, 1.0)


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller waits for the lock in this process, or did lately."""
    monkeypatch.setattr(WORLD, "calm", lambda seat: seat.place == PLACE)


@pytest.mark.usefixtures("calm")
def test_uncontended_acquire_joins_no_queue() -> None:
    """As a rule there is nothing to wait for: one command, and no seat to give up."""
    wish = ask()
    hold = acquire(a_lock(), wish, "100: acquire A = granted @100.25; 100.5:")
    assert (hold.token, hold.deadline) == (wish.token, 100.0 + validity(10_000))
    assert (wish.seat, wish.waited) == (None, 0.5)


@pytest.mark.usefixtures("calm")
def test_uncontended_acquire_that_finds_it_busy_joins_and_asks_again() -> None:
    """[H8] At once, if it is the head: it couldn't be woken before it joined. The answer said nothing of a place in line."""
    steps = "100: acquire A = busy; wait 103 = turn; acquire A at inbox 0 = busy; wait 103, pause 2, since 7 = again"
    end = "; 102: acquire A at inbox 0 since 7 = granted; leave, pause 2, nowhere"
    assert isinstance(acquire(a_lock(), 3, steps + end), Hold)


@pytest.mark.usefixtures("calm")
def test_uncontended_acquire_interrupted_at_each_step_cleans_up() -> None:
    """[L16] [X2] There is a seat to give up as soon as it may have been taken."""
    steps = story("100: acquire A = lost; pause 0.05; acquire A = busy; sweep A for 10; wait 103 = turn")
    for step in (0, 2, 3, 4):
        cleared = "leave, pause 0" + "; sweep A for 10" * (step < 4)
        with pytest.raises(KeyboardInterrupt):
            acquire(a_lock(), 3, interrupted(steps, step, KeyboardInterrupt(), cleared))


@pytest.mark.parametrize("verdict", [Granted(7), BUSY], ids=["granted", "busy"])
def test_acquire_without_wait_asks_once_and_joins_no_queue(verdict: Granted | Busy) -> None:
    """[L30] [H12] Exactly one attempt."""
    outcome = acquire(a_lock(), 0, "100: acquire A = verdict; 100.1:", verdict=verdict)
    assert outcome is BUSY if verdict is BUSY else isinstance(outcome, Hold)


def test_acquire_of_a_busy_lock_asks_again_with_its_token() -> None:
    """Busy: sleep until woken, two seconds are over [F26], or the lease ends, and ask again with the same token."""
    wish = ask(60)
    first = wish.token
    steps = "100: wait 160 = turn; acquire A at inbox 0 = busy; 100.1: wait 160, pause 2, since 7 = again"
    steps += "; 102.1: acquire A at inbox 0 since 7 = short; 102.2: wait 160, pause 0.5, since 7 = again"
    steps += "; 102.7: acquire A at inbox 0 since 7 = granted @102.8; leave, pause 2, nowhere"
    assert acquire(a_lock(), wish, steps, short=Busy(0.5, None, Standing(7))).token == first
    assert wish.waited == pytest.approx(2.8)


def test_next_waiter_sleeps_no_longer_than_the_lease() -> None:
    """[L24] It is woken by the release; a holder that dies wakes none."""
    for lease, pause in ((200, "0.2"), (2_000, "2"), (60_000, "2")):
        steps = f"100: wait 103 = turn; acquire A at inbox 0 = granted; leave, pause {pause}, nowhere"
        assert isinstance(acquire(a_lock(lease=lease), 3, steps), Hold)


def test_acquire_asks_a_last_time_at_its_deadline() -> None:
    """[L30] The queue wakes the head at its deadline, and the answer to that question is the outcome."""
    last, wish = Busy(1.0, None, Standing(7)), ask()
    steps = "100: wait 103 = turn; acquire A at inbox 0 = busy; 100.1: wait 103, pause 2, since 7 = again"
    steps += "; 103: acquire A at inbox 0 since 7 = last; 103.1: leave, since 7"
    assert acquire(a_lock(), wish, steps, last=last) is last
    assert wish.waited == pytest.approx(3.1)


def test_acquire_that_never_is_head_ends_without_a_command() -> None:
    """[H22] It ends without a question, and without a reproach that it makes up."""
    assert acquire(a_lock(), 3, "100: wait 103; leave; 103:") == Busy(0.0, None)


def test_acquire_after_a_lost_answer_asks_with_the_same_token() -> None:
    """[H2] [L12] "Already mine" is then what success looks like; the deadline counts from the answered attempt."""
    wish = ask()
    first = wish.token
    steps = "100: wait 103 = turn; acquire A at inbox 0 = lost; 102: pause 0.05"
    hold = acquire(a_lock(), wish, steps + "; 102.05: acquire A at inbox 0 = granted @102.1; leave, pause 2, nowhere")
    assert (hold.token, hold.deadline) == (first, 102.05 + validity(10_000))
    assert hold.unanswered, "so that it is swept after its release"


LOST_THEN_BUSY = (
    "100: wait 103 = turn; acquire A at inbox 0 = lost; 100.1: pause 0.05; 100.15: acquire A at inbox 0 = busy"
    "; sweep A for 10; 100.2: wait 103, pause 2, since 7 = again; 101: acquire B at inbox 0 since 7 = granted"
)


def test_acquire_that_is_busy_after_a_lost_answer_takes_a_new_token() -> None:
    """[H2] A late copy may still come: the token is swept, so what is granted later must have another one."""
    wish = ask()
    hold = acquire(a_lock(), wish, LOST_THEN_BUSY + "; leave, pause 2, nowhere")
    assert (hold.token, hold.unanswered) == (wish.token, False)


def test_acquire_that_ends_with_a_lost_answer_leaves_cleanup() -> None:
    """[L16] [H2] It may have been granted, to no caller."""
    failure = lost_answer()
    with pytest.raises(LockBackendError) as caught:
        acquire(a_lock(), 0, "100: acquire A = failure; 102: sweep A for 10", failure=failure)
    assert caught.value is failure
    assert (failure.key, failure.name, failure.alias, failure.unanswered) == ("order:42", "order", "default", True)


def test_acquire_that_ends_unreachable_after_a_lost_answer_leaves_cleanup() -> None:
    """[H2] The last failure was harmless, an earlier one was not."""
    steps = "100: wait 103 = turn; acquire A at inbox 0 = lost; 102: pause 0.05; 102.9: acquire A at inbox 0 = down"
    with pytest.raises(LockBackendError) as caught:
        acquire(a_lock(), 3, steps + "; 103: leave, pause 0; sweep A for 10")
    assert caught.value.unanswered


def test_acquire_that_never_reaches_the_store_leaves_no_cleanup() -> None:
    """Pauses double while it can't be reached, and never go beyond the caller's deadline; there is nothing to sweep."""
    steps = "100: wait 103 = turn"
    for sent, pause in ((100, 0.05), (100.1, 0.1), (100.3, 0.2), (100.6, 0.4), (101.1, 0.8), (102, 1)):
        steps += f"; {sent}: acquire A at inbox 0 = down; pause {pause:g}"
    with pytest.raises(LockBackendError) as caught:
        acquire(a_lock(), 3, steps + "; 103: acquire A at inbox 0 = down; leave, pause 0")
    assert not caught.value.unanswered


def test_acquire_without_deadline_raises_after_thirty_seconds_of_outage() -> None:
    """After thirty seconds of trouble it is an error, also for a wait of -1."""
    steps = "100: wait inf = turn; acquire A at inbox 0 = down; 129.98: pause 0.02"
    with pytest.raises(LockBackendError):
        acquire(a_lock(), inf, steps + "; 130: acquire A at inbox 0 = down; leave, pause 0")


def test_acquire_refused_by_the_server_is_not_repeated() -> None:
    """A wrong password doesn't get better; nothing was carried out, so nothing is swept."""
    steps = "100: wait 103 = turn; acquire A at inbox 0 = refused; leave, pause 0"
    with pytest.raises(LockBackendError):
        acquire(a_lock(), 3, steps, refused=LockBackendError("WRONGPASS"))


def test_acquire_on_a_stale_connection_is_repeated_at_once() -> None:
    """[H24] It is tried again at once, although there is no time left, and the copy that went is remembered."""
    assert acquire(a_lock(), 0, "100: acquire A = stale; acquire A = granted").unanswered


def test_acquire_granted_after_its_lease_leaves_cleanup_and_asks_again() -> None:
    """[H14] The answer took longer than the lease: that token is spent, and the next attempt has another one."""
    wish = ask(60)
    steps = (
        "100: wait 160 = turn; acquire A at inbox 0 = granted @109.9; sweep A for 10; wait 160, pause 0, nowhere = turn"
    )
    steps += "; 110: acquire B at inbox 0 = second @110.1; leave, pause 2, nowhere"
    hold = acquire(a_lock(), wish, steps, second=Granted(8))
    assert (hold.token, hold.fence) == (wish.token, 8)
    assert wish.hold is hold


def test_hold_with_renewal_or_on_lost_is_watched() -> None:
    """[L8] [H23] From before it is given to the caller; a fixed lease whose loss is of no interest needs nothing."""
    terms: tuple[dict[str, Any], ...] = ({"renew_for": 60.0}, {"on_lost": print}, {"on_lost": "cancel"})
    for one in terms:
        acquire(a_lock(**one), 0, "100: acquire A = granted; watch A")


def test_acquire_of_a_foreign_key_raises_LockKeyError() -> None:
    """[F6] It isn't waited for, and named with what to do."""
    steps = "100: wait 103 = turn; acquire A at inbox 0 = foreign; leave, pause 0"
    with pytest.raises(LockKeyError, match=r"'order'.*a string.*KEY_PREFIX") as caught:
        acquire(a_lock(), 3, steps, foreign=Foreign("a string"))
    assert caught.value.key == "order:42"


STEPS = {
    0: "leave, pause 0",
    **dict.fromkeys((1, 2, 3, 4), "leave, pause 0; sweep A for 10"),
    5: "leave, pause 0",
    6: "leave, pause 0; sweep B for 10",
    **dict.fromkeys((7, 8), "leave, pause 0; unwatch B; sweep B for 10"),
}


@pytest.mark.parametrize("step", STEPS)
def test_acquire_interrupted_at_each_step_cleans_up(step: int) -> None:
    """[L16] [X2] Interrupted at any effect, it leaves the queue, has its token swept, and the error passes."""
    steps = story(LOST_THEN_BUSY + "; watch B; leave, pause 2, nowhere")
    for interruption in (KeyboardInterrupt(), asyncio.CancelledError(), SystemExit()):
        wish = ask()
        with pytest.raises(type(interruption)) as caught:
            acquire(a_lock(renew_for=60.0), wish, interrupted(steps, step, interruption, STEPS[step]))
        assert caught.value is interruption
        assert wish.hold is None or wish.hold.state is State.GONE
