"""What comes for a waiter is the queue's: a wake-up, a place in the store's line, a lock that is handed over."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.effects import LineUp, Standing, Turn, Wait
from tests.unit.core.queue_fixtures import NEVER, NOWHERE, OTHER, PLACE, Line, address, in_loop

# Addresses, and the place in line


def test_turn_names_inbox_and_queue_while_the_process_listens(line: Line) -> None:
    """[H7] The name of the inbox and the number of the queue; nothing while nobody listens."""
    seat = line.sit()
    assert line.ask(seat) == Turn(address(seat), 0, False, None)
    line.outside.me = ""
    assert line.ask(seat) == Turn("", 0, False, None)
    line.outside.me = "me"
    line.sit()
    assert line.ask(seat) == Turn(address(seat), 0, True, None)


def test_queue_number_is_never_used_again(line: Line) -> None:
    """[H9] [H12] In hex, which the script knows that tells them. Neither another home nor a later queue gets it: what an
    earlier one left in the line is taken away later."""
    addresses = []

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = line.sit(loop)
        turn = await line.await_(Wait(seat, NEVER), line.outside)
        assert turn is not None
        addresses.append(turn.address)
        line.stand(seat)

    for _ in range(20):
        in_loop(story)
        seat = line.sit()
        addresses.append(line.ask(seat).address)
        line.stand(seat)
    assert len(set(addresses)) == 40
    assert all(re.fullmatch(r"inbox:me [0-9a-f]+", address) for address in addresses)


def test_registration_belongs_to_the_queue_and_not_to_its_head(line: Line) -> None:
    """[H4] [H9] Whoever is head asks with the first arrival, until the store takes the queue out of the line."""
    first, second = line.asked(), line.sit()
    assert line.ask(first, Standing(7)) == Turn(address(first), 7, True, None)
    line.stand(first, 0.0, Standing(7, others=True))
    assert line.ask(second) == Turn(address(second), 7, False, None)
    assert line.ask(second, NOWHERE) == Turn(address(second), 0, False, None)


@pytest.mark.parametrize("back", [False, True], ids=["still away", "back"])
def test_attempt_without_an_address_keeps_the_registration(line: Line, back: bool) -> None:
    """[H9] Asked while the inbox is away: the queue is in line as before, or not, and leaves it when it is done. When the
    inbox is back it asks from its place."""
    seat = line.asked()
    line.ask(seat, Standing(7))
    line.stand(line.sit(), None, None)
    line.outside.me = ""
    line.turn(seat, clock.now() - 1, None, Standing(7))
    assert line.ask(seat, NOWHERE) == Turn("", 7)
    if back:
        line.outside.me = "me"
        assert line.ask(seat, NOWHERE) == Turn(address(seat), 7, False, None)
    line.stand(seat)
    assert line.left == ([] if back else [(PLACE, address(seat), None)])


def test_requeue_gives_up_the_arrival_time(line: Line) -> None:
    """[H4] A queue whose process had its share gives its arrival up."""
    seat = line.asked()
    line.ask(seat, Standing(7))
    assert line.line_up(LineUp(PLACE, None), line.outside) == address(seat)
    assert line.ask(seat) == Turn(address(seat), 0, False, None)


def test_requeue_needs_a_waiter_and_an_inbox(line: Line) -> None:
    """[H7] [H9] [H12] Somebody waits there, in the caller's own home, and the process listens."""
    assert line.line_up(LineUp(PLACE, None), line.outside) == ""
    seat = line.sit()
    assert line.line_up(LineUp(OTHER, None), line.outside) == ""
    assert line.line_up(LineUp(PLACE, asyncio), line.outside) == ""
    line.outside.me = ""
    assert line.line_up(LineUp(PLACE, None), line.outside) == ""
    line.stand(seat, None, None)
    assert line.left == []


# What the last one leaves behind


def test_waiter_without_a_registration_leaves_no_cleanup(line: Line) -> None:
    """[H9] Nor does one who was answered, and isn't in line."""
    line.stand(line.sit(), 0.0, None)
    seat = line.asked()
    line.stand(seat, None, NOWHERE)
    assert line.left == []


@pytest.mark.parametrize("standing", [None, Standing(7)], ids=["no answer", "in line"])
def test_last_waiter_leaves_the_registration_to_cleanup(line: Line, standing: Standing | None) -> None:
    """[H9] Also if nobody knows whether it was lined up. A registration exists while somebody waits behind it."""
    seats = [line.sit() for _ in range(3)]
    line.ask(seats[0])
    for seat in (seats[2], seats[0], seats[1]):
        assert line.left == []
        line.stand(seat, None, standing if seat is seats[0] else None)
    for seat in seats:
        line.stand(seat, None, None)  # twice is once
    assert line.left == [(PLACE, address(seats[0]), None)]


def test_wake_up_that_was_not_used_is_passed_on(line: Line) -> None:
    """[H9] [L29] The head had asked before it came. It isn't in line any more, so there is no address to take out. [H8] It
    is used by an attempt since that was answered; without an answer the queue may be in line again."""
    for asked, answered, left in (
        (False, False, [""]),
        (False, True, [""]),
        (True, True, []),
        (True, False, ["its own"]),
    ):
        seat = line.asked()
        assert line.wake(PLACE, seat.queue.number)
        if asked:
            line.ask(seat, Standing(7))
        line.stand(seat, None, NOWHERE if answered else None)
        expected = [(PLACE, where and address(seat), None) for where in left]
        assert line.left == expected, (asked, answered)
        line.left.clear()


@pytest.mark.usefixtures("virtual_time")
def test_wake_up_of_a_head_that_leaves_goes_to_the_next(line: Line) -> None:
    """[H8] [L29] The one it was meant for leaves: the next one asks at once, although it was told to be patient."""
    first, second = line.asked(), line.sit()
    line.wake(PLACE, first.queue.number)
    line.stand(first, 60, Standing(7))
    begin = clock.now()
    assert line.turn(second, NEVER)
    assert clock.now() == begin
    assert line.left == []


# Wake-ups of the store


def test_wake_up_reaches_the_queue_of_its_number_only(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H9] [H12] The one of that number; nobody else asks because of it."""
    seat = line.asked()
    thread = line.sleeping(threads, Wait(seat, NEVER, 60, Standing(7)))

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        mine = line.sit(loop)
        turn = await line.await_(Wait(mine, NEVER), line.outside)
        assert turn is not None
        number = turn.address.rpartition(" ")[2]
        task = asyncio.create_task(line.aturn(mine, NEVER, 60))
        await asyncio.sleep(0)
        assert line.wake(PLACE, number)
        assert await asyncio.wait_for(task, 20)
        line.stand(mine)
        assert not line.wake(PLACE, number), "nobody waits there any more"

    in_loop(story)
    assert not thread.done()
    assert line.wake(PLACE, seat.queue.number)
    assert thread.result(20) == Turn(address(seat), 7, False, None)


def test_wake_up_without_a_waiter_is_refused(line: Line) -> None:
    """[H9] So that whoever brings it passes it on."""
    seat = line.sit()
    assert not line.wake(OTHER, seat.queue.number)
    assert not line.wake(PLACE, "0")
    assert line.wake(PLACE, seat.queue.number)
    line.stand(seat)
    assert not line.wake(PLACE, seat.queue.number)


def test_wake_up_for_a_closed_loop_is_refused(line: Line) -> None:
    """[H9] [H12] Its tasks were never cancelled, and are still in the queue: a wake-up would be lost with them."""
    loop = asyncio.new_event_loop()
    seat = line.sit(loop)
    loop.close()
    assert not line.wake(PLACE, seat.queue.number)


def test_reconnected_inbox_wakes_every_head(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H10] [L19] When the inbox comes back every head asks once."""
    seats = [line.sit(), line.sit(place=OTHER)]
    waiting = []
    for seat in seats:
        line.ask(seat)
        waiting.append(line.sleeping(threads, Wait(seat, NEVER, 60, Standing(7))))
    line.wake_all()
    assert all(future.result(20) for future in waiting)
