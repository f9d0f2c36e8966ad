"""Entries of CACHES and REDIS_LOCKS for tests: each kind of cache, by two aliases as if for two processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from django.conf import settings
from django.core.cache.backends.memcached import PyMemcacheCache

WRAPPER = "django_redis_locks.cache.StampedeCache"
REDIS = "django.core.cache.backends.redis.RedisCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
FILES = "django.core.cache.backends.filebased.FileBasedCache"
DUMMY = "django.core.cache.backends.dummy.DummyCache"

HERE, THERE = "here", "there"
"""Aliases of one cache that share no state in this process, as if they were used by two processes."""


class TrackedPyMemcacheCache(PyMemcacheCache):
    """Keeps its instances for ``close``: Django doesn't close the connections of threads that end."""

    opened: ClassVar[list[PyMemcacheCache]] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.opened.append(self)


MEMCACHED = f"{TrackedPyMemcacheCache.__module__}.{TrackedPyMemcacheCache.__qualname__}"

LOCATION_FIXTURES = {REDIS: "redis_url", LOCMEM: "tmp_path", FILES: "tmp_path", MEMCACHED: "memcached"}


def cache_entry(request: pytest.FixtureRequest, kind: str) -> dict[str, Any]:
    """The entry of an empty cache of this kind."""
    return {"BACKEND": kind, "LOCATION": str(request.getfixturevalue(LOCATION_FIXTURES[kind]))}


def redis_locks(url: str, **entry: Any) -> dict[str, Any]:
    """Entries of REDIS_LOCKS: one server by two host names."""
    return {
        name: {**entry, "LOCATION": url.replace("127.0.0.1", host)}
        for name, host in ((HERE, "127.0.0.1"), (THERE, "localhost"))
    }


def redis_caches(url: str, **entry: Any) -> dict[str, Any]:
    """Entries of CACHES: one database of one server by two host names."""
    return redis_locks(url, **{"BACKEND": REDIS, **entry})


def at(name: str) -> dict[str, str]:
    """The arguments ``cache`` and ``using`` of a caller HERE or THERE. Without Redis as cache only ``using`` differs,
    because the keys of leases then contain the alias of the cache."""
    return {"cache": name if settings.CACHES[HERE]["BACKEND"].endswith(".RedisCache") else HERE, "using": name}


class _CurrentTenant(threading.local):
    tenant = "public"


_current = _CurrentTenant()


@contextmanager
def as_tenant(name: str) -> Iterator[None]:
    """Run the block as a tenant, in this thread."""
    _current.tenant, before = name, _current.tenant
    try:
        yield
    finally:
        _current.tenant = before


def key_of_tenant(key: str, prefix: str, version: int) -> str:
    """Add the current tenant to keys, as libraries for tenants do by KEY_FUNCTION."""
    return f"{_current.tenant}:{prefix}:{version}:{key}"


def with_tenant_keys(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: {**entry, "KEY_FUNCTION": key_of_tenant} for name, entry in entries.items()}


# Kinds of caches; each returns the entries HERE and THERE


def redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    return redis_caches(request.getfixturevalue("redis_url"))


def proxied(request: pytest.FixtureRequest) -> dict[str, Any]:
    """On Redis, through the proxy of the fixture ``proxy``."""
    return redis_caches(request.getfixturevalue("proxy").url)


def django_redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    """django-redis, with compression."""
    options = {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"}
    return redis_caches(request.getfixturevalue("redis_url"), BACKEND="django_redis.cache.RedisCache", OPTIONS=options)


def _with_leases_on_redis(request: pytest.FixtureRequest, kind: str) -> dict[str, Any]:
    request.getfixturevalue("settings").REDIS_LOCKS = redis_locks(request.getfixturevalue("redis_url"))
    entry = cache_entry(request, kind)
    return {HERE: entry, THERE: entry}


def files(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Values in files, leases on Redis."""
    return _with_leases_on_redis(request, FILES)


def memcached(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Values in memcached, leases on Redis."""
    return _with_leases_on_redis(request, MEMCACHED)


def locmem(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Values and leases in this process."""
    entry = {"BACKEND": LOCMEM, "LOCATION": request.node.name}
    return {HERE: entry, THERE: entry}
