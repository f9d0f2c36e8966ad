"""A fair lock among processes: the order of their arrival, whatever happens to those before them.

The poll interval is a minute unless a test says otherwise: then only a message ends a sleep during a test.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import redis

from tests.chaos import jobs
from tests.chaos.jobs import FAIR, acquire, avisit, compete, open_gate, release, visit
from tests.chaos.workers import AT_ONCE, CAP, PATIENCE, Worker, connected, wait_until_registered
from tests.waiting import eventually

Start = Callable[..., Worker]

LOCK = "lock:{0}:k:fair"
WAITERS = "lock:{0}:w:fair"


@pytest.fixture
def holder(workers: Start) -> Worker:
    holder = workers("holder", max_poll_interval=CAP)
    assert holder.call(acquire, FAIR)
    return holder


def test_two_processes_with_threads_and_tasks_are_served_in_their_order(
    workers: Start, holder: Worker, direct: redis.Redis
) -> None:
    """[L32] The fences rise in the order in which the waiters came, and all of them leave the line [L33]."""
    processes = [workers(name, max_poll_interval=CAP) for name in ("one", "two")]
    futures = []
    for number in range(12):
        process, job = processes[number % 2], (visit, avisit)[number % 3 == 0]
        futures.append(process.start(job, FAIR))
        wait_until_registered(direct, number + 1, WAITERS)
    holder.call(release, FAIR)
    fences = [future.result(PATIENCE).fence for future in futures]
    assert fences == sorted(fences)
    assert direct.exists(LOCK, WAITERS) == 0


def test_killed_waiters_are_skipped(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[L32] At once, however many threads of the process were in line."""
    dead, alive = workers("dead", max_poll_interval=CAP), workers("alive", max_poll_interval=CAP)
    for number in range(3):
        dead.start(acquire, FAIR)
        wait_until_registered(direct, number + 1, WAITERS)
    waiting = alive.start(acquire, FAIR)
    wait_until_registered(direct, 4, WAITERS)
    dead.kill()
    eventually(lambda: not connected(direct, "dead"))  # the server has noticed the end
    holder.call(release, FAIR)
    assert waiting.result(AT_ONCE)
    assert direct.exists(WAITERS) == 0


def test_stopped_waiter_delays_the_next_one_by_the_lease_of_a_grant(
    workers: Start, holder: Worker, direct: redis.Redis
) -> None:
    """[L32] It gets the message, and doesn't confirm the grant. When it runs again, it has kept its place."""
    stopped, other, last = (workers(name, max_poll_interval=0.5) for name in ("stopped", "other", "last"))
    first = stopped.start(acquire, FAIR)
    wait_until_registered(direct, 1, WAITERS)
    second = other.start(acquire, FAIR)
    wait_until_registered(direct, 2, WAITERS)
    third = last.start(acquire, FAIR)
    wait_until_registered(direct, 3, WAITERS)
    stopped.signal(signal.SIGSTOP)
    released = holder.call(release, FAIR)
    try:
        assert 2.5 < second.result(AT_ONCE).got - released < AT_ONCE
    finally:
        stopped.signal(signal.SIGCONT)
    wait_until_registered(direct, 2, WAITERS)
    other.call(release, FAIR)
    assert first.result(AT_ONCE)
    assert not third.done()
    stopped.call(release, FAIR)
    assert third.result(AT_ONCE)


def test_lock_of_a_killed_holder_goes_to_the_first_waiter(workers: Start, holder: Worker, direct: redis.Redis) -> None:
    """[L32] When its lease ends, a newcomer that asks before any waiter doesn't get it: it has the first one woken."""
    waiter, last, newcomer = (workers(name, max_poll_interval=CAP) for name in ("waiter", "last", "newcomer"))
    first = waiter.start(acquire, FAIR)
    wait_until_registered(direct, 1, WAITERS)
    second = last.start(acquire, FAIR)
    wait_until_registered(direct, 2, WAITERS)
    holder.kill()
    direct.delete(LOCK)  # as the end of its lease
    assert newcomer.call(acquire, FAIR, timeout=0) is None
    assert first.result(AT_ONCE)
    assert not second.done()


@pytest.mark.chaos
def test_thirty_two_processes_take_two_requests_per_pass(workers: Start, direct: redis.Redis) -> None:
    """[L32] [E25] One to register, one to release: no waiter asks in vain."""
    processes = [workers(f"process{number}") for number in range(32)]
    futures = [process.start(compete, FAIR, process.name, 0.001) for process in processes]
    eventually(lambda: all(process.call(jobs.hold_count) > 2 for process in processes))

    def scripts() -> int:
        return int(direct.info("commandstats")["cmdstat_evalsha"]["calls"])

    def passes() -> int:
        return sum(process.call(jobs.hold_count) for process in processes)

    before = passes()
    calls = scripts()
    eventually(lambda: passes() - before >= 1000)
    calls, done = scripts() - calls, passes() - before
    for process in processes:
        process.start(open_gate, "stop")
    counts = [len(future.result(PATIENCE)) for future in futures]
    assert calls / done < 2.1
    assert max(counts) <= 1.1 * min(counts) + 3
