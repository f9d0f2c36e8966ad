from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cashews import Cache

from .base import TTL, TaskCache


class Cashews(TaskCache):
    """Its lock has the TTL of the value as lease."""

    async def start(self) -> None:
        cache: Any = Cache()
        cache.setup(self.url)
        await cache.init(self.url)

        async def load(key: str, loader: Callable[[], Awaitable[Any]]) -> Any:
            return await loader()

        self._load: Any = cache(ttl=TTL, key="{key}", lock=True)(load)

    async def load(self, key: str, loader: Callable[[], Awaitable[Any]]) -> Any:
        return await self._load(key, loader)
