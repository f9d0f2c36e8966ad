"""Many tasks of one event loop on one connection: a lost reply, a cancelled task or a closed connection affects no other
task's call."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable

import pytest
import redis

from django_redis_locks import Grant, LockBackendError, clock
from django_redis_locks.client import Locks
from tests.chaos.conftest import SILENCE
from tests.chaos.fake_server import Client, FakeServer, Reply, then_close, then_silence
from tests.chaos.helpers import fence_of
from tests.waiting import BUSY, eventually

Open = Callable[..., Locks]
TRY = "lock/acquire"
NAMES = [f"n{number}" for number in range(8)]
FAILURES: dict[str, Reply] = {
    "closed": then_close(b""),
    "closed in the middle": then_close(b"*5\r\n:1\r\n"),
    "silent": then_silence(b""),
    "silent in the middle": then_silence(b"*5\r\n:1\r\n"),
    "no RESP": lambda client, reply: client.send(b"<html>\r\n"),
}


class Gate:
    """Holds the next reply back until `go` is set."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, client: Client, reply: bytes) -> None:
        self.reached.set()
        self.go.wait(60)
        client.send(reply)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 20)


@pytest.fixture
def client(fake_server: FakeServer, open_locks: Open) -> Locks:
    return open_locks(fake_server.url, EXPIRE=60, OPTIONS={"socket_timeout": 2 * SILENCE})


@pytest.fixture
def patient(fake_server: FakeServer, open_locks: Open) -> Locks:
    """For tests without a silent server: a busy machine may take a second to reply."""
    return open_locks(fake_server.url, EXPIRE=60, OPTIONS={"socket_timeout": 30})


async def warm(client: Locks) -> None:
    """The scripts are loaded, and there is a connection."""
    async with client.lock("warm up") as grant:
        await grant.aextend(60)


def start(client: Locks, names: list[str], timeout: float = 0) -> list[asyncio.Task[Grant | None]]:
    return [asyncio.create_task(client.lock(name).aacquire(timeout=timeout)) for name in names]


async def check_grant(direct: redis.Redis, name: str, grant: object) -> None:
    """It is the grant of this key, and it can be released by another task."""
    assert isinstance(grant, Grant), grant
    assert grant.key == name
    assert fence_of(direct, f"lock:{{0}}:k:{name}") == grant.fence
    await grant.arelease()
    assert not direct.exists(f"lock:{{0}}:k:{name}")


def free(direct: redis.Redis, names: list[str]) -> None:
    eventually(lambda: not direct.exists(*(f"lock:{{0}}:k:{name}" for name in names)))


def test_cancelled_task_leaves_other_requests_alone(
    patient: Locks, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H20] Its reply still comes, and is dropped; what it may have acquired is released."""

    async def main(cancelled: int, leave: str) -> None:
        await warm(patient)
        gate = Gate()
        fake_server.reply_with(gate, of=TRY, times=-1)
        tasks = start(patient, NAMES)
        await gate.wait()
        if leave == "cancel":
            tasks[cancelled].cancel()
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await tasks[cancelled]
        with pytest.raises(asyncio.CancelledError):
            await tasks[cancelled]
        gate.go.set()
        for index, (name, task) in enumerate(zip(NAMES, tasks, strict=True)):
            if index != cancelled:
                await check_grant(direct, name, await task)

    for cancelled in (0, 3):
        for leave in ("cancel", "timeout"):
            asyncio.run(main(cancelled, leave))
            free(direct, NAMES)
            fake_server.recover()


@pytest.mark.chaos
def test_call_with_a_timeout_is_tried_again_on_another_connection(
    client: Locks, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H20] [H15] Each gets its lock."""

    async def main(reply: Reply) -> None:
        await warm(client)
        fake_server.reply_with(reply, of=TRY)
        grants = await asyncio.gather(*start(client, NAMES, timeout=30))
        for name, grant in zip(NAMES, grants, strict=True):
            await check_grant(direct, name, grant)

    for reply in FAILURES.values():
        asyncio.run(main(reply))
        free(direct, NAMES)
        fake_server.recover()


@pytest.mark.chaos
def test_call_without_a_timeout_fails_and_leaves_nothing(
    client: Locks, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H20] [L16] Each error names its own lock, and what the server did is undone."""

    async def main(reply: Reply) -> None:
        await warm(client)
        fake_server.reply_with(reply, of=TRY, times=-1)
        begin = clock.now()
        results = await asyncio.gather(*start(client, NAMES), return_exceptions=True)
        assert clock.now() - begin < 2 * SILENCE + BUSY
        for name, failure in zip(NAMES, results, strict=True):
            assert isinstance(failure, LockBackendError), failure
            assert (failure.key, failure.alias, failure.unanswered) == (name, "default", True)
            assert "no answer from redis://127.0.0.1:" in str(failure)
        fake_server.recover()
        await asyncio.to_thread(free, direct, NAMES)
        for name, task in zip(NAMES, start(client, NAMES), strict=True):
            await check_grant(direct, name, await task)

    for reply in FAILURES.values():
        asyncio.run(main(reply))
        fake_server.recover()


@pytest.mark.chaos
def test_reply_before_the_connection_fails_counts(client: Locks, fake_server: FakeServer, direct: redis.Redis) -> None:
    """[H20] Three calls have their locks; the others are tried again, and don't read those replies."""

    async def main(reply: Reply) -> None:
        await warm(client)
        fake_server.reply_with(lambda client, reply: client.send(reply), of=TRY, times=3)
        fake_server.reply_with(reply, of=TRY)
        grants = await asyncio.gather(*start(client, NAMES, timeout=30))
        for name, grant in zip(NAMES, grants, strict=True):
            await check_grant(direct, name, grant)

    for reply in FAILURES.values():
        asyncio.run(main(reply))
        free(direct, NAMES)
        fake_server.recover()


def test_cancelled_first_request_delays_no_other_reply(
    patient: Locks, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H20] The fifty others are under way, and each gets one reply."""

    async def main() -> None:
        await warm(patient)
        names = [f"m{number}" for number in range(50)]
        gate = Gate()
        fake_server.reply_with(gate, of=TRY)
        tasks = start(patient, names)
        await gate.wait()
        tasks[0].cancel()
        await asyncio.sleep(0)
        fake_server.calls.clear()
        gate.go.set()
        for name, task in zip(names[1:], tasks[1:], strict=True):
            grant = await task
            assert grant is not None
            assert not grant.hold.unanswered
            await check_grant(direct, name, grant)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_task_cancelled_at_any_moment_affects_no_other(
    patient: Locks, fake_server: FakeServer, direct: redis.Redis, seed: int
) -> None:
    """[H20] [H21] Half of the tasks are cancelled while they connect, send, read or release. The others have their own
    locks, and in the end all are free."""
    chance = random.Random(seed)
    names = [f"c{number}" for number in range(12)]

    async def one(name: str) -> None:
        for _ in range(5):
            grant = await patient.lock(name).aacquire(timeout=30)
            assert grant is not None
            await check_grant(direct, name, grant)

    async def main() -> None:
        tasks = [asyncio.create_task(one(name)) for name in names]
        doomed = chance.sample(tasks, 6)
        for task in doomed:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
        results: list[Awaitable[None] | BaseException | None] = list(
            await asyncio.gather(*tasks, return_exceptions=True)
        )
        for task, result in zip(tasks, results, strict=True):
            assert result is None or (task in doomed and isinstance(result, asyncio.CancelledError)), repr(result)

    asyncio.run(main())
    free(direct, names)


@pytest.mark.chaos
def test_silent_connection_ends_by_its_oldest_request(
    client: Locks, fake_server: FakeServer, direct: redis.Redis
) -> None:
    """[H20] [F15] New requests don't prolong the life of a silent connection."""

    async def main() -> None:
        await warm(client)
        fake_server.reply_with(then_silence(b""), times=-1)
        first = asyncio.create_task(client.lock("n0").aacquire(timeout=0))
        others: list[asyncio.Task[Grant | None]] = []
        while not first.done() and len(others) < 60:
            await asyncio.sleep(SILENCE / 3)
            others.append(asyncio.create_task(client.lock(NAMES[1 + len(others) % 7]).aacquire(timeout=0)))
        assert len(others) < 60, "that is ten times as long"
        with pytest.raises(LockBackendError, match="no answer"):
            await first
        for failure in await asyncio.gather(*others, return_exceptions=True):
            assert isinstance(failure, LockBackendError)
        fake_server.recover()

    asyncio.run(main())
    free(direct, NAMES)
