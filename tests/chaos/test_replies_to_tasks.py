"""Many tasks of one event loop on one connection: a lost reply, a cancelled task or a closed connection affects no
other task's call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
import redis

from django_redis_locks import Grant, LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.helpers import fence_of
from tests.proxy import Fault, Proxy
from tests.waiting import BUSY, eventually

NAMES = [f"n{number}" for number in range(8)]
TRY = "lock/acquire"
PART = b"*5\r\n:1\r\n"
FAILURES = [
    Fault("cut", "reply", TRY),
    Fault("cut", "reply", TRY, data=PART),
    Fault("freeze", "reply", TRY),
    Fault("freeze", "reply", TRY, data=PART),
    Fault("replace", "reply", TRY, data=b"<html>\r\n"),
]


async def warm(client: Locks) -> None:
    """The scripts are loaded, and there is a connection."""
    async with client.lock("warm up") as grant:
        await grant.aextend(60)


def start(client: Locks, timeout: float) -> list[asyncio.Task[Grant | None]]:
    return [asyncio.create_task(client.lock(name, expire=15).aacquire(timeout=timeout)) for name in NAMES]


async def check_grant(direct: redis.Redis, name: str, grant: object) -> None:
    """It is the grant of this key, and it can be released by another task."""
    assert isinstance(grant, Grant), grant
    assert grant.key == name
    assert fence_of(direct, f"lock:{{0}}:k:{name}") == grant.fence
    await grant.arelease()
    assert not direct.exists(f"lock:{{0}}:k:{name}")


def free(direct: redis.Redis) -> None:
    eventually(lambda: not direct.keys("lock:{0}:k:*"))


@pytest.mark.chaos
@pytest.mark.parametrize("before", [0, 3])
def test_call_with_a_timeout_is_tried_again_on_another_connection(
    open_locks: Callable[..., Locks], proxy: Proxy, direct: redis.Redis, before: int
) -> None:
    """[H20] [H15] Each gets its lock; replies before the failure of the connection count."""
    client = open_locks(proxy.url, OPTIONS={"socket_timeout": 2 * SILENCE})

    async def main(fault: Fault) -> None:
        await warm(client)
        proxy.plan("pass", of=TRY, times=before)
        proxy.plan(fault.action, fault.direction, of=TRY, data=fault.data)
        grants = await asyncio.gather(*start(client, timeout=30))
        for name, grant in zip(NAMES, grants, strict=True):
            await check_grant(direct, name, grant)

    for fault in FAILURES:
        asyncio.run(main(fault))
        free(direct)
        proxy.reset()


@pytest.mark.chaos
def test_call_without_a_timeout_fails_and_leaves_nothing(
    open_locks: Callable[..., Locks], proxy: Proxy, direct: redis.Redis
) -> None:
    """[H20] [L16] [F15] Each error names its own lock, and what the server did is undone."""
    client = open_locks(proxy.url, OPTIONS={"socket_timeout": 2 * SILENCE})

    async def main(fault: Fault) -> None:
        await warm(client)
        proxy.insist(fault)
        begin = clock.now()
        results = await asyncio.gather(*start(client, timeout=0), return_exceptions=True)
        assert clock.now() - begin < 2 * SILENCE + BUSY
        for name, failure in zip(NAMES, results, strict=True):
            assert isinstance(failure, LockBackendError), failure
            assert (failure.key, failure.alias, failure.outcome_unknown) == (name, "default", True)
            assert "no answer from redis://127.0.0.1:" in str(failure)
        proxy.reset()
        await asyncio.to_thread(free, direct)
        for name, task in zip(NAMES, start(client, timeout=0), strict=True):
            await check_grant(direct, name, await task)

    for fault in FAILURES:
        asyncio.run(main(fault))


def test_task_cancelled_at_any_moment_affects_no_other(
    open_locks: Callable[..., Locks], proxy: Proxy, direct: redis.Redis
) -> None:
    """[H20] [H21] [L16] [E7] Half of the tasks are cancelled while they connect, send, read, wait or release. The
    others have their own locks, and in the end all are free."""
    client = open_locks(proxy.url, OPTIONS={"socket_timeout": 30})  # no server is silent

    async def one(name: str) -> None:
        for _ in range(5):
            grant = await client.lock(name, expire=15).aacquire(timeout=30)
            assert grant is not None
            await check_grant(direct, name, grant)

    async def main(chance: random.Random) -> None:
        tasks = [asyncio.create_task(one(f"c{number}")) for number in range(12)]
        doomed = chance.sample(tasks, 6)
        for task in doomed:
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            task.cancel()
        for task, result in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            assert result is None or (task in doomed and isinstance(result, asyncio.CancelledError)), repr(result)

    for seed in range(3):
        asyncio.run(main(random.Random(seed)))
        free(direct)
