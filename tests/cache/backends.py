"""Settings of caches for tests: of each kind, alone or as two processes see it."""

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
"""Aliases of one cache that share nothing in this process: what one loads, the other one learns from the store only."""


class Closing(PyMemcacheCache):
    """Each thread has connections of its own, which Django doesn't close when the thread ends."""

    opened: ClassVar[list[PyMemcacheCache]] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.opened.append(self)


MEMCACHED = f"{Closing.__module__}.{Closing.__qualname__}"

PLACES = {REDIS: "redis_url", LOCMEM: "tmp_path", FILES: "tmp_path", MEMCACHED: "memcached"}


def cache_entry(request: pytest.FixtureRequest, kind: str) -> dict[str, Any]:
    """An empty cache of a kind."""
    return {"BACKEND": kind, "LOCATION": str(request.getfixturevalue(PLACES[kind]))}


def redis_locks(url: str, **entry: Any) -> dict[str, Any]:
    """One server under two names: entries of locks."""
    return {
        name: {**entry, "LOCATION": url.replace("127.0.0.1", host)}
        for name, host in ((HERE, "127.0.0.1"), (THERE, "localhost"))
    }


def redis_caches(url: str, **entry: Any) -> dict[str, Any]:
    """One database of one server under two names: entries of caches."""
    return redis_locks(url, **{"BACKEND": REDIS, **entry})


def at(name: str) -> dict[str, str]:
    """The arguments ``cache`` and ``using`` of a caller here, or there. The leases of a cache that isn't on Redis bear its
    alias, so that there only the alias of the locks differs."""
    return {"cache": name if settings.CACHES[HERE]["BACKEND"].endswith(".RedisCache") else HERE, "using": name}


class _Here(threading.local):
    tenant = "public"


_here = _Here()


@contextmanager
def as_tenant(name: str) -> Iterator[None]:
    """This thread has that tenant."""
    _here.tenant, before = name, _here.tenant
    try:
        yield
    finally:
        _here.tenant = before


def key_of_tenant(key: str, prefix: str, version: int) -> str:
    """As a library for tenants has it: ``KEY_FUNCTION`` of the caches of ``by_tenant``."""
    return f"{_here.tenant}:{prefix}:{version}:{key}"


def by_tenant(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: {**entry, "KEY_FUNCTION": key_of_tenant} for name, entry in entries.items()}


# Kinds of caches; each returns the entries HERE and THERE


def redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    return redis_caches(request.getfixturevalue("redis_url"))


def proxied(request: pytest.FixtureRequest) -> dict[str, Any]:
    """On Redis, behind the proxy of the fixture ``proxy``."""
    return redis_caches(request.getfixturevalue("proxy").url)


def django_redis(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Another cache on Redis, with serializers of its own."""
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
