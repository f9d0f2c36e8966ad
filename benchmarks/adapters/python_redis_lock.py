from __future__ import annotations

from typing import Any

import redis
import redis_lock

from .base import LEASE, Adapter, NotAcquired


class PythonRedisLock(Adapter):
    """Its waiters block in Redis, so that redis-py's default socket timeout of 5 s must be off."""

    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client: Any = redis.Redis.from_url(url, socket_timeout=None, **self.options)

    def acquire(self, key: str) -> Any:
        lock = redis_lock.Lock(self.client, key, expire=LEASE)
        if not lock.acquire():
            raise NotAcquired
        return lock

    def release(self, held: Any) -> None:
        held.release()

    def hold(self, key: str, lease: float) -> Any:
        lock = redis_lock.Lock(self.client, key, expire=int(lease), auto_renewal=True)
        if not lock.acquire(blocking=False):
            raise NotAcquired
        return lock

    def owns(self, held: Any) -> bool:
        return bool(held.get_owner_id() == held.id)


class PythonRedisLockBigPool(PythonRedisLock):
    options = {"max_connections": 5000}  # noqa: RUF012
