from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from pottery import AIORedlock, Redlock

from .base import LEASE, WAIT, Adapter, NotAcquired, TaskAdapter


class Pottery(Adapter):
    """With the masters of the URLs, between spaces."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._masters = {redis.Redis.from_url(each) for each in url.split()}

    def acquire(self, key: str) -> Any:
        lock = Redlock(key=key, masters=self._masters, auto_release_time=LEASE)
        if not lock.acquire(timeout=WAIT):
            raise NotAcquired
        return lock

    def release(self, held: Any) -> None:
        held.release()


class PotteryTasks(TaskAdapter):
    async def start(self) -> None:
        self._masters: Any = {redis.asyncio.Redis.from_url(each) for each in self.url.split()}

    async def acquire(self, key: str) -> Any:
        lock = AIORedlock(key=key, masters=self._masters, auto_release_time=LEASE)
        if not await lock.acquire(timeout=WAIT):
            raise NotAcquired
        return lock

    async def release(self, held: Any) -> None:
        await held.release()

    async def close(self) -> None:
        for master in self._masters:
            await master.aclose()
