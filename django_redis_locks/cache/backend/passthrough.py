"""Forwards attributes that Django's caches lack, such as ``delete_pattern`` of django-redis, to the wrapped cache.

A method that may write is guarded like ``clear``: it voids all running loads, since its keys aren't known.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..loading.invalidation import aclear_guard, clear_guard, write_guard
from .sync_in_loop import allowed_in_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.core.cache.backends.base import BaseCache

    from ..loading.coordinator import CacheCoordinator

READERS: Final = frozenset(
    {
        # Methods of django-redis and of caches with the same ones: lifetimes, key names, locks
        *("ttl", "pttl", "expiretime", "keys", "iter_keys", "scan", "exists", "type", "lock", "get_lock", "get_client"),
        *("make_pattern", "reverse_key", "encode", "decode", "info", "memory_usage"),
        # Hashes, lists, sets and sorted sets
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
"""Methods that only read. Their asynchronous versions, with an ``a`` before the name, count as well."""

ONE_KEY: Final = {
    "persist": 1,
    "expire": 2,
    "expire_at": 2,
    "expireat": 2,
    "pexpire": 2,
    "pexpire_at": 2,
    "pexpireat": 2,
}
"""Methods that change the lifetime of one key, with the position of their argument ``version``."""


class Wrapper(Protocol):
    """The members of ``StampedeCache`` that this module uses."""

    @property
    def coordinator(self) -> CacheCoordinator:
        """Coordinates the loads and the invalidations of the wrapped cache."""

    def full_key(self, key: str, version: int | None) -> str:
        """Return the key as the wrapped cache stores it."""


def forward(wrapper: Wrapper, inner: BaseCache, name: str) -> Any:
    """Return an attribute of the wrapped cache; a method that may write is guarded."""
    attribute = getattr(inner, name)
    if name.startswith("_") or not inspect.isroutine(attribute) or not hasattr(type(inner), name):
        return attribute  # internal, or not a method of the class
    if {name, name.removeprefix("a")} & READERS:
        return attribute
    if inspect.iscoroutinefunction(attribute):
        return _aguarded(wrapper, attribute)
    return _guarded(wrapper, attribute, ONE_KEY.get(name))


def _guarded(wrapper: Wrapper, method: Callable[..., Any], version_at: int | None) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if version_at is not None and (args or "key" in kwargs):
            key = args[0] if args else kwargs["key"]
            version = args[version_at] if len(args) > version_at else kwargs.get("version")
            with allowed_in_loop(write_guard(wrapper.coordinator, [wrapper.full_key(key, version)])):
                return method(*args, **kwargs)
        with allowed_in_loop(clear_guard(wrapper.coordinator)):
            return method(*args, **kwargs)

    return call


def _aguarded(wrapper: Wrapper, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with aclear_guard(wrapper.coordinator):
            return await method(*args, **kwargs)

    return call
