"""redis-py's own Lock, sync and asyncio, with a default client."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio

from .base import LEASE, LONG, WAIT, Adapter, NotAcquired, TaskAdapter


class RedisPy(Adapter):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client: Any = redis.Redis.from_url(url)

    def acquire(self, key: str) -> Any:
        lock = self.client.lock(key, timeout=LEASE, blocking_timeout=WAIT)
        if not lock.acquire():
            raise NotAcquired
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def occupy(self, key: str) -> None:
        self.client.lock(key, timeout=LONG).acquire()


class RedisPyBigPool(RedisPy):
    """With a pool that has a connection for every waiter."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client = redis.Redis.from_url(url, max_connections=5000)


class Baton(Adapter):
    """The baton of `raw.Baton`, passed with redis-py: the minimum of a hand-over for a library on redis-py."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client: Any = redis.Redis.from_url(url, socket_timeout=None)  # its default is 5 s

    def prepare(self, key: str) -> None:
        self.client.lpush(key, 1)

    def acquire(self, key: str) -> str:
        self.client.blpop(key)
        return key

    def release(self, held: str) -> None:
        self.client.lpush(held, 1)


class ThreeReads(Adapter):
    """No lock. Acquire and release read a value too, so that a read takes three round trips, as under a lock."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client: Any = redis.Redis.from_url(url)

    def acquire(self, key: str) -> str:
        self.client.get(key)
        return key

    def release(self, held: str) -> None:
        self.client.get(held)


class RedisPyTasks(TaskAdapter):
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    async def start(self) -> None:
        self.client: Any = redis.asyncio.Redis.from_url(self.url, **self.options)

    async def acquire(self, key: str) -> Any:
        lock = self.client.lock(key, timeout=LEASE, blocking_timeout=WAIT)
        if not await lock.acquire():
            raise NotAcquired
        return lock

    async def release(self, held: Any) -> None:
        await held.release()

    async def close(self) -> None:
        await self.client.aclose()


class RedisPyTasksBigPool(RedisPyTasks):
    options = {"max_connections": 5000}  # noqa: RUF012
