"""A wrapped cache on each road, and loaders that wait for the test."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Self

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.memcached import PyMemcacheCache

from tests.django.helpers import PATIENCE

WRAPPER = "django_redis_locks.cache.StampedeCache"
REDIS = "django.core.cache.backends.redis.RedisCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
FILES = "django.core.cache.backends.filebased.FileBasedCache"


class Closing(PyMemcacheCache):
    """Each thread has connections of its own, and nobody closes them when it ends."""

    opened: ClassVar[list[PyMemcacheCache]] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.opened.append(self)


MEMCACHED = f"{Closing.__module__}.{Closing.__qualname__}"

PLACES = {REDIS: "redis_url", LOCMEM: "tmp_path", FILES: "tmp_path", MEMCACHED: "memcached"}


def raw_entry(request: pytest.FixtureRequest, kind: str) -> dict[str, Any]:
    """An empty cache of a kind."""
    return {"BACKEND": kind, "LOCATION": str(request.getfixturevalue(PLACES[kind]))}


class Slow:
    """A loader that says that it runs and goes on when it may."""

    def __init__(self, value: Any = "old") -> None:
        self.value = value
        self.runs = threading.Event()
        self.may_go_on = threading.Event()
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        self.runs.set()
        assert self.may_go_on.wait(6 * PATIENCE)  # another process may have to start meanwhile
        return self.value


class Loading:
    """`get_or_set` in another thread, whose loader runs until the block ends; or, if it is `patient`, need not."""

    def __init__(self, key: str = "k", alias: str = "default", value: Any = "old", *, patient: bool = False) -> None:
        self.loader = Slow(value)
        self.result: list[Any] = []
        self._key = key
        self._alias = alias
        self._patient = patient

    def _work(self) -> None:
        try:
            self.result.append(caches[self._alias].get_or_set(self._key, self.loader))
        except Exception as error:  # noqa: BLE001 - the test compares
            self.result.append(error)
        finally:
            self.loader.runs.set()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._patient or self.loader.runs.wait(PATIENCE)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.loader.may_go_on.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class RichCache(LocMemCache):
    """What django-redis and others have besides."""

    colour = "red"

    def ttl(self, key: str, version: int | None = None) -> int | None:
        return 7 if self.has_key(key, version) else None

    def keys(self, pattern: str = "*") -> list[str]:
        return sorted(self._cache)

    def delete_pattern(self, pattern: str) -> int:
        found = list(self._cache)
        for key in found:
            self._delete(key)
        return len(found)

    async def adelete_pattern(self, pattern: str) -> int:
        return self.delete_pattern(pattern)

    def persist(self, key: str, version: int | None = None) -> bool:
        return self.touch(key, None, version)

    def close(self, **kwargs: Any) -> None:
        self.closed = True


RICH = f"{RichCache.__module__}.{RichCache.__qualname__}"
