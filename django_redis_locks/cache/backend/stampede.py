"""``StampedeCache``: a cache backend with one load per key in ``get_or_set``, which wraps the cache of another alias.

CACHES = {
    "raw": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://…"},
    "default": {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "raw"},
}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, ClassVar

from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from ...core.owners import running_loop
from ...core.runner import arun, run
from ..api import aget_or_load, get_or_load
from ..loading.coordinator import CacheCoordinator, coordinator_of
from ..loading.invalidation import aclear_guard, awrite_guard, clear_guard, write_guard, write_value
from ..stampede_settings import completed, read_entry
from ..values import Envelope, read_envelope, unwrap
from . import passthrough
from .default_loader import default_loader
from .sync_in_loop import allowed_in_loop


class StampedeCache(BaseCache):
    """A cache backend with one load per key, which wraps the cache of another alias.

    Values, keys, prefix, version and validation are those of the wrapped cache, so each of the two reads what the other
    one wrote. A read costs no additional request; a write voids the running loads of its keys. Attributes that aren't
    defined here are those of the wrapped cache; a call of such a method voids all running loads, unless it is known to
    only read.

    As with all of Django's caches, each thread or task has its own object, and its own wrapped one.
    """

    wraps_alias: ClassVar[bool] = True

    _location: str
    _inner: BaseCache

    def __init__(self, location: str, params: Mapping[str, Any]) -> None:
        # BaseCache.__init__ isn't called: prefix, version and key function are those of the wrapped cache
        using, preset = read_entry(location, params, caches.settings)
        self.__dict__.update(
            _location=location,
            _params=params,
            _inner=caches[location],
            _using=using,
            _preset=preset,
            _ttl=preset["ttl"],
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._location, self._params)  # a copy wraps the cache of its own thread

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.__dict__.get('_location')!r}>"

    # Attributes of the wrapped cache

    def __getattr__(self, name: str) -> Any:
        if "_inner" not in self.__dict__:  # during __init__
            raise AttributeError(name)
        return passthrough.forward(self, self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._inner, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._inner, name)

    @property
    def coordinator(self) -> CacheCoordinator:
        """Coordinates the loads and the invalidations of the wrapped cache."""
        return coordinator_of(self._location, self._using)

    def full_key(self, key: Any, version: Any = None) -> str:
        """Return the key as the wrapped cache stores it, without validation: the wrapped cache validates it, and so
        warns only once."""
        return str(self._inner.make_key(key, version=version))

    def _full_keys(self, keys: Iterable[Any], version: Any) -> list[str]:
        return [self.full_key(key, version) for key in keys]

    @property
    def default_timeout(self) -> float | None:  # type: ignore[override]
        ttl = self._ttl
        return self._inner.default_timeout if ttl is DEFAULT_TIMEOUT else ttl

    def _timeout(self, timeout: Any) -> Any:
        return self._ttl if timeout is DEFAULT_TIMEOUT else timeout

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Any:
        return self._inner.get_backend_timeout(self._timeout(timeout))

    def make_key(self, key: Any, version: Any = None) -> str:
        return self._inner.make_key(key, version=version)

    def validate_key(self, key: str) -> None:
        self._inner.validate_key(key)

    def make_and_validate_key(self, key: Any, version: Any = None) -> Any:
        return self._inner.make_and_validate_key(key, version=version)

    # Loads

    def get_or_set(self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> Any:
        """Return the value of a key. If there is none, one caller in the cluster stores ``default``, or what it
        returns.

        In a thread that runs an event loop this is Django's own ``get_or_set``: a wait would block a load of the same
        loop. Await ``aget_or_set`` there.

        Args:
            key: as for ``get``.
            default: a value, or a callable without arguments or with one, a ``LoadContext``.
            timeout: seconds for which the value is fresh; None: for ever.
            version: as for ``get``.

        Returns:
            The value.

        Raises:
            TypeError: ``default`` is asynchronous.
            LoadError: as ``get_or_load``.
        """
        loader = default_loader(default, asynchronous=False)
        if running_loop() is not None:
            return unwrap(self._inner.get_or_set(key, default, self._timeout(timeout), version))
        return get_or_load(
            key, loader, cache=self._location, version=version, using=self._using, **self._load_options(timeout)
        )

    async def aget_or_set(self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> Any:
        """Return the value of a key. If there is none, one caller in the cluster stores ``default``, or what it
        returns.

        Args:
            key: as for ``aget``.
            default: a value, or a callable, asynchronous or not, without arguments or with one, a ``LoadContext``.
            timeout: seconds for which the value is fresh; None: for ever.
            version: as for ``aget``.

        Returns:
            The value.

        Raises:
            TypeError: ``default`` is a coroutine; pass the function, without calling it.
            LoadError: as ``aget_or_load``.
        """
        loader = default_loader(default, asynchronous=True)
        return await aget_or_load(
            key, loader, cache=self._location, version=version, using=self._using, **self._load_options(timeout)
        )

    def _load_options(self, timeout: Any) -> dict[str, Any]:
        return completed(self._preset, {} if timeout is DEFAULT_TIMEOUT else {"ttl": timeout})

    # Reading

    def get(self, key: Any, default: Any = None, version: Any = None, **extra: Any) -> Any:
        return unwrap(self._inner.get(key, default, version, **extra))

    async def aget(self, key: Any, default: Any = None, version: Any = None, **extra: Any) -> Any:
        return unwrap(await self._inner.aget(key, default, version, **extra))

    def get_many(self, keys: Iterable[Any], version: Any = None, **extra: Any) -> dict[Any, Any]:
        return {key: unwrap(value) for key, value in self._inner.get_many(keys, version, **extra).items()}

    async def aget_many(self, keys: Iterable[Any], version: Any = None, **extra: Any) -> dict[Any, Any]:
        return {key: unwrap(value) for key, value in (await self._inner.aget_many(keys, version, **extra)).items()}

    def has_key(self, key: Any, version: Any = None, **extra: Any) -> bool:
        return self._inner.has_key(key, version, **extra)

    async def ahas_key(self, key: Any, version: Any = None, **extra: Any) -> bool:
        return await self._inner.ahas_key(key, version, **extra)

    # Writing

    def _can_write_in_one_step(self, extra: Any) -> bool:
        """Whether one request can both write the value and void the loads of its key."""
        coordinator = self.coordinator
        return coordinator.is_django_format and not extra and not coordinator.down

    def _encoded(self, key: Any, value: Any, timeout: Any, version: Any) -> tuple[str, int, Any]:
        """Return the full key, the lifetime in milliseconds and the value, each as Django's Redis cache encodes it."""
        full = self._inner.make_and_validate_key(key, version=version)
        seconds = self._inner.get_backend_timeout(self._timeout(timeout))
        return full, -1 if seconds is None else int(seconds * 1000), self.coordinator.values.dumps(value)

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any) -> bool:
        with allowed_in_loop(write_guard(self.coordinator, [self.full_key(key, version)])) as guard:
            added = self._inner.add(key, value, self._timeout(timeout), version, **extra)
            if added:
                guard.wrote()
            return added

    async def aadd(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any
    ) -> bool:
        async with awrite_guard(self.coordinator, [self.full_key(key, version)]) as guard:
            added = await self._inner.aadd(key, value, self._timeout(timeout), version, **extra)
            if added:
                guard.wrote()
            return added

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any) -> Any:
        if self._can_write_in_one_step(extra) and running_loop() is None:
            put = write_value(self.coordinator, *self._encoded(key, value, timeout, version))
            if run(put, self.coordinator.performer):
                return None
        with allowed_in_loop(write_guard(self.coordinator, [self.full_key(key, version)])) as guard:
            result: Any = self._inner.set(key, value, self._timeout(timeout), version, **extra)  # type: ignore[func-returns-value]
            if not extra:  # nx=True may have written nothing
                guard.wrote()
            return result

    async def aset(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any
    ) -> Any:
        if self._can_write_in_one_step(extra):
            put = write_value(self.coordinator, *self._encoded(key, value, timeout, version))
            if await arun(put, self.coordinator.performer):
                return None
        async with awrite_guard(self.coordinator, [self.full_key(key, version)]) as guard:
            result: Any = await self._inner.aset(key, value, self._timeout(timeout), version, **extra)  # type: ignore[func-returns-value]
            if not extra:  # nx=True may have written nothing
                guard.wrote()
            return result

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any) -> bool:
        with allowed_in_loop(write_guard(self.coordinator, [self.full_key(key, version)])):
            return self._inner.touch(key, self._timeout(timeout), version, **extra)

    async def atouch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any) -> bool:
        async with awrite_guard(self.coordinator, [self.full_key(key, version)]):
            return await self._inner.atouch(key, self._timeout(timeout), version, **extra)

    def delete(self, key: Any, version: Any = None, **extra: Any) -> bool:
        with allowed_in_loop(write_guard(self.coordinator, [self.full_key(key, version)])):
            return self._inner.delete(key, version, **extra)

    async def adelete(self, key: Any, version: Any = None, **extra: Any) -> bool:
        async with awrite_guard(self.coordinator, [self.full_key(key, version)]):
            return await self._inner.adelete(key, version, **extra)

    def set_many(self, data: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any) -> list[Any]:
        with allowed_in_loop(write_guard(self.coordinator, self._full_keys(data, version))) as guard:
            failed = self._inner.set_many(data, self._timeout(timeout), version, **extra)
            if not failed:
                guard.wrote()
            return failed

    async def aset_many(
        self, data: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, **extra: Any
    ) -> list[Any]:
        async with awrite_guard(self.coordinator, self._full_keys(data, version)) as guard:
            failed = await self._inner.aset_many(data, self._timeout(timeout), version, **extra)
            if not failed:
                guard.wrote()
            return failed

    def delete_many(self, keys: Iterable[Any], version: Any = None, **extra: Any) -> Any:
        keys = list(keys)
        with allowed_in_loop(write_guard(self.coordinator, self._full_keys(keys, version))):
            return self._inner.delete_many(keys, version, **extra)

    async def adelete_many(self, keys: Iterable[Any], version: Any = None, **extra: Any) -> Any:
        keys = list(keys)
        async with awrite_guard(self.coordinator, self._full_keys(keys, version)):
            return await self._inner.adelete_many(keys, version, **extra)

    def clear(self, **extra: Any) -> Any:
        with allowed_in_loop(clear_guard(self.coordinator)):
            return self._inner.clear(**extra)

    async def aclear(self, **extra: Any) -> Any:
        async with aclear_guard(self.coordinator):
            return await self._inner.aclear(**extra)

    def incr(self, key: Any, delta: int = 1, version: Any = None, **extra: Any) -> int:
        with allowed_in_loop(write_guard(self.coordinator, [self.full_key(key, version)])):
            try:
                return self._inner.incr(key, delta, version, **extra)
            except Exception:
                envelope = self._inner.get(key, None, version)
                if not isinstance(envelope, Envelope):
                    raise
                value, left = _added(envelope, delta)
                self._inner.set(key, value, left, version)
                return value

    async def aincr(self, key: Any, delta: int = 1, version: Any = None, **extra: Any) -> int:
        async with awrite_guard(self.coordinator, [self.full_key(key, version)]):
            try:
                return await self._inner.aincr(key, delta, version, **extra)
            except Exception:
                envelope = await self._inner.aget(key, None, version)
                if not isinstance(envelope, Envelope):
                    raise
                value, left = _added(envelope, delta)
                await self._inner.aset(key, value, left, version)
                return value

    def incr_version(self, key: Any, delta: int = 1, version: Any = None, **extra: Any) -> int:
        with allowed_in_loop(write_guard(self.coordinator, self._both_keys(key, delta, version))):
            return self._inner.incr_version(key, delta, version, **extra)

    async def aincr_version(self, key: Any, delta: int = 1, version: Any = None, **extra: Any) -> int:
        async with awrite_guard(self.coordinator, self._both_keys(key, delta, version)):
            return await self._inner.aincr_version(key, delta, version, **extra)

    def _both_keys(self, key: Any, delta: int, version: Any) -> list[str]:
        old = self._inner.version if version is None else version
        return [self.full_key(key, old), self.full_key(key, old + delta)]

    # decr, adecr, decr_version and adecr_version of BaseCache call the methods above with a negative delta

    def close(self, **extra: Any) -> None:
        self._inner.close(**extra)

    async def aclose(self, **extra: Any) -> None:
        await self._inner.aclose(**extra)


def _added(envelope: Envelope, delta: int) -> tuple[int, int]:
    """Return the sum, and the seconds that are left of the value's ttl."""
    left = read_envelope(envelope).fresh_for or 0.0
    return envelope.value + delta, max(ceil(left), 1)
