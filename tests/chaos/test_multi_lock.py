"""Several locks at once among processes, threads and tasks: all or none, without a deadlock, also if processes are killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import pairwise

import redis

from tests.chaos.jobs import acquire, ahold_several, hold_several, release, take_several
from tests.chaos.workers import AT_ONCE, CAP, PATIENCE, Worker, wait_until_registered
from tests.waiting import eventually

Start = Callable[..., Worker]

ORDERS = [("x", "y", "z"), ("z", "y", "x"), ("y", "x"), ("z", "x")]


def keys_in_line(*keys: str) -> list[str]:
    return [f"lock:{{0}}:{kind}:{key}" for kind in "kw" for key in keys]


def test_opposed_orders_of_processes_cause_no_deadlock(workers: Start, direct: redis.Redis) -> None:
    """[L38] [L41] Two holds of a key never overlap, its fences rise, and nothing is left behind."""
    processes = [workers(name) for name in ("one", "two", "three")]
    futures = [
        process.start((hold_several, ahold_several)[number % 2], order, 2.0)
        for process in processes
        for number, order in enumerate(ORDERS)
    ]
    holds = [hold for future in futures for hold in future.result(PATIENCE)]
    assert all(future.result(0) for future in futures)
    for key in "xyz":
        own = sorted((hold for hold in holds if key in hold.fences), key=lambda hold: hold.begin)
        assert len(own) > len(futures)
        for one, other in pairwise(own):
            assert one.end <= other.begin
            assert (one.fences[key] or 0) < (other.fences[key] or 0)
    assert direct.exists(*keys_in_line("x", "y", "z")) == 0


def test_locks_of_a_killed_process_are_free_after_their_leases(workers: Start, direct: redis.Redis) -> None:
    """[L38] [L36] A waiter that is killed leaves the others free, and delays none."""
    keys = ("x", "y", "z")
    dead, alive, waiter = (workers(name) for name in ("dead", "alive", "waiter"))
    assert dead.call(take_several, keys, 1.0)
    assert not alive.call(take_several, ("z",), 1.0)
    waiter.start(take_several, keys, 1.0, 60.0)
    wait_until_registered(direct, 1, "lock:{0}:w:x")
    waiter.signal(signal.SIGKILL)
    dead.signal(signal.SIGKILL)
    eventually(lambda: alive.call(take_several, keys, 1.0))


def test_waiter_gets_all_locks_when_another_process_releases_one(workers: Start, direct: redis.Redis) -> None:
    """[L38] It polls once a minute, so a message woke it; until then the other locks are free."""
    holder, waiter = workers("holder", max_poll_interval=CAP), workers("waiter", max_poll_interval=CAP)
    assert holder.call(acquire, "y")
    waiting = waiter.start(take_several, ("x", "y"), 60.0, 60.0)
    wait_until_registered(direct, 1, "lock:{0}:w:y")
    assert holder.call(acquire, "x", timeout=0)
    holder.call(release, "x")
    holder.call(release, "y")
    assert waiting.result(AT_ONCE)
