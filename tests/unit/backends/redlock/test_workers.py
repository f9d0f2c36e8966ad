"""The threads that send the requests of synchronous callers."""

from __future__ import annotations

import threading

import pytest

from django_redis_locks.backends.redlock import workers
from django_redis_locks.backends.redlock.workers import Threads
from tests.waiting import eventually


def test_job_waits_for_no_other_one_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent server blocks a thread. Jobs above the limit wait for a thread, and run when one is free again."""
    monkeypatch.setattr(workers, "MOST_THREADS", 2)
    threads = Threads()
    for _ in range(3):
        gates = [threading.Event() for _ in range(4)]
        done: list[int] = []

        def job(number: int, gates: list[threading.Event] = gates, done: list[int] = done) -> None:
            gates[number].wait(20)
            done.append(number)

        for number in range(4):
            threads.start(lambda number=number: job(number))  # type: ignore[misc]
        gates[1].set()
        eventually(lambda done=done: done == [1])  # type: ignore[misc]
        gates[3].set()
        gates[2].set()
        eventually(lambda done=done: sorted(done) == [1, 2, 3])  # type: ignore[misc]
        ran = threading.Event()
        threads.start(ran.set)  # one thread is still blocked
        assert ran.wait(20)
        gates[0].set()
        eventually(lambda done=done: len(done) == 4)  # type: ignore[misc]
