"""A waiter for a lock of another process is woken by a message, whatever happens to the waiters before it.

The poll interval and the lease are a minute: only a message ends a sleep during a test.
"""

from __future__ import annotations

import signal
from asyncio import CancelledError
from collections.abc import Callable
from concurrent.futures import Future

import pytest
import redis

from tests.chaos import jobs
from tests.chaos.jobs import aacquire, acquire, arelease, open_gate, release, wait_for_gate
from tests.chaos.workers import AT_ONCE, CAP, PATIENCE, WAITERS, Worker, connected, wait_until_registered
from tests.waiting import eventually

Start = Callable[..., Worker]


@pytest.mark.chaos
@pytest.mark.parametrize("face", [(acquire, release), (aacquire, arelease)], ids=["thread", "task"])
def test_each_release_wakes_a_waiter_of_another_process(
    workers: Start, face: tuple[Callable[..., object], ...], direct: redis.Redis
) -> None:
    """[M5] [H8] [L18] Of 200 wake-ups none is lost, and 19 of 20 take less than 50 ms, plus the time for as many
    switches between processes, which each round measures. One of five runs must succeed, since others may load the
    machine."""
    holder, waiter = workers("holder", max_poll_interval=CAP), workers("waiter", max_poll_interval=CAP)
    assert any(in_milliseconds(holder, waiter, face, direct) for _ in range(5))


def in_milliseconds(
    holder: Worker, waiter: Worker, face: tuple[Callable[..., object], ...], direct: redis.Redis
) -> bool:
    take_, give_ = face
    delays, switches = [], []
    for _ in range(200):
        holder.call(acquire, "a")
        waiting = waiter.start(take_, "a")
        wait_until_registered(direct, 1)
        released = holder.call(release, "a")
        delays.append(waiting.result(AT_ONCE).got - released)
        waiter.call(give_, "a")
        begin = jobs.ping()
        waiter.call(jobs.ping)
        holder.call(jobs.ping)
        switches.append(jobs.ping() - begin)
    assert max(delays) < AT_ONCE
    return sorted(delays)[190] < 0.05 + sorted(switches)[190]


def test_dead_waiter_is_skipped(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H10] [L29] The first registered waiter was killed: no process receives its message, so the release wakes the
    next."""
    dead, alive = workers("dead", max_poll_interval=CAP), workers("alive", max_poll_interval=CAP)
    dead.start(acquire, "a")
    wait_until_registered(direct, 1)
    waiting = alive.start(acquire, "a")
    wait_until_registered(direct, 2)
    dead.kill()
    eventually(lambda: not connected(direct, "dead"))  # the server has noticed the end
    assert direct.zcard(WAITERS) == 2
    holder.call(release, "a")
    assert waiting.result(AT_ONCE)


@pytest.mark.parametrize("how", ["SIGSTOP", "a blocked loop"])
def test_stopped_woken_waiter_delays_others_by_at_most_the_poll_interval(
    workers: Start, holder: Worker, direct: redis.Redis, how: str
) -> None:
    """[H8] [H12] Its connection receives the message, but the process doesn't run. The next waiter polls and acquires,
    and the stopped one acquires later."""
    stopped = workers("stopped", max_poll_interval=CAP)  # it stays registered for two poll intervals
    other = workers("other", max_poll_interval=0.5)
    first = stopped.start(acquire if how == "SIGSTOP" else aacquire, "a")
    wait_until_registered(direct, 1)
    stopped.signal(signal.SIGSTOP) if how == "SIGSTOP" else blocked(stopped)
    second = other.start(acquire, "a")
    wait_until_registered(direct, 2)
    released = holder.call(release, "a")
    assert second.result(PATIENCE).got - released < 0.5 + AT_ONCE
    other.call(release, "a")
    stopped.signal(signal.SIGCONT) if how == "SIGSTOP" else stopped.call(open_gate, "loop")
    assert first.result(AT_ONCE)


def test_waiters_that_give_up_are_unregistered(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H9] [L33] So that the next release wakes a process that still waits."""
    hasty, patient = workers("hasty", max_poll_interval=CAP), workers("patient", max_poll_interval=CAP)
    given_up: list[Future[object]] = []
    while not (place := direct.zrange(WAITERS, 0, -1)):
        if all(future.done() for future in given_up):  # on a slow machine they may be done already
            given_up = [hasty.start(acquire, "a", timeout=1 + 0.01 * number) for number in range(3)]
    waiting = patient.start(acquire, "a")
    assert [future.result(PATIENCE) for future in given_up] == [None] * 3
    eventually(lambda: direct.zcard(WAITERS) == 1 and direct.zrange(WAITERS, 0, -1) != place)
    holder.call(release, "a")
    assert waiting.result(AT_ONCE)
    patient.call(release, "a")
    assert not direct.exists(WAITERS)


# Loops that are blocked, or end


def blocked(process: Worker, **then: object) -> None:
    """Block the loop of a process."""
    process.start(jobs.block, "loop", **then)
    assert process.call(wait_for_gate, "loop is blocked")


@pytest.mark.parametrize("later", [False, True], ids=["before it hears", "when it has heard"])
def test_task_cancelled_while_woken_passes_the_wake_up_on(
    workers: Start, holder: Worker, direct: redis.Redis, later: bool
) -> None:
    """[H9] [L29] [E21] The wake-up and the cancellation of the task arrive while the loop is blocked."""
    woken, next_one = workers("woken", max_poll_interval=CAP), workers("next", max_poll_interval=CAP)
    cancelled = woken.start(aacquire, "a")
    wait_until_registered(direct, 1)
    waiting = next_one.start(acquire, "a")
    wait_until_registered(direct, 2)
    blocked(woken, cancels=woken.number(cancelled), later=later)
    holder.call(release, "a")
    wait_until_registered(direct, 1)
    woken.call(open_gate, "loop")
    with pytest.raises(CancelledError):
        cancelled.result(AT_ONCE)
    assert waiting.result(AT_ONCE)


def test_loop_that_was_closed_passes_its_wake_up_on(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H9] [H12] Its tasks were never cancelled, and are still registered."""
    closed, alive = workers("closed", max_poll_interval=CAP), workers("alive", max_poll_interval=CAP)
    closing = closed.start(jobs.abandon, "a", "loop")
    wait_until_registered(direct, 1)
    waiting = alive.start(acquire, "a")
    wait_until_registered(direct, 2)
    closed.call(open_gate, "loop")
    closing.result(PATIENCE)
    holder.call(release, "a")
    assert waiting.result(AT_ONCE)
    alive.call(release, "a")
    assert closed.call(acquire, "a")


def test_blocked_loop_delays_no_thread(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[H12] The threads of the process are registered separately, and are woken although the loop is blocked, as are
    later threads. The loop's task acquires the lock when the loop runs again."""
    process = workers("process", max_poll_interval=CAP)
    waiting = process.start(acquire, "a")
    wait_until_registered(direct, 1)
    task = process.start(aacquire, "a")
    wait_until_registered(direct, 2)
    blocked(process)
    holder.call(release, "a")
    assert waiting.result(AT_ONCE)
    process.call(release, "a")
    for worker in (process, holder):
        assert worker.call(acquire, "a", timeout=AT_ONCE), "it is free, and the loop was notified"
        worker.call(release, "a")
    process.call(open_gate, "loop")
    assert task.result(AT_ONCE)
