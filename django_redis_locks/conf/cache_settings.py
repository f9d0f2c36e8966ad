"""Reads ``CACHES``: the connection settings for ``CACHE`` in ``REDIS_LOCKS``, and databases that locks shouldn't share.

Locks use the address of a cache, never its client, which may hide errors, read from replicas, or clear the database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.redis import RedisCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..backends.redis.urls import identity
from . import sentinel_caches

_POOL_OPTIONS = {"pool_class", "max_connections", "timeout", "queue_class", "parser_class", "serializer"}
"""Options of a cache that don't apply to a connection, but to its pool or its values."""


WRAPS = "wraps_alias"
"""The attribute of a cache class that wraps the cache whose alias is its LOCATION."""


def wrapped_alias(alias: str) -> tuple[str, str]:
    """Find the cache that stores the values of a cache alias: the cache itself, or the one that it wraps.

    Returns:
        The alias of that cache, and the alias of locks in the wrapper's ``USING``, or "".

    Raises:
        ImproperlyConfigured: the cache wraps itself, or an alias that doesn't exist.
    """
    seen, using = [alias], ""
    while True:
        entry = _caches().get(seen[-1], {})
        if not wraps(entry):
            return seen[-1], using
        using = using or entry.get("OPTIONS", {}).get("USING", "")
        inner = entry.get("LOCATION", "")
        if inner in seen or inner not in list(_caches()):
            raise ImproperlyConfigured(f"CACHES[{alias!r}] wraps no cache: {' → '.join(map(str, [*seen, inner]))}")
        seen.append(inner)


def wraps(entry: Any) -> bool:
    """Return whether an entry of ``CACHES`` wraps another alias. False if its class can't be imported."""
    try:
        return hasattr(import_string(entry["BACKEND"]), WRAPS)
    except (ImportError, KeyError, TypeError, AttributeError):
        return False


def why_not_usable(alias: object) -> tuple[str, str] | None:
    """Return why locks can't use the connection settings of a cache alias, as the id of a check and a sentence; None if
    they can."""
    try:
        entry = _caches().get(wrapped_alias(alias)[0]) if isinstance(alias, str) else None
    except ImproperlyConfigured as error:
        return "E009", str(error)
    if entry is None:
        return "E008", f"{alias!r} isn't in CACHES."
    if not _is_redis(entry) or not _locations(entry):
        return "E009", f"{alias!r} isn't a plain Redis cache."
    return None


def connection_settings(alias: str) -> tuple[str, dict[str, Any]]:
    """Return the URL of a cache's first server, which receives its writes, and the options of the connection."""
    entry = _caches()[wrapped_alias(alias)[0]]
    return _locations(entry)[0], _options(entry)


def _options(entry: dict[str, Any]) -> dict[str, Any]:
    options = dict(entry.get("OPTIONS", {}))
    if _is_django_redis(entry):
        pool = dict(options.get("CONNECTION_POOL_KWARGS", {}))
        names = {
            "USERNAME": "username",
            "PASSWORD": "password",
            "SOCKET_TIMEOUT": "socket_timeout",
            "SOCKET_CONNECT_TIMEOUT": "socket_connect_timeout",
        }
        sentinels = sentinel_caches.options(entry) if sentinel_caches.has_sentinels(entry) else {}
        options = pool | {argument: options[setting] for setting, argument in names.items() if setting in options}
        options |= sentinels
    return {
        key: value
        for key, value in options.items()
        # A cache may have unlimited timeouts (None), but a lock may not
        if key not in _POOL_OPTIONS and (value is not None or not key.endswith("timeout"))
    }


def shares_database(location: str, options: Mapping[str, Any]) -> bool:
    """Return whether a cache uses the database of a URL with these options."""
    if "://" not in location:
        return False
    own = identity(location, options)
    return any(_identity(other, theirs) == own for _, other, theirs in redis_caches())


def redis_caches() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Iterate over the servers of all Redis caches: the cache's alias, the URL, the options of the connection."""
    for alias, entry in _caches().items():
        if _is_redis(entry):
            for location in _locations(entry):
                yield alias, location, _options(entry)


def _identity(location: str, options: Mapping[str, Any]) -> str | None:
    try:
        return identity(location, options)
    except ValueError:  # an invalid port, with which the cache can't work either
        return None


def _caches() -> dict[str, dict[str, Any]]:
    try:
        found: dict[str, dict[str, Any]] = caches.settings
    except ImproperlyConfigured:  # Django's settings aren't configured
        return {}
    return found


def _locations(entry: dict[str, Any]) -> list[str]:
    location = entry.get("LOCATION", "")
    parts = [part for part in (re.split("[;,]", location) if isinstance(location, str) else location) if part]
    if _is_django_redis(entry) and sentinel_caches.has_sentinels(entry):
        return sentinel_caches.locations(entry, parts)
    return parts


def _is_django_redis(entry: dict[str, Any]) -> bool:
    return str(entry.get("BACKEND", "")).startswith("django_redis.")


def _is_redis(entry: dict[str, Any]) -> bool:
    if _is_django_redis(entry):
        client = str(entry.get("OPTIONS", {}).get("CLIENT_CLASS", ""))
        if client.endswith(".SentinelClient"):
            return sentinel_caches.has_sentinels(entry)
        return not client or client.endswith(".DefaultClient")
    try:
        backend = import_string(entry["BACKEND"])
    except (ImportError, KeyError, TypeError):
        return False
    return isinstance(backend, type) and issubclass(backend, RedisCache)
