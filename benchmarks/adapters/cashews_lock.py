from __future__ import annotations

from typing import Any

from cashews import Cache

from .base import LEASE, TaskAdapter


class CashewsTasks(TaskAdapter):
    async def start(self) -> None:
        self._cache: Any = Cache()
        self._cache.setup(self.url)
        await self._cache.init(self.url)

    async def acquire(self, key: str) -> Any:
        lock = self._cache.lock(key, expire=LEASE)
        await lock.__aenter__()
        return lock

    async def release(self, held: Any) -> None:
        await held.__aexit__(None, None, None)

    async def close(self) -> None:
        await self._cache.close()
