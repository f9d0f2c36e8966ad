"""Loads of this library, by its public API, with default settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.core.cache import caches

from django_redis_locks.cache import aget_or_load, get_or_load

from .base import TTL, TaskCache
from .caches import Django, configure


def no_loader() -> Any:
    raise RuntimeError("it isn't a hit")


class Ours(Django):
    """`get_or_load` on Django's own cache."""

    package = "django_redis_locks"

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        return get_or_load(key, loader, ttl=TTL)

    def get(self, key: str) -> Callable[[], Any]:
        return lambda: get_or_load(key, no_loader, ttl=TTL)


class OursDjangoRedis(Ours):
    name = "django-redis"


class OursLocmem(Ours):
    name = "locmem"


class OursTasks(TaskCache):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        configure(url, "django")

    async def load(self, key: str, loader: Callable[[], Awaitable[Any]]) -> Any:
        return await aget_or_load(key, loader, ttl=TTL)


class Guarded(Django):
    """`StampedeCache`: its `get_or_set` loads once."""

    package = Ours.package

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        return caches["guarded"].get_or_set(key, loader, TTL)

    def get(self, key: str) -> Callable[[], Any]:
        get = caches["guarded"].get
        return lambda: get(key)


class GuardedOrSet(Guarded):
    def get(self, key: str) -> Callable[[], Any]:
        get_or_set = caches["guarded"].get_or_set
        return lambda: get_or_set(key, no_loader, TTL)
