"""The cost of a request, as numbers of calls, system calls and connections. No test here measures time."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_redis_locks import locks
from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.core import events
from django_redis_locks.core.commands import Command
from django_redis_locks.core.steps.locks import AcquireLock, LockWaiter, ReleaseLock
from tests.probes.engine import waiters
from tests.waiting import eventually

KEYS = ("lock:{0}:k:a", "lock:{0}:fence", "lock:{0}:w:a", "lock:{0}:index")
ROUNDS = 50

pytestmark = pytest.mark.exact("counts calls")


def acquire(token: str) -> Command[Any]:
    args = AcquireLock(token, 30_000, "host 1 MainThread", LockWaiter("", "", 0, 3_600_000))
    return Command("lock/acquire", KEYS, args, list)


def free(token: str) -> Command[int]:
    return Command("lock/release", (KEYS[0], KEYS[2], KEYS[1], KEYS[3]), ReleaseLock(token), int)


@pytest.fixture
def backend(redis_url: str) -> Iterator[RedisBackend]:
    backend = RedisBackend(redis_url, {"socket_timeout": 60})
    yield backend
    backend.close()


def calls(workload: Callable[[], object]) -> float:
    """Return the calls of Python and C functions per round, as cProfile counts them: the minimum of some runs, since
    from Python 3.12 on it also counts other threads."""
    return min(_calls(workload) for _ in range(9))


def _calls(workload: Callable[[], object]) -> float:
    profile = cProfile.Profile()
    profile.enable()
    workload()
    profile.disable()
    stats: Any = pstats.Stats(profile)
    return (stats.total_calls - 2) / ROUNDS  # the story, and the end


def test_request_of_a_thread_makes_few_calls(backend: RedisBackend) -> None:
    """A request with a plain reply takes about a dozen calls, two of them system calls; an acquire takes some more."""
    for command in (acquire("warm"), free("warm")):
        backend.call(command)
    requests = [(acquire(f"token{number}"), free(f"token{number}")) for number in range(ROUNDS)]

    def pairs() -> None:
        for one, other in requests:
            assert backend.call(one)[0] == 1
            assert backend.call(other) == 1

    def frees() -> None:
        for _, other in requests:
            backend.call(other)

    assert calls(frees) <= 15
    assert calls(pairs) <= 40


def test_request_of_a_task_makes_few_calls(backend: RedisBackend) -> None:
    """[H20] Those of the event loop included, of which fifty tasks need half as many."""

    async def send(tasks: int) -> None:
        async def some() -> None:
            for _ in range(ROUNDS * 10 // tasks):
                await backend.acall(free("x"))

        await asyncio.gather(*[some() for _ in range(tasks)])

    with asyncio.Runner() as runner:
        runner.run(send(1))
        assert calls(lambda: runner.run(send(1))) <= 10 * 80
        assert calls(lambda: runner.run(send(50))) <= 10 * 45


@pytest.mark.parametrize(("options", "most"), [({"expire": 30}, 60), ({}, 70)], ids=["fixed", "renewed"])
def test_uncontended_pair_makes_few_calls(
    redis_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], most: int
) -> None:
    """Make the lock, acquire and release it."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    monkeypatch.setattr(events, "listeners", [])

    def pairs() -> None:
        for _ in range(ROUNDS):
            locks.lock("pair", **options).acquire().release()

    pairs()
    assert calls(pairs) <= most


def test_only_the_release_of_an_awaited_lock_begins_with_a_ping(redis_url: str, settings: Any, direct: Redis) -> None:
    """Then its messages are sent before its reply. For a lock that was free it would be in vain."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}

    def pings() -> int:
        stats: Any = direct.info("commandstats")
        return int(stats.get("cmdstat_ping", {"calls": 0})["calls"])

    lock = locks.lock("awaited")
    grant = lock.acquire()
    before = pings()
    waiter = threading.Thread(target=lambda: lock.acquire().release())
    waiter.start()
    eventually(lambda: waiters(lock))
    grant.release()
    waiter.join(20)
    assert pings() == before + 1
    locks.lock("free").acquire().release()
    assert pings() == before + 1


def test_requests_of_one_turn_share_a_write(backend: RedisBackend) -> None:
    """[H20] Fifty concurrent requests take a few writes and one connection."""

    async def main() -> None:
        await backend.acall(free("x"))
        (loop_connection,) = [reference() for reference in backend._loop_connections._by_loop.values()]
        assert loop_connection.current is not None
        writes: list[int] = []
        write = loop_connection.current._transport.write
        loop_connection.current._transport = Writing(lambda data: writes.append(len(data)) or write(data))
        await asyncio.gather(*[backend.acall(free(f"x{number}")) for number in range(50)])
        assert len(writes) <= 3
        assert len(loop_connection._open_connections) == 1

    asyncio.run(main())


class Writing:
    """The write side of a transport."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.write = write
