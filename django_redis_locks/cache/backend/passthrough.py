"""What a wrapped cache has and Django's caches don't, such as ``ttl`` and ``delete_pattern`` of django-redis.

A method that may write is fenced like ``clear``: nobody knows which keys it means, so every load that runs is void.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..loading.invalidation import aclear_guard, clear_guard, write_guard
from .sync_in_loop import anywhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.core.cache.backends.base import BaseCache

    from ..loading.coordinator import CacheCoordinator

READERS: Final = frozenset(
    {
        # Of django-redis and those who follow it: lifetimes, names of keys, locks
        *("ttl", "pttl", "expiretime", "keys", "iter_keys", "scan", "exists", "type", "lock", "get_lock", "get_client"),
        *("make_pattern", "reverse_key", "encode", "decode", "info", "memory_usage"),
        # What reads hashes, sets and lists
        *("hget", "hmget", "hgetall", "hkeys", "hvals", "hlen", "hexists", "llen", "lindex", "lrange", "lpos"),
        *(
            "scard",
            "sismember",
            "smismember",
            "smembers",
            "srandmember",
            "sscan",
            "sscan_iter",
            "sdiff",
            "sinter",
            "sunion",
        ),
        *("zcard", "zcount", "zrange", "zrank", "zscore", "zmscore"),
    }
)
"""They store nothing. An ``a`` before a name makes it the asynchronous twin."""

ONE_KEY: Final = {
    "persist": 1,
    "expire": 2,
    "expire_at": 2,
    "expireat": 2,
    "pexpire": 2,
    "pexpire_at": 2,
    "pexpireat": 2,
}
"""They change the lifetime of one key: where their ``version`` stands."""


class Wrapper(Protocol):
    """The members of ``StampedeCache`` that this module uses."""

    @property
    def coordinator(self) -> CacheCoordinator: ...
    def full_key(self, key: str, version: int | None) -> str: ...


def forward(outer: Wrapper, inner: BaseCache, name: str) -> Any:
    """The attribute of the wrapped cache."""
    found = getattr(inner, name)
    if name.startswith("_") or not inspect.isroutine(found) or not hasattr(type(inner), name):
        return found  # no method of its class; who uses what is internal knows what he does
    if {name, name.removeprefix("a")} & READERS:
        return found
    if inspect.iscoroutinefunction(found):
        return _afenced(outer, found)
    return _fenced(outer, found, ONE_KEY.get(name))


def _fenced(outer: Wrapper, method: Callable[..., Any], version_at: int | None) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if version_at is not None and (args or "key" in kwargs):
            key = args[0] if args else kwargs["key"]
            version = args[version_at] if len(args) > version_at else kwargs.get("version")
            with anywhere(write_guard(outer.coordinator, [outer.full_key(key, version)])):
                return method(*args, **kwargs)
        with anywhere(clear_guard(outer.coordinator)):
            return method(*args, **kwargs)

    return call


def _afenced(outer: Wrapper, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with aclear_guard(outer.coordinator):
            return await method(*args, **kwargs)

    return call
