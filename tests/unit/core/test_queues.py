"""Who waits for what in this process: turns, wake-ups that are never lost, and deadlines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any

import pytest

from django_redis_locks.core import clock, queues
from django_redis_locks.core.effects import Join, Leave, Place, Seat, Wait
from django_redis_locks.core.queues import Gate, LoopGate, Queues

PLACE = Place("store", "lock")
OTHER = Place("store", "other")
NEVER = inf
SOON = 0.05


def alarm(at: float, ring: Callable[[], object]) -> Callable[[], None]:
    """As the janitor's: rings from another thread."""
    timer = threading.Timer(max(0.0, at - clock.now()), ring)
    timer.daemon = True
    timer.start()
    return timer.cancel


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Queues:
    """Queues without the spread of their retries."""
    monkeypatch.setattr(queues, "random", lambda: 0.0)
    return Queues()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def join(line: Queues, home: Any = None, place: Place = PLACE) -> Seat:
    seat = Seat(place, home)
    line.join(Join(seat), alarm)
    return seat


def ask(line: Queues, seat: Seat) -> None:
    """It is this seat's turn, now."""
    assert line.wait(Wait(seat, clock.now() - 1)) is True


def sleeping(line: Queues, threads: ThreadPoolExecutor, wait: Wait) -> Future[bool]:
    """Have a thread wait, and return when it sleeps."""
    asleep = threading.Event()
    gate = wait.seat.gate

    class Watched:
        open = gate.open

        def sleep(self, seconds: float) -> None:
            asleep.set()
            gate.sleep(seconds)

    wait.seat.gate = Watched()
    future = threads.submit(line.wait, wait)
    assert asleep.wait(5)
    return future


def test_the_first_one_asks_at_once(line: Queues) -> None:
    """Nobody asked before it, so there is nothing to wait for."""
    assert line.wait(Wait(join(line), NEVER)) is True


def test_only_the_head_asks(line: Queues, threads: ThreadPoolExecutor) -> None:
    """[L27] Those behind cost nothing, until the head leaves and hands over."""
    first, second = join(line), join(line)
    ask(line, first)
    waiting = sleeping(line, threads, Wait(second, NEVER))
    line.wake(PLACE)
    assert not waiting.done()
    line.leave(Leave(first))
    assert waiting.result(5) is True


def test_turns_go_by_arrival(line: Queues) -> None:
    """First come, first served; who leaves from the middle changes nothing for the others."""
    seats = [join(line) for _ in range(4)]
    line.leave(Leave(seats.pop(1)))
    for seat in seats:
        assert [line.wait(Wait(other, clock.now() - 1)) for other in seats[seats.index(seat) :]] == [
            True,
            *[False] * (len(seats) - seats.index(seat) - 1),
        ]
        line.leave(Leave(seat))


def test_a_head_asks_again_after_its_pause(line: Queues) -> None:
    """[L24] The wake-up is only a hint: the pause ends every sleep."""
    seat = join(line)
    ask(line, seat)
    begin = clock.now()
    assert line.wait(Wait(seat, NEVER, SOON)) is True
    assert SOON <= clock.now() - begin < 1


def test_a_wake_up_ends_the_sleep(line: Queues, threads: ThreadPoolExecutor) -> None:
    """A release in this process is heard at once."""
    seat = join(line)
    ask(line, seat)
    waiting = sleeping(line, threads, Wait(seat, NEVER, 60))
    line.wake(OTHER)
    assert not waiting.done()
    line.wake(PLACE)
    assert waiting.result(5) is True


def test_a_wake_up_while_the_head_asks_is_not_lost(line: Queues) -> None:
    """[H8] [L23] It came between the question and the sleep: the head doesn't sleep."""
    seat = join(line)
    ask(line, seat)
    line.wake(PLACE)
    begin = clock.now()
    assert line.wait(Wait(seat, NEVER, 60)) is True
    assert clock.now() - begin < 1


def test_a_wake_up_is_good_for_one_question(line: Queues) -> None:
    """[H8] Who asked since doesn't ask again because of it."""
    seat = join(line)
    line.wake(PLACE)
    line.wake(PLACE)
    ask(line, seat)
    assert line.wait(Wait(seat, NEVER, SOON)) is True
    begin = clock.now()
    assert line.wait(Wait(seat, NEVER, SOON)) is True
    assert clock.now() - begin >= SOON


def test_the_next_head_inherits_the_time_of_the_next_try(line: Queues) -> None:
    """[H12] It belongs to the queue: a new head doesn't ask what the last one has just been told."""
    first, second = join(line), join(line)
    ask(line, first)
    begin = clock.now()
    assert line.wait(Wait(first, begin + SOON, 60)) is True, "one last try at the deadline"
    line.leave(Leave(first))
    assert line.wait(Wait(second, clock.now() + SOON)) is True
    assert clock.now() - begin >= 2 * SOON


def test_who_leaves_may_set_the_time_of_the_next_try(line: Queues) -> None:
    """The one who got the lock has the next head wait for its release, not poll."""
    first, second = join(line), join(line)
    ask(line, first)
    line.leave(Leave(first, SOON))
    begin = clock.now()
    assert line.wait(Wait(second, NEVER)) is True
    assert clock.now() - begin >= SOON * 0.9


def test_the_head_has_a_last_try_at_its_deadline(line: Queues) -> None:
    """[L30] At the deadline, not before and not much later."""
    seat = join(line)
    ask(line, seat)
    begin = clock.now()
    assert line.wait(Wait(seat, begin + SOON, 60)) is True
    assert SOON <= clock.now() - begin < 1


def test_one_behind_a_live_head_ends_without_a_try(line: Queues) -> None:
    """[H22] Its deadline is its own, and the head has asked for the process."""
    first, second = join(line), join(line)
    ask(line, first)
    begin = clock.now()
    assert line.wait(Wait(second, begin + SOON)) is False
    assert SOON <= clock.now() - begin < 1


def test_one_who_becomes_head_at_its_deadline_has_a_try(line: Queues) -> None:
    """[L30] The head's right to a last try comes with the head's place."""
    first, second = join(line), join(line)
    ask(line, first)
    line.leave(Leave(first, 60))
    assert line.wait(Wait(second, clock.now() - 1)) is True


def test_an_empty_queue_is_forgotten(line: Queues) -> None:
    """A process that locks a million keys keeps no queue of any, and leaving twice is leaving once."""
    seats = [join(line), join(line), join(line, place=OTHER)]
    for seat in seats * 2:
        line.leave(Leave(seat))
    assert line._queues == {}
    line.leave(Leave(Seat(PLACE, None)))  # one who never joined
    line.wake(PLACE)


def test_leaving_twice_costs_the_next_one_nothing(line: Queues) -> None:
    """A clean-up that is done again must not throw out a stranger."""
    first, second = join(line), join(line)
    line.leave(Leave(first))
    line.leave(Leave(first))
    ask(line, second)
    assert line.wait(Wait(join(line), clock.now() - 1)) is False


def in_loop(story: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
    async def main() -> Any:
        return await story(asyncio.get_running_loop())

    return asyncio.run(main())


def test_each_home_has_a_queue_of_its_own(line: Queues, threads: ThreadPoolExecutor) -> None:
    """[H12] A loop at the head holds up no thread: both ask, and a wake-up reaches both."""
    thread_seat = join(line)
    ask(line, thread_seat)
    thread = sleeping(line, threads, Wait(thread_seat, NEVER, 60))

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = join(line, loop)
        assert await line.await_(Wait(seat, NEVER)) is True
        task = asyncio.create_task(line.await_(Wait(seat, NEVER, 60)))
        await asyncio.sleep(0)
        assert not task.done()
        line.wake(PLACE)
        assert await asyncio.wait_for(task, 5) is True
        line.leave(Leave(seat))

    in_loop(story)
    assert thread.result(5) is True


def test_tasks_take_turns(line: Queues) -> None:
    """[L27] As threads do: hand-over, pause, last try and the end of one who isn't head."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        first, second = join(line, loop), join(line, loop)
        assert await line.await_(Wait(first, NEVER)) is True
        begin = clock.now()
        assert await line.await_(Wait(second, begin + SOON)) is False
        assert clock.now() - begin >= SOON
        task = asyncio.create_task(line.await_(Wait(second, NEVER)))
        await asyncio.sleep(0)
        line.leave(Leave(first))
        assert await asyncio.wait_for(task, 5) is True
        begin = clock.now()
        assert await line.await_(Wait(second, NEVER, SOON)) is True
        assert clock.now() - begin >= SOON

    in_loop(story)


def test_a_task_hears_a_wake_up_that_came_first(line: Queues) -> None:
    """[H8] From another thread, before the task slept."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = join(line, loop)
        assert await line.await_(Wait(seat, NEVER)) is True
        await asyncio.to_thread(line.wake, PLACE)
        assert await asyncio.wait_for(line.await_(Wait(seat, NEVER, 60)), 5) is True

    in_loop(story)


def test_a_cancelled_task_takes_its_alarm_back(line: Queues) -> None:
    """Nothing rings for somebody who isn't there any more."""
    taken_back: list[bool] = []

    def watched_alarm(at: float, ring: Callable[[], object]) -> Callable[[], None]:
        return lambda: taken_back.append(True)

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        seat = Seat(PLACE, loop)
        line.join(Join(seat), watched_alarm)
        await line.await_(Wait(seat, NEVER))
        task = asyncio.create_task(line.await_(Wait(seat, NEVER, 60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        line.leave(Leave(seat))

    in_loop(story)
    assert taken_back == [True]
    assert line._queues == {}


def test_a_closed_loop_is_no_obstacle(line: Queues, threads: ThreadPoolExecutor) -> None:
    """[H3] [H12] A waiter whose loop is gone can't be told; that harms nobody else."""
    loop = asyncio.new_event_loop()
    join(line, loop)
    join(line, loop)
    loop.close()
    seat = join(line)
    ask(line, seat)
    waiting = sleeping(line, threads, Wait(seat, NEVER, 60))
    line.wake(PLACE)
    assert waiting.result(5) is True


def test_a_gate_that_was_opened_lets_one_through() -> None:
    """It is opened for the next sleeper once, however often it is opened before."""
    gate = Gate()
    gate.open()
    gate.open()
    gate.sleep(60)
    begin = clock.now()
    gate.sleep(SOON)
    assert clock.now() - begin >= SOON * 0.9


def test_a_loop_gate_that_was_opened_lets_one_through() -> None:
    """As a thread's: opened before the sleep it doesn't sleep, and then it does again."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        gate = LoopGate(loop, alarm)
        gate.open()
        await asyncio.sleep(0)
        await asyncio.wait_for(gate.asleep(60), 5)
        begin = clock.now()
        await asyncio.wait_for(gate.asleep(SOON), 5)
        assert clock.now() - begin >= SOON * 0.9

    in_loop(story)


def test_a_forked_child_has_none_of_its_parents_waiters(line: Queues) -> None:
    """[H18] The queues are empty and the mutex is new, in whatever state the parent's was."""
    join(line)
    with line._mutex:
        line.clear()
    assert line.wait(Wait(join(line), clock.now() - 1)) is True
