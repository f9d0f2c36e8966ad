"""The load of one value, as the suites see it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from django_redis_locks import locks
from django_redis_locks.core import clock
from django_redis_locks.core.effects import Command, Place, Program
from django_redis_locks.core.keys import Spelling
from django_redis_locks.core.owners import running_loop
from django_redis_locks.core.runner import arun, run
from django_redis_locks.primitives.asking import asking
from django_redis_locks.primitives.load import (
    Claim,
    Claiming,
    Load,
    LoadKeys,
    blocking,
    clearing,
    reading,
    unblocking,
)
from tests.contract.matrix import PATIENCE, Caller, eventually, seats_of

MINUTE = 60_000
SOON = 0.05
"""Seconds: a lease that a test lets run out."""


class Desk:
    """The load of one value, for callers of either kind. ``fused``: the value is on the store, too. All keys share a hash
    tag, so that a Cluster has them in one slot."""

    def __init__(self, key: str, value: str = "v", *, fused: bool = True) -> None:
        engine = locks["default"].engine
        tag = f"{{{key}}}"
        keys = LoadKeys(
            lease=f"{tag}:k:{value}",
            waiters=f"{tag}:w:{value}",
            generation=f"{tag}:generation",
            settling=f"{tag}:s:{value}",
            value=f"{tag}:{value}" if fused else "",
            inbox=Spelling("lock", engine.backend.buckets).of(key).inbox,
        )
        self.engine = engine
        self.load = Load(engine, Place(engine.backend.identity, keys.lease), keys, "report", "default")

    def _wish(self, wait: float, lease: float, **how: Any) -> Claiming:
        how.setdefault("fresh_above", 0)
        return Claiming(wait, running_loop(), lease=round(lease * 1000), **how)

    def claim(self, token: str = "", *, wait: float = 0.0, lease: float = 60, **how: Any) -> Claim:
        return run(self.load.claiming(self._wish(wait, lease, token=token, **how)), self.engine)

    async def aclaim(self, token: str = "", *, wait: float = 0.0, lease: float = 60, **how: Any) -> Claim:
        return await arun(self.load.claiming(self._wish(wait, lease, token=token, **how)), self.engine)

    def store(self, token: str, value: Any = b"new", keep: int = MINUTE, hold: Any = None) -> bool:
        return run(self.load.storing(token, keep, value, hold), self.engine)

    async def astore(self, token: str, value: Any = b"new", keep: int = MINUTE, hold: Any = None) -> bool:
        return await arun(self.load.storing(token, keep, value, hold), self.engine)

    def give_up(self, token: str, keep: int = 0, why: str = "") -> bool:
        return run(self.load.giving_up(token, None, keep, why), self.engine)

    async def agive_up(self, token: str, keep: int = 0, why: str = "") -> bool:
        return await arun(self.load.giving_up(token, None, keep, why), self.engine)

    def check(self, token: str, lease: int = MINUTE) -> tuple[bool, int]:
        return run(self.load.checking(token, lease), self.engine)

    async def acheck(self, token: str, lease: int = MINUTE) -> tuple[bool, int]:
        return await arun(self.load.checking(token, lease), self.engine)

    def fence(self, keep: int = 0, settle: int = 0) -> bool:
        return run(self.load.fencing(keep, settle), self.engine)

    async def afence(self, keep: int = 0, settle: int = 0) -> bool:
        return await arun(self.load.fencing(keep, settle), self.engine)

    def read(self) -> tuple[int, Any]:
        return run(_of(reading((self.load.keys.value,))), self.engine)[0]

    async def aread(self) -> tuple[int, Any]:
        return (await arun(_of(reading((self.load.keys.value,))), self.engine))[0]

    def clear(self) -> None:
        run(_of(clearing(self.load.keys.generation)), self.engine)

    async def aclear(self) -> None:
        await arun(_of(clearing(self.load.keys.generation)), self.engine)

    def block(self, token: str, *others: Desk, lease: int = MINUTE) -> None:
        run(_of(blocking([self.load, *(other.load for other in others)], token, lease)), self.engine)

    async def ablock(self, token: str, *others: Desk, lease: int = MINUTE) -> None:
        await arun(_of(blocking([self.load, *(other.load for other in others)], token, lease)), self.engine)

    def unblock(self, token: str, *others: Desk) -> None:
        run(_of(unblocking([self.load, *(other.load for other in others)], token)), self.engine)

    async def aunblock(self, token: str, *others: Desk) -> None:
        await arun(_of(unblocking([self.load, *(other.load for other in others)], token)), self.engine)

    # No I/O

    def in_line(self) -> bool:
        """Those who wait are in the store's line, so that it can tell them."""
        homes = self.engine._queues._queues.get(self.load.place, {})
        return all(queue.answered == queue.wakes and queue.arrival for queue in list(homes.values()))

    def start_waiting(self, caller: Caller, **how: Any) -> Future[Any]:
        """Have a caller wait for the load, and return when it does. It waits for longer than tests do: its last try would
        find what nobody told it."""
        before = seats_of(self.load.place)
        future = caller.start(self.claim, **{"wait": 2 * PATIENCE, **how})
        eventually(lambda: future.done() or (not before.issuperset(seats_of(self.load.place)) and self.in_line()))
        return future


def _of(command: Command[Any]) -> Program[Any]:
    """What sends it, once more if the connection had been closed while it lay idle."""
    reply, _, _ = yield from asking(command, clock.now())
    return reply


MINE, THEIRS, NEXT = "mine-token", "their-token", "next-token"
