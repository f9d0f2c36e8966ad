from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.cache import caches

from .base import LEASE, WAIT, Adapter, NotAcquired


class DjangoRedis(Adapter):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        if not settings.configured:
            settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}})
        self._cache: Any = caches["default"]

    def acquire(self, key: str) -> Any:
        lock = self._cache.lock(key, timeout=LEASE, blocking_timeout=WAIT)
        if not lock.acquire():
            raise NotAcquired
        return lock

    def release(self, held: Any) -> None:
        held.release()
