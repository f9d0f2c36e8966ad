"""Who waits for what in this process: turns, wake-ups that are never lost, and deadlines."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redis_locks.core import clock, queues
from django_redis_locks.core.effects import Place, Seat, Turn, Wait
from django_redis_locks.core.tuning import DEFAULT
from tests.unit.core.queue_fixtures import NEVER, OTHER, PLACE, SOON, Line, in_loop


def test_first_waiter_has_its_turn_at_once(line: Line) -> None:
    """Nobody asked before it, so there is nothing to wait for."""
    assert line.turn(line.sit(), NEVER) is True


def test_waiter_behind_the_head_sleeps_until_the_head_leaves(line: Line, threads: ThreadPoolExecutor) -> None:
    """[L27] Those behind cost nothing until the head leaves."""
    first, second = line.asked(), line.sit()
    waiting = line.sleeping(threads, Wait(second, NEVER))
    line.free()
    assert not waiting.done()
    line.stand(first)
    assert waiting.result(20)


def test_turns_follow_the_order_of_arrival(line: Line) -> None:
    """First come, first served; who leaves from the middle changes nothing for the others."""
    seats = [line.sit() for _ in range(4)]
    line.stand(seats.pop(1))
    for seat in seats:
        behind = seats[seats.index(seat) + 1 :]
        assert [line.turn(other, clock.now() - 1) for other in (seat, *behind)] == [True, *(False for _ in behind)]
        line.stand(seat)


def test_wake_up_ends_the_heads_sleep(line: Line, threads: ThreadPoolExecutor) -> None:
    """A release in this process is heard at once."""
    waiting = line.sleeping(threads, Wait(line.asked(), NEVER, 60))
    line.free(OTHER)
    assert not waiting.done()
    line.free()
    assert waiting.result(20)


@pytest.mark.usefixtures("virtual_time")
def test_turn_of_the_head_comes_at_its_time(line: Line) -> None:
    """[L24] [L30] The wake-up is only a hint: the pause ends every sleep, and there is a turn at the deadline, not before
    and not later. [H8] [L23] A wake-up between the question and the sleep isn't lost, and is good for one attempt."""
    seat = line.asked()
    assert line.timed(seat, pause=SOON) == (True, SOON)
    assert line.timed(seat, clock.now() + SOON, 60) == (True, SOON)
    line.free()
    line.free()
    assert line.timed(seat, pause=60) == (True, 0)
    assert line.timed(seat, pause=SOON) == (True, SOON)


@pytest.mark.usefixtures("virtual_time")
def test_wake_up_before_the_first_attempt_is_used_by_it(line: Line) -> None:
    """[H8] Who asked since doesn't ask again because of it."""
    seat = line.sit()
    line.free()
    line.ask(seat)
    assert line.timed(seat, pause=SOON) == (True, SOON)


@pytest.mark.usefixtures("virtual_time")
def test_next_head_inherits_the_time_of_the_next_attempt(line: Line) -> None:
    """[H12] It belongs to the queue: a new head doesn't ask what the last one has just heard."""
    first, second = line.asked(), line.sit()
    assert line.timed(first, clock.now() + SOON, 60) == (True, SOON), "one last try at the deadline"
    line.stand(first)
    assert line.timed(second, clock.now() + SOON) == (True, SOON)


@pytest.mark.usefixtures("virtual_time")
def test_leaving_waiter_may_set_the_time_of_the_next_attempt(line: Line) -> None:
    """The one who got the lock has the next head wait for its release, not poll."""
    first, second = line.asked(), line.sit()
    line.stand(first, SOON)
    assert line.timed(second) == (True, SOON)


@pytest.mark.usefixtures("virtual_time")
def test_waiter_behind_the_head_ends_without_a_turn(line: Line) -> None:
    """[H22] Its deadline is its own, and the head has asked for the process."""
    line.asked()
    assert line.timed(line.sit(), clock.now() + SOON) == (False, SOON)


def test_waiter_that_becomes_head_at_its_deadline_has_a_turn(line: Line) -> None:
    """[L30] The head's right to a last try comes with the head's place."""
    first, second = line.asked(), line.sit()
    line.stand(first, 60)
    assert line.turn(second, clock.now() - 1) is True


def test_empty_queue_is_dropped(line: Line) -> None:
    """A process that locks a million keys keeps no queue of any; leaving twice is leaving once, also for the next one."""
    seats = [line.sit(), line.sit(), line.sit(place=OTHER)]
    for seat in seats * 2:
        line.stand(seat)
    assert line._queues == {}
    line.stand(Seat(PLACE, None, "inbox:"))  # one that never joined
    line.free()
    line.asked()
    line.stand(seats[0])
    assert line.turn(line.sit(), clock.now() - 1) is False


def test_threads_and_each_loop_have_a_queue_of_their_own(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H12] A loop at the head holds up no thread: both ask, and a wake-up reaches both."""
    thread = line.sleeping(threads, Wait(line.asked(), NEVER, 60))

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = line.sit(loop)
        assert await line.aturn(seat, NEVER) is True
        task = asyncio.create_task(line.aturn(seat, NEVER, 60))
        await asyncio.sleep(0)
        assert not task.done()
        line.free()
        assert await asyncio.wait_for(task, 20) is True
        line.stand(seat)

    in_loop(story)
    assert thread.result(20)


def test_tasks_take_turns_as_threads_do(line: Line) -> None:
    """[L27] As threads do: hand-over, pause, last try and the end of one who isn't head."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        first, second = line.sit(loop), line.sit(loop)
        assert await line.aturn(first, NEVER) is True
        begin = clock.now()
        assert await line.aturn(second, begin + SOON) is False
        assert clock.now() - begin >= SOON
        task = asyncio.create_task(line.aturn(second, NEVER))
        await asyncio.sleep(0)
        line.stand(first)
        assert await asyncio.wait_for(task, 20) is True
        begin = clock.now()
        assert await line.aturn(second, NEVER, SOON) is True
        assert clock.now() - begin >= SOON

    in_loop(story)


def test_wake_up_before_a_task_sleeps_is_not_lost(line: Line) -> None:
    """[H8] From another thread, before the task slept."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = line.sit(loop)
        assert await line.aturn(seat, NEVER) is True
        await asyncio.to_thread(line.free)
        assert await asyncio.wait_for(line.aturn(seat, NEVER, 60), 20) is True

    in_loop(story)


def test_cancelled_task_cancels_its_timer(line: Line) -> None:
    """Nothing rings for somebody who isn't there any more."""
    taken_back: list[bool] = []
    line.outside.alarm = lambda at, ring: lambda: taken_back.append(True)

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = line.sit(loop)
        await line.aturn(seat, NEVER)
        task = asyncio.create_task(line.aturn(seat, NEVER, 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        line.stand(seat)

    in_loop(story)
    assert taken_back == [True]
    assert line._queues == {}


def test_closed_loop_does_not_stop_a_wake_up(line: Line, threads: ThreadPoolExecutor) -> None:
    """[H3] [H12] A waiter whose loop is gone can't be told; that harms nobody else."""
    loop = asyncio.new_event_loop()
    line.sit(loop)
    line.sit(loop)
    loop.close()
    waiting = line.sleeping(threads, Wait(line.asked(), NEVER, 60))
    line.free()
    assert waiting.result(20)


def calm(line: Line, place: Place = PLACE) -> bool:
    """Whether it was; nobody asks."""
    seat = Seat(place, None, "inbox:")
    return line.calm(seat) and line.cool(seat)


def test_key_is_uncontended_without_waiters_now_and_lately(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """[H4] [H12] Whoever comes then needn't queue up to ask. One who was told to go first is not overtaken either."""
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    assert calm(line)
    seat = line.sit()
    assert not calm(line)
    assert calm(line, OTHER)
    line.stand(seat)
    assert not calm(line), "somebody did lately"
    now += DEFAULT.contention_memory / 2
    assert not calm(line)
    now += DEFAULT.contention_memory
    assert calm(line)
    line.free(woke=True)
    assert not calm(line), "somebody of another process does"
    line.free(OTHER)
    assert calm(line, OTHER), "nobody was told"


def test_uncontended_attempt_is_the_head_of_later_waiters(line: Line) -> None:
    """[H12] Of a crowd that comes at once one asks, and is the head of those who came while he did."""
    first, late = Seat(PLACE, None, "inbox:"), Seat(PLACE, None, "inbox:")
    assert line.calm(first)
    assert not line.calm(late), "he is asking"
    assert line.begin(Wait(late, NEVER), line.outside) == NEVER, "not his turn"
    assert isinstance(line.begin(Wait(first, NEVER), line.outside), Turn)
    line.stand(first, None, None)
    assert isinstance(line.go_on(Wait(late, NEVER), line.outside), Turn)
    line.stand(late)


def test_uncontended_attempt_leaves_no_queue_unless_others_came(line: Line) -> None:
    """[H9] But if others came meanwhile it is their turn. [L16] Given up, it leaves the key uncontended."""
    first, late = Seat(PLACE, None, "inbox:"), Seat(PLACE, None, "inbox:")
    for end in (lambda: line.cool(first), lambda: line.stand(first, 0, None)):
        assert line.calm(first)
        end()
        assert calm(line)
    assert line.calm(first)
    line.begin(Wait(late, NEVER), line.outside)
    assert not line.cool(first)
    line.stand(first, 2)
    assert list(late.queue.seats) == [late]
    line.stand(late)
    assert line._queues == {}


def test_loop_does_not_wait_for_a_threads_uncontended_attempt(line: Line) -> None:
    """[H12] A loop doesn't wait for a thread's answer."""
    first = Seat(PLACE, None, "inbox:")
    assert line.calm(first)

    async def main() -> None:
        seat = Seat(PLACE, asyncio.get_running_loop(), "inbox:")
        assert isinstance(line.begin(Wait(seat, NEVER), line.outside), Turn)
        line.stand(seat)

    asyncio.run(main())
    assert line.cool(first)


def test_memory_of_contended_keys_is_bounded(line: Line) -> None:
    """A process that locks a million keys keeps no list of them."""
    for number in range(3 * queues.MANY):
        line.stand(line.sit(place=Place("store", f"lock:{number}")))
    assert len(line._hot) <= queues.MANY


def test_forked_child_has_empty_queues(line: Line) -> None:
    """[H18] The queues are empty and the mutex is new, in whatever state the parent's was."""
    line.sit()
    with line._mutex:
        line.clear()
    assert line.turn(line.sit(), clock.now() - 1) is True
