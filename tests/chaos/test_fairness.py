"""The longest wait when all callers take one lock again and again.

Waits are counted in holds of others, not in seconds, which depend on the load of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import pytest
import redis

from tests.chaos import jobs
from tests.chaos.jobs import CompletedHold, acompete, acquire, compete, open_gate, release
from tests.chaos.workers import AT_ONCE, CAP, PATIENCE, WAITERS, Worker, wait_until_registered
from tests.waiting import eventually

Start = Callable[..., Worker]
Competition = Callable[..., list[CompletedHold]]

SECTION = 0.001
RUN = 0.7
"""Seconds of a competition: some 400 holds on an idle machine."""

SHORT_RUN = 0.4
"""Seconds that are enough to see starvation."""

MIN_HOLDS = 200
"""The minimum of holds, however slow the machine is."""

TRIES = 4
"""One of this many competitions must be fair, because the machine may suspend a process during the others. Without
fairness none is."""

NO_LIMIT = 1e9


@pytest.fixture
def competition(workers: Start, direct: redis.Redis) -> Callable[..., list[CompletedHold]]:
    """`competition([(1, 0), (4, 4)], run=0.5, max_hand_overs=0)`: the holds of two processes, the second one with four
    threads and four tasks, in the order of the fences. It begins when all queues are registered."""

    def competition(callers: Sequence[tuple[int, int]], run: float = RUN, **tuning: float) -> list[CompletedHold]:
        starter = workers("starter", **tuning)
        starter.call(acquire, "a")
        processes = [workers(f"process{number}", **tuning) for number in range(len(callers))]
        futures = []
        for process, (threads, tasks) in zip(processes, callers, strict=True):
            futures += [process.start(compete, "a", f"{process.name} threads", SECTION) for _ in range(threads)]
            futures += [process.start(acompete, "a", f"{process.name} tasks", SECTION) for _ in range(tasks)]
        wait_until_registered(direct, count_queues(callers))
        starter.call(release, "a")
        time.sleep(run)
        eventually(lambda: sum(process.call(jobs.hold_count) for process in processes) >= MIN_HOLDS)
        end = jobs.ping()
        for process in processes:
            process.start(open_gate, "stop")
        holds = [one for future in futures for one in future.result(PATIENCE)]
        return sorted((one for one in holds if one.got < end), key=lambda one: one.fence)

    return competition


def count_queues(callers: Sequence[tuple[int, int]]) -> int:
    """Return the number of queues of processes with these numbers of threads and tasks."""
    return sum(bool(number) for process in callers for number in process)


def waits(holds: list[CompletedHold], queue_count: int) -> list[int]:
    """Return for each wait of each queue the number of holds of others, including before its first hold and after its
    last."""
    last = dict.fromkeys((one.queue_name for one in holds), -1)
    waits = [len(holds)] * (queue_count - len(last))
    for number, one in enumerate(holds):
        waits.append(number - last[one.queue_name] - 1)
        last[one.queue_name] = number
    waits += [len(holds) - 1 - number for number in last.values()]
    return [wait for wait in waits if wait]


def repeat_share(holds: list[CompletedHold]) -> float:
    """Return the share of holds that followed a hold of the same queue."""
    return sum(one.queue_name == next_one.queue_name for one, next_one in pairwise(holds)) / len(holds)


def test_eight_processes_take_turns(competition: Competition) -> None:
    """[H4] A wait takes one round of all processes, since a release grants the lock to the one that has waited longest.
    The releasing process acquires again before another one gets a message."""

    def fair() -> bool:
        holds = competition([(1, 0)] * 8)
        waited = waits(holds, 8)
        return median(waited) <= 8 and max(waited) <= 20 * 8 and repeat_share(holds) < 0.05

    assert any(fair() for _ in range(TRIES))


@pytest.mark.chaos
@pytest.mark.parametrize("processes", [[(4, 4)] * 2, [(0, 4)] * 2], ids=["threads and tasks", "loops"])
def test_queue_keeps_the_lock_for_sixteen_hand_overs(
    competition: Competition, processes: list[tuple[int, int]]
) -> None:
    """[H4] [H12] [X1] At the limit the next process takes the lock, and keeps it as long. No wait takes more than four
    such
    rounds: a woken queue that the machine then suspends is no longer registered. Without the limit the first process
        keeps
    the lock for ever."""
    queue_count = count_queues(processes)

    def fair() -> bool:
        waited = waits(competition(processes), queue_count)
        return 16 <= median(waited) <= (1 + 16) * (queue_count - 1) + 3 and max(waited) <= 4 * (1 + 16) * queue_count

    def unfair() -> bool:
        holds = competition(processes, SHORT_RUN, max_hand_overs=NO_LIMIT)
        return max(waits(holds, queue_count)) > len(holds) / 2

    assert any(fair() for _ in range(TRIES))
    assert any(unfair() for _ in range(TRIES))


def test_process_at_the_hand_over_limit_goes_to_the_end_of_the_queue(workers: Start, direct: redis.Redis) -> None:
    """[H4] A process that reaches the limit, here at once, frees the lock and registers after queues that arrived later
    than its own next waiter."""
    process, other = (
        workers("process", max_poll_interval=CAP, max_hand_overs=0),
        workers("other", max_poll_interval=CAP),
    )
    assert process.call(acquire, "a")
    own = process.start(acquire, "a")
    wait_until_registered(direct, 1)
    waiting = other.start(acquire, "a")
    wait_until_registered(direct, 2)
    process.call(release, "a")
    assert waiting.result(AT_ONCE)
    assert direct.zcard(WAITERS) == 1
    assert not own.done()
    other.call(release, "a")
    assert own.result(AT_ONCE)
