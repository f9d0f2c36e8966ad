"""Locks that stay in the process, and how its queues behave after a release."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_redis_locks.core import clock, queues
from django_redis_locks.core.effects import HandOver, LineUp, Place, Standing, Turn, Wait
from django_redis_locks.core.hold import State
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.testing import ManualClock
from tests.unit.core.holds import LEASE
from tests.unit.core.queue_fixtures import NEVER, NOWHERE, OTHER, PLACE, Line, address, handed_over_lock, in_loop

# Hand-overs


def test_handover_without_a_waiter_in_the_same_home_fails(line: Line) -> None:
    """[H3] [H12] Somebody who waits for this very lock in the caller's own home; a busy loop's tasks are no heirs of a
    thread."""
    handed = handed_over_lock()
    assert not line.hand_over(HandOver(handed, None))
    seat = line.sit(place=OTHER)
    assert not line.hand_over(HandOver(handed, None))

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        mine = line.sit(loop)
        assert not line.hand_over(HandOver(handed, None))
        line.pass_on(loop)
        line.stand(mine)

    in_loop(story)
    line.stand(seat)
    line.stand(line.sit())
    assert not line.hand_over(HandOver(handed, None)), "he has left"


def test_handover_gives_the_waiter_its_turn_at_once(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H3] However patient the last answer made it; and what is handed over is named until the store has answered."""
    seat = line.asked()
    waiting = line.sleeping(threads, Wait(seat, NEVER, 60, Standing(7)))
    handed = line.pass_on()
    assert handed.hold.state is State.GONE
    assert waiting.result(20) == Turn(address(seat), 7, False, handed)
    assert line.ask(seat, NOWHERE) == Turn(address(seat), 0, False, None)
    line.stand(seat)
    assert line.left == []


def test_handover_during_the_heads_attempt_is_not_lost(line: Line) -> None:
    """[H3] [H8] The answer is about another question, or about an earlier lock: the last token is the one in the store."""
    seat = line.asked()
    for _ in range(2):
        handed = line.pass_on()
        assert line.ask(seat, Standing(7)).handed is handed
        assert not handed.doubtful
    second = line.pass_on()
    assert line.ask(seat, NOWHERE).handed is second


@pytest.mark.usefixtures("virtual_time")
def test_handover_to_a_waiter_that_leaves_goes_to_the_next(line: Line) -> None:
    """[H3] Its time was up, or it was cancelled: the next one takes over, and asks at once."""
    first, second = line.asked(), line.sit()
    handed = line.pass_on()
    line.stand(first, 60, Standing(7))
    assert line.timed(second) == (True, 0)
    assert line.ask(second).handed is handed
    assert not handed.doubtful


def test_handover_whose_attempt_was_not_answered_is_doubtful(line: Line) -> None:
    """[H3] [H15] It may have taken the lock over: that the next one doesn't find it is no theft."""
    first, second = line.sit(), line.sit(lease=LEASE)
    handed = line.pass_on(spare=3)
    line.ask(first)
    line.stand(first, 0.0, None)
    assert line.ask(second).handed is handed
    assert handed.doubtful


@pytest.mark.parametrize("asked", [False, True])
def test_handover_to_the_last_waiter_that_leaves_goes_to_cleanup(line: Line, asked: bool) -> None:
    """[H3] [H9] The token is still in the store, and nobody would free it."""
    seat = line.sit()
    handed = line.pass_on()
    if asked:
        line.ask(seat)
    line.stand(seat, 0.0, None)
    assert line.left == [(PLACE, address(seat) if asked else "", handed)]
    assert handed.doubtful is asked


# What is taken over as it is


def test_waiter_takes_over_with_a_reserved_fence_without_an_attempt(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H3] What the last answer said of the place in line stays true; and it was no answer to a wake-up."""
    seat = line.asked(lease=LEASE)
    line.ask(seat, Standing(7))
    line.free()
    line.ask(seat)  # and isn't answered
    handed = line.pass_on(spare=3)
    assert line.ask(seat) == Turn(taken=handed)
    line.stand(seat)
    assert line.left == [(PLACE, address(seat), None)]


def test_waiter_attempts_where_the_lock_cannot_be_reused(line: Line) -> None:
    """[H3] The waiter must get what the store would give: a fence of its own, and the lease it asks for; the store was asked
    lately, without news since; and the previous holder is through with the lock."""
    for what in ("no fence", "no lease", "another lease", "an extension", "time", "the deadline", "state", "news"):
        seat = line.sit(lease=0 if what == "no lease" else LEASE + (what == "another lease"))
        handed = handed_over_lock(spare=0 if what == "no fence" else 3)
        hold = handed.hold
        assert line.hand_over(HandOver(handed, None))
        match what:
            case "an extension":
                hold.prolong(clock.now(), 2 * LEASE)
            case "time":
                hold.asked = clock.now() - DEFAULT.local_reuse_window
            case "the deadline":
                hold.deadline = clock.now()
            case "news":
                line.free()
            case "state":
                hold.state = State.RELEASING
        assert line.ask(seat).handed is handed, what
        line.stand(seat)


def test_waiter_that_fails_after_taking_over_gives_the_lock_back(line: Line) -> None:
    """[H3] Whether he entered nobody knows: the next one asks the store, which gives him another fence."""
    first, second = line.sit(lease=LEASE), line.sit(lease=LEASE)
    handed = line.pass_on(spare=3)
    assert line.ask(first).taken is handed
    line.stand(first, 0.0, None)
    assert first.gave_back
    assert line.ask(second).handed is handed
    assert not handed.doubtful
    line.stand(first, 0.0, None)
    assert line.ask(second).handed is handed, "given back twice"


def test_lock_taken_over_and_confirmed_stays_with_its_waiter(line: Line) -> None:
    """[H3] From then on who took it over clears it away himself."""
    first, second = line.sit(lease=LEASE), line.sit(lease=LEASE)
    line.pass_on(spare=3)
    line.ask(first)
    line.stand(first, 0.0)
    line.stand(first, 0.0, None)
    assert not first.gave_back
    assert line.ask(second).handed is None


def test_waiter_behind_that_leaves_does_not_touch_the_handover(line: Line) -> None:
    """[H3] Whoever leaves from the middle says nothing about the head's question."""
    first, second = line.sit(), line.sit()
    handed = line.pass_on()
    line.ask(first)
    line.stand(second, None, None)
    assert not handed.doubtful
    assert line.ask(first).handed is handed


# After a release


def test_release_that_woke_no_process_wakes_threads_and_loops(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H12] Each may try; one of them gets it."""
    seat = line.asked()
    thread = line.sleeping(threads, Wait(seat, NEVER, 60, Standing(7)))

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        mine = line.sit(loop)
        await line.aturn(mine, NEVER)
        task = asyncio.create_task(line.aturn(mine, NEVER, 60))
        await asyncio.sleep(0)
        line.free()
        assert await asyncio.wait_for(task, 20)

    in_loop(story)
    assert thread.result(20)


@pytest.fixture
def polite(virtual_time: ManualClock) -> float:
    """How long a process yields to the one that was woken."""
    assert DEFAULT.yield_time == 0.005
    return DEFAULT.yield_time


def test_waiter_after_a_release_yields_to_the_process_that_was_woken(line: Line, polite: float) -> None:
    """[H4] It needs a message and a round trip, and would always lose."""
    line.free(woke=True)
    assert not asks_at_once(line, line.sit())
    seat = line.sit()
    assert line.timed(seat) == (True, polite)
    line.stand(seat)
    assert asks_at_once(line, line.sit()), "the time is over"
    line.free(OTHER, woke=True)
    assert asks_at_once(line, line.sit()), "another lock's time"


def asks_at_once(line: Line, seat: Any) -> bool:
    """Whether it needn't sleep; then it leaves."""
    turn = line.begin(Wait(seat, NEVER), line.outside)
    line.stand(seat)
    return isinstance(turn, Turn)


@pytest.mark.usefixtures("line")
def test_waiter_that_sleeps_yields_unless_the_store_or_its_own_time_wakes_it(polite: float) -> None:
    """[H4] [H12] Without an inbox it is its turn after the yield time, neither at once nor only at the next try that was
    planned; a try that is due keeps its time. A registered one waits for the store."""
    for me, pause, standing, expected in (
        ("", 60, NOWHERE, polite),
        ("", 0, NOWHERE, 0),
        ("me", 2 * polite, Standing(7), 2 * polite),
    ):
        line = Line()
        line.outside.me = me
        seat = line.asked()
        line.turn(seat, clock.now() - 1, pause, standing)
        line.free(woke=True)
        assert line.timed(seat) == (True, expected), me


def test_memory_of_yielded_keys_is_bounded(line: Line, polite: float) -> None:
    """A process that frees a million locks keeps no list of them."""
    for number in range(3 * queues.MANY):
        line.free(Place("store", f"lock:{number}"), woke=True)
    assert 0 < len(line._polite) <= queues.MANY


def test_registration_of_a_queue_without_waiters_goes_to_cleanup(line: Line) -> None:
    """[H4] [H9] Its last one left before the release that lined it up was carried out; another queue of this home has
    another number."""
    seat = line.sit()
    where = line.line_up(LineUp(PLACE, None), line.outside)
    line.free(woke=True, address=where)
    assert line.left == [], "somebody waits there"
    line.stand(seat)
    assert line.left == [(PLACE, where, None)]
    line.free(woke=True, address=where)
    assert line.left == [(PLACE, where, None)] * 2
    line.sit()
    line.free(address=where)
    assert line.left == [(PLACE, where, None)] * 3
    line.free(woke=True)
    assert len(line.left) == 3, "nobody was to line up"


# Loops that were closed


def closed_seat(line: Line, *, asked: bool = True, handing: bool = False) -> tuple[Any, Any]:
    """A seat of a loop that is closed, and the lock that was handed to it."""
    loop = asyncio.new_event_loop()
    seat = line.sit(loop)
    if asked:
        loop.run_until_complete(line.aturn(seat, NEVER))
    handed = line.pass_on(loop) if handing else None
    loop.close()
    return seat, handed


@pytest.mark.parametrize("handing", [False, True])
def test_wake_up_or_handover_of_a_closed_loop_goes_to_cleanup(line: Line, handing: bool) -> None:
    """[H3] [H9] [H12] None of its tasks will ever leave: the next waiter that joins leaves it to the janitor, once."""
    seat, handed = closed_seat(line, handing=handing)
    line.sit()
    line.sit()
    assert line.left == [(PLACE, address(seat), handed)]
    assert list(line._queues[PLACE]) == [None]


def test_closed_loop_is_dropped_with_the_last_live_waiter(line: Line) -> None:
    """[L25] [H9] [H12] With a registration it goes to the janitor, and a later leave of its seats harms no other."""
    for asked in (True, False):
        mine = line.sit()
        seat, _ = closed_seat(line, asked=asked)
        line.stand(seat if not asked else mine, 0.0, None if not asked else NOWHERE)
        line.ask(mine)
        line.stand(mine)
        assert line.left == [(PLACE, address(seat), None)] * asked
        assert len(line) == 0
        line.left.clear()
