from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dogpile.cache import make_region

from .base import LEASE, TTL, Cache


class Distributed(Cache):
    """Its locks have no lease by default."""

    distributed = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        arguments = {"url": url, "redis_expiration_time": 2 * TTL}
        if self.distributed:
            arguments |= {"distributed_lock": True, "lock_timeout": LEASE, "thread_local_lock": False}
        self.region: Any = make_region().configure("dogpile.cache.redis", expiration_time=TTL, arguments=arguments)

    def load(self, key: str, loader: Callable[[], Any]) -> Any:
        return self.region.get_or_create(key, loader)


class Local(Distributed):
    """With locks of each process."""

    distributed = False
