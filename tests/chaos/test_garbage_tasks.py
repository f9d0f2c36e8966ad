"""Many tasks of one loop, and a server in trouble. They share a connection, and no one's trouble is another one's."""

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
from tests.chaos.helpers import fence_of
from tests.chaos.impostor import End, Impostor, Say, then_close, then_silence
from tests.waiting import BUSY, eventually

Open = Callable[..., Locks]
TRY = "lock/acquire"
NAMES = [f"n{number}" for number in range(8)]
DEATHS: dict[str, Say] = {
    "closed": then_close(b""),
    "closed in the middle": then_close(b"*5\r\n:1\r\n"),
    "silent": then_silence(b""),
    "silent in the middle": then_silence(b"*5\r\n:1\r\n"),
    "no RESP": lambda end, reply: end.send(b"<html>\r\n"),
}


class Gate:
    """Holds the next answer back until it may go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, end: End, reply: bytes) -> None:
        self.reached.set()
        self.go.wait(60)
        end.send(reply)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 20)


@pytest.fixture
def client(impostor: Impostor, open_locks: Open) -> Locks:
    return open_locks(impostor.url, EXPIRE=60, OPTIONS={"socket_timeout": 2 * SILENCE})


@pytest.fixture
def patient(impostor: Impostor, open_locks: Open) -> Locks:
    """Where nobody falls silent: a busy machine may take a second to answer."""
    return open_locks(impostor.url, EXPIRE=60, OPTIONS={"socket_timeout": 30})


async def warm(client: Locks) -> None:
    """The scripts are loaded, and there is a connection."""
    async with client.lock("warm up") as grant:
        await grant.aextend(60)


def start(client: Locks, names: list[str], timeout: float = 0) -> list[asyncio.Task[Grant | None]]:
    return [asyncio.create_task(client.lock(name).aacquire(timeout=timeout)) for name in names]


async def true(direct: redis.Redis, name: str, grant: object) -> None:
    """It is the grant of this key, and it can be given back; task and owner differ."""
    assert isinstance(grant, Grant), grant
    assert grant.key == name
    assert fence_of(direct, f"lock:{{0}}:k:{name}") == grant.fence
    await grant.arelease()
    assert not direct.exists(f"lock:{{0}}:k:{name}")


def free(direct: redis.Redis, names: list[str]) -> None:
    eventually(lambda: not direct.exists(*(f"lock:{{0}}:k:{name}" for name in names)))


@pytest.mark.parametrize("leave", ["cancel", "timeout"])
@pytest.mark.parametrize("who", [0, 3])
def test_cancelled_task_leaves_other_requests_alone(
    patient: Locks, impostor: Impostor, direct: redis.Redis, leave: str, who: int
) -> None:
    """[H20] His answer still comes, and is nobody's; what he may have got is swept."""

    async def main() -> None:
        await warm(patient)
        gate = Gate()
        impostor.say(gate, of=TRY, times=-1)
        tasks = start(patient, NAMES)
        await gate.wait()
        if leave == "cancel":
            tasks[who].cancel()
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await tasks[who]
        with pytest.raises(asyncio.CancelledError):
            await tasks[who]
        gate.go.set()
        for index, (name, task) in enumerate(zip(NAMES, tasks, strict=True)):
            if index != who:
                await true(direct, name, await task)

    asyncio.run(main())
    free(direct, NAMES)


@pytest.mark.chaos
@pytest.mark.parametrize("what", DEATHS)
def test_a_dead_connection_leaves_all_unanswered_and_each_is_tried_again(
    client: Locks, impostor: Impostor, direct: redis.Redis, what: str
) -> None:
    """[H20] [H15] Whoever is willing to wait gets his lock, on the next connection."""

    async def main() -> None:
        await warm(client)
        impostor.say(DEATHS[what], of=TRY)
        grants = await asyncio.gather(*start(client, NAMES, timeout=30))
        for name, grant in zip(NAMES, grants, strict=True):
            await true(direct, name, grant)

    asyncio.run(main())
    free(direct, NAMES)


@pytest.mark.chaos
@pytest.mark.parametrize("what", DEATHS)
def test_a_dead_connection_leaves_nothing_behind(
    client: Locks, impostor: Impostor, direct: redis.Redis, what: str
) -> None:
    """[H20] [L16] Those who don't wait are told that they weren't answered, each with his own name, and what the server
    did for them is swept."""

    async def main() -> None:
        await warm(client)
        impostor.say(DEATHS[what], of=TRY, times=-1)
        begin = clock.now()
        results = await asyncio.gather(*start(client, NAMES), return_exceptions=True)
        assert clock.now() - begin < 2 * SILENCE + BUSY
        for name, failure in zip(NAMES, results, strict=True):
            assert isinstance(failure, LockBackendError), failure
            assert (failure.key, failure.alias, failure.unanswered) == (name, "default", True)
            assert "no answer from redis://127.0.0.1:" in str(failure)
        impostor.well()
        await asyncio.to_thread(free, direct, NAMES)
        for name, task in zip(NAMES, start(client, NAMES), strict=True):
            await true(direct, name, await task)

    asyncio.run(main())


@pytest.mark.chaos
@pytest.mark.parametrize("what", DEATHS)
def test_an_answer_before_the_death_counts(client: Locks, impostor: Impostor, direct: redis.Redis, what: str) -> None:
    """[H20] Whoever was answered has his lock; the others are tried again, and not told his answer."""

    async def main() -> None:
        await warm(client)
        impostor.say(lambda end, reply: end.send(reply), of=TRY, times=3)
        impostor.say(DEATHS[what], of=TRY)
        grants = await asyncio.gather(*start(client, NAMES, timeout=30))
        for name, grant in zip(NAMES, grants, strict=True):
            await true(direct, name, grant)

    asyncio.run(main())
    free(direct, NAMES)


def test_a_slow_answer_makes_none_of_the_others_ambiguous(
    patient: Locks, impostor: Impostor, direct: redis.Redis
) -> None:
    """[H20] One caller's patience ends while fifty others are under way: they are answered, once each."""

    async def main() -> None:
        await warm(patient)
        names = [f"m{number}" for number in range(50)]
        gate = Gate()
        impostor.say(gate, of=TRY)
        tasks = start(patient, names)
        await gate.wait()
        tasks[0].cancel()
        await asyncio.sleep(0)
        impostor.calls.clear()
        gate.go.set()
        for name, task in zip(names[1:], tasks[1:], strict=True):
            grant = await task
            assert grant is not None
            assert not grant.hold.unanswered
            await true(direct, name, grant)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_leaving_at_any_moment(patient: Locks, impostor: Impostor, direct: redis.Redis, seed: int) -> None:
    """[H20] [H21] Half of a crowd is cancelled, wherever they are: connecting, sending, reading, releasing. The others
    have their own locks, and in the end all is free."""
    chance = random.Random(seed)
    names = [f"c{number}" for number in range(12)]

    async def one(name: str) -> None:
        for _ in range(5):
            grant = await patient.lock(name).aacquire(timeout=30)
            assert grant is not None
            await true(direct, name, grant)

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
def test_callers_come_and_go_while_the_server_is_silent(client: Locks, impostor: Impostor, direct: redis.Redis) -> None:
    """[H20] [F15] New callers don't make a silent connection live longer: its end counts from the oldest question."""

    async def main() -> None:
        await warm(client)
        impostor.say(then_silence(b""), times=-1)
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
        impostor.well()

    asyncio.run(main())
    free(direct, NAMES)
