"""Django caches and their `get_or_set`. Values are in one Redis database, locks in another one.

`get` is the cache's own method: the minimum cost of a hit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.cache import cache, caches

from .base import TTL, Cache

BACKENDS = {
    "django": "django.core.cache.backends.redis.RedisCache",
    "django-redis": "django_redis.cache.RedisCache",
    "python-redis-lock": "redis_lock.django_cache.RedisCache",
    "locmem": "django.core.cache.backends.locmem.LocMemCache",
}
GUARDED = "django_redis_locks.cache.StampedeCache"


def configure(url: str, name: str) -> None:
    """Configure this cache as `default`, and a StampedeCache of it as `guarded`."""
    base = url.rpartition("/")[0]
    own = {"BACKEND": BACKENDS[name], "LOCATION": "bench" if name == "locmem" else f"{base}/1"}
    guarded = {"BACKEND": GUARDED, "LOCATION": "default"}
    settings.configure(CACHES={"default": own, "guarded": guarded}, REDIS_LOCKS={"default": {"LOCATION": url}})


class Django(Cache):
    """`get_or_set`."""

    name = "django"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        configure(url, self.name)

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        return cache.get_or_set(key, loader, TTL)

    def get(self, key: str) -> Callable[[], Any]:
        """Return a function that reads a key that is cached."""
        get = caches["default"].get
        return lambda: get(key)


class DjangoRedis(Django):
    name = "django-redis"


class Locmem(Django):
    name = "locmem"


class PythonRedisLock(Django):
    """Its locks have no lease by default."""

    name = "python-redis-lock"

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        own: Any = cache
        return own.locked_get_or_set(key, loader, timeout=TTL)
