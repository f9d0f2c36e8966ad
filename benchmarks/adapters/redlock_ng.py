"""redlock-ng. It requires redis-py below 6, and so a virtual environment of its own."""

from __future__ import annotations

from typing import Any

from redlock import AsyncRedlock, Redlock

from .base import LEASE, Adapter, NotAcquired, TaskAdapter


class RedlockNg(Adapter):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._redlock: Any = Redlock(url.split())

    def acquire(self, key: str) -> Any:
        lock = self._redlock.acquire(key, LEASE * 1000, blocking=True)
        if lock is None:
            raise NotAcquired
        return lock

    def release(self, held: Any) -> None:
        self._redlock.release(held)


class RedlockNgTasks(TaskAdapter):
    async def start(self) -> None:
        self._redlock: Any = AsyncRedlock(self.url.split())

    async def acquire(self, key: str) -> Any:
        lock = await self._redlock.acquire(key, LEASE * 1000, blocking=True)
        if lock is None:
            raise NotAcquired
        return lock

    async def release(self, held: Any) -> None:
        await self._redlock.release(held)
