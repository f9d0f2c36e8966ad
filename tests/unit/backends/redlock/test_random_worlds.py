"""Clients and faults at random, in virtual time: one holder per key as long as the premises hold, and fences that grow
beyond them."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from django_redis_locks import LockBackendError
from tests.unit.backends.redlock.world import Client, World, play

SEEDS = int(os.environ.get("REDLOCK_SEEDS", "60"))
CHUNK = 20

LEASE = 3.0


class History:
    """Checks what the clients of one world see."""

    def __init__(self, random: Random, *, exclusive: bool) -> None:
        self.random = random
        self.exclusive = exclusive
        self.inside: str | None = None
        self.last_fence = 0
        self.entered = 0

    async def visit(self, world: World, client: Client) -> None:
        """Try to hold the lock once, for some time."""
        random, token = self.random, client.token()
        begin = world.clock.time
        try:
            granted = await asyncio.wait_for(client.acquire(token, LEASE), random.choice([None, None, None, 0.05]))
            if granted is None:
                return
            fence, deadline = granted
            if world.clock.time < deadline:
                self.enter(token, fence)
                end = world.clock.time + random.choice([0.001, 0.2, 1.0, 4.0])
                while (now := world.clock.time) < min(end, deadline):
                    await asyncio.sleep(min(end - now, deadline - now, random.uniform(0.1, LEASE / 3)))
                    if random.random() < 0.5:
                        deadline = await self.renewed(client, token, deadline)
                self.leave(token)
        except (LockBackendError, TimeoutError):
            pass
        finally:
            assert self.inside != token
            await self.give_back(client, token)
        assert world.clock.time - begin < 60

    def enter(self, token: str, fence: int) -> None:
        assert not (self.exclusive and self.inside), f"{token} entered beside {self.inside}"
        assert fence > self.last_fence, "the fence didn't grow"
        self.last_fence = fence
        self.inside = token
        self.entered += 1

    def leave(self, token: str) -> None:
        if self.inside == token:
            self.inside = None

    async def renewed(self, client: Client, token: str, deadline: float) -> float:
        try:
            held, later = await asyncio.wait_for(
                client.renew(token, LEASE), max(0.001, deadline - client.world.clock.time)
            )
        except (LockBackendError, TimeoutError):
            return deadline
        return max(deadline, later) if held else 0.0

    async def give_back(self, client: Client, token: str) -> None:
        """Release, and repeat that as the maintenance thread does if an attempt may have been carried out."""
        for pause in (0.0, 0.1, 1.0):
            await asyncio.sleep(pause)
            try:
                await client.release(token)
            except LockBackendError:
                continue


def disturbed(world: World, random: Random) -> None:
    """Set the delays and losses of the servers."""
    for server in world.servers:
        trouble = random.choice([0.0, 0.0, 0.02, 0.2])
        slowness = random.choice([0.002, 0.002, 0.05, 0.6])

        def takes(trouble: float = trouble, slowness: float = slowness) -> float | None:
            return None if random.random() < trouble else random.uniform(0.0, slowness)

        server.request_takes = server.reply_takes = takes


async def outages(world: World, random: Random, rounds: int, *, data: str, jumps: bool) -> None:
    """Take servers down and up. They keep their data, or come back empty after the longest lease, or at once."""
    for _ in range(rounds):
        await asyncio.sleep(random.uniform(0.1, 3.0))
        server = random.choice(world.servers)
        if jumps and random.random() < 0.5:
            server.ahead += random.uniform(0.0, 5.0)
            continue
        server.down = True
        await asyncio.sleep(LEASE + 0.1 if data == "away" else random.uniform(0.0, 1.0))
        if data != "kept":
            server.store.clear()
        server.down = False


def run_seed(seed: int, *, exclusive: bool, data: str, jumps: bool) -> History:
    random = Random(seed)
    history = History(random, exclusive=exclusive)

    async def story(world: World) -> None:
        if not jumps and data == "kept":
            for server in world.servers:
                server.ahead = random.uniform(-100.0, 100.0)
        disturbed(world, random)
        clients = [world.client() for _ in range(3)]

        async def live(client: Client) -> None:
            for _ in range(6):
                await history.visit(world, client)
                await asyncio.sleep(random.uniform(0.0, 0.3))

        faults = asyncio.ensure_future(outages(world, random, 4, data=data, jumps=jumps))
        await asyncio.gather(*map(live, clients))
        await faults
        await asyncio.sleep(LEASE)
        assert world.holders() == 0, "something is stuck"

    play(story, servers=random.choice([3, 5, 7]))
    return history


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.parametrize("data", ["kept", "away"])
def test_one_holder_and_growing_fences(data: str, first: int) -> None:
    """Messages are lost and late, servers are away and come back with their data or after the longest lease; clocks differ,
    at the same pace."""
    entered = sum(
        run_seed(seed, exclusive=True, data=data, jumps=False).entered for seed in range(first, first + CHUNK)
    )
    assert entered > CHUNK


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.parametrize(("data", "jumps"), [("lost", False), ("kept", True)], ids=["restart_empty", "clock_jumps"])
def test_fences_grow_beyond_the_premises(data: str, jumps: bool, first: int) -> None:
    """Servers restart empty at once, or their clocks jump ahead: there may be two holders, and the later one has the larger
    fence."""
    for seed in range(first, first + CHUNK):
        run_seed(seed, exclusive=False, data=data, jumps=jumps)
