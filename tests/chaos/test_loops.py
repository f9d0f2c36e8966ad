"""Loops and their tasks among those who wait: cancelled, blocked, closed. Nobody else waits longer for that.

The cap is a minute here, as is the lease, unless a test says otherwise: only a message ends a sleep in time.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable

import pytest
import redis

from tests.chaos import jobs
from tests.chaos.jobs import agive, atake, give, lift, lifted, take, through
from tests.chaos.workers import AT_ONCE, CAP, LINE, PATIENCE, Worker, in_line
from tests.waiting import eventually

Start = Callable[..., Worker]


@pytest.mark.parametrize("later", [False, True], ids=["before it hears", "when it has heard"])
def test_task_cancelled_while_woken_passes_the_wake_up_on(
    workers: Start, holder: Worker, direct: redis.Redis, later: bool
) -> None:
    """[H9] [L29] [E21] The wake-up came while the loop was blocked, and with it the end of the task."""
    woken, next_one = workers("woken", max_poll_interval=CAP), workers("next", max_poll_interval=CAP)
    cancelled = woken.start(atake, "a")
    in_line(direct, 1)
    waiting = next_one.start(take, "a")
    in_line(direct, 2)
    woken.start(jobs.block, "loop", cancels=woken.number(cancelled), later=later)
    assert woken.call(lifted, "loop is blocked")
    holder.call(give, "a")
    in_line(direct, 1)
    woken.call(lift, "loop")
    with pytest.raises(CancelledError):
        cancelled.result(AT_ONCE)
    assert waiting.result(AT_ONCE)


def test_task_cancelled_while_woken_leaves_the_wake_up_to_its_loop(
    workers: Start, holder: Worker, direct: redis.Redis
) -> None:
    """[H9] The wake-up is the queue's, not the waiter's: no cap and no other message comes to help."""
    process = workers("process", max_poll_interval=CAP)
    cancelled = process.start(atake, "a")
    in_line(direct, 1)
    waiting = process.start(atake, "a")
    eventually(lambda: process.call(jobs.queued, "a") == 2)
    process.start(jobs.block, "loop", cancels=process.number(cancelled))
    assert process.call(lifted, "loop is blocked")
    holder.call(give, "a")
    in_line(direct, 0)
    process.call(lift, "loop")
    with pytest.raises(CancelledError):
        cancelled.result(AT_ONCE)
    assert waiting.result(AT_ONCE)


@pytest.mark.parametrize("which", [0, 1], ids=["the head", "one behind it"])
def test_cancelled_tasks_are_no_obstacle(workers: Start, holder: Worker, direct: redis.Redis, which: int) -> None:
    """[L16] [L29] [H9] The others of the loop get the lock as if it had never waited."""
    process, later = workers("process", max_poll_interval=CAP), workers("later", max_poll_interval=CAP)
    tasks = []
    for number in range(3):
        tasks.append(process.start(atake, "a"))
        eventually(lambda: process.call(jobs.queued, "a") == number + 1)  # noqa: B023 - it is done with in this round
    in_line(direct, 1)
    waiting = later.start(take, "a")
    in_line(direct, 2)
    gone = tasks.pop(which)
    process.cancel(gone)
    with pytest.raises(CancelledError):
        gone.result(AT_ONCE)
    assert process.call(jobs.queued, "a") == 2
    holder.call(give, "a")
    for task in tasks:
        assert task.result(AT_ONCE)
        assert direct.zcard(LINE) == (2 if task is tasks[0] else 1), (
            "the process stands in line while others wait there"
        )
        process.call(agive, "a")
    assert waiting.result(AT_ONCE)


@pytest.mark.parametrize("known", [True, False], ids=["still known", "forgotten"])
def test_a_loop_that_was_closed_passes_its_wake_up_on(
    workers: Start, holder: Worker, direct: redis.Redis, known: bool
) -> None:
    """[H9] [H12] Its tasks were never cancelled, and still have their place in line."""
    closed, alive = workers("closed", max_poll_interval=CAP), workers("alive", max_poll_interval=CAP)
    closing = closed.start(jobs.abandon, "a", "loop", known=known)
    in_line(direct, 1)
    waiting = alive.start(take, "a")
    in_line(direct, 2)
    closed.call(lift, "loop")
    closing.result(PATIENCE)
    holder.call(give, "a")
    assert waiting.result(AT_ONCE)
    alive.call(give, "a")
    assert closed.call(take, "a")


def test_a_lock_that_was_handed_to_a_closed_loop_is_freed(workers: Start, direct: redis.Redis) -> None:
    """[H3] [H12] The heir will never run, and the token is still in the store: who comes next sees to it."""
    process = workers("process", max_poll_interval=CAP)
    closing = process.start(jobs.bequeath, "a", "loop")
    in_line(direct, 1)
    process.call(lift, "loop")
    closing.result(PATIENCE)
    assert process.call(take, "a", timeout=AT_ONCE)


def blocked(process: Worker) -> None:
    """Block the loop of a process."""
    process.start(jobs.block, "loop")
    assert process.call(lifted, "loop is blocked")


def test_a_blocked_loop_holds_up_no_thread(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H12] A thread of the process has a place of its own in the line, and is woken whether or not the loop moves; so
    is who comes meanwhile. The loop's task gets the lock when it moves again."""
    process = workers("process", max_poll_interval=CAP)
    waiting = process.start(take, "a")
    in_line(direct, 1)
    task = process.start(atake, "a")
    in_line(direct, 2)
    blocked(process)
    holder.call(give, "a")
    assert waiting.result(AT_ONCE)
    process.call(give, "a")
    for worker in (process, holder):
        assert worker.call(take, "a", timeout=AT_ONCE), "it is free, and the loop was told"
        worker.call(give, "a")
    process.call(lift, "loop")
    assert task.result(AT_ONCE)


def test_a_blocked_loop_costs_others_no_more_than_the_cap(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H12] [H8] Its task was first in line and took the wake-up. A thread of its process and another process, which
    stand behind it, ask when their caps are over."""
    process, other = workers("process", max_poll_interval=0.5), workers("other", max_poll_interval=0.5)
    task = process.start(atake, "a")
    in_line(direct, 1)
    behind = [worker.start(through, "a") for worker in (process, other)]
    in_line(direct, 3)
    blocked(process)
    released = holder.call(give, "a")
    for waiting in behind:
        assert waiting.result(PATIENCE).got - released < 0.5 + AT_ONCE
    process.call(lift, "loop")
    assert task.result(AT_ONCE)
