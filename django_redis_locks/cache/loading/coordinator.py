"""``CacheCoordinator``: the server of leases, the keys, the serializer and the running loads of one cache.

*Same server*: the values of a Redis cache and their leases are on one server, so one script reads both. *Separate
server*: the leases of any other cache are on the server of an alias of ``REDIS_LOCKS``. A local-memory cache keeps both
in this process.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache, InvalidCacheBackendError, default_key_func
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from django.utils.module_loading import import_string

from ...backends.memory import MemoryBackend
from ...conf import DEFAULTS
from ...conf import cache_settings as servers
from ...conf.reload import on_settings_change
from ...core import clock, durations
from ...core.forks import ForkSafeLock
from ...core.keys import KeyLayout, LockId, escape
from ...core.tuning import BACKEND_WAIT
from ...handler import DEFAULT, engine_of, locks
from ...primitives.load import LoadKeys, LoadLease
from ...primitives.shared.retry import RetryLimits
from .. import metrics
from ..options import group_names
from ..values import DjangoRedis, Envelope, Pickled
from .effects import Delete, LoadPerformer
from .invalidation_retries import Retries
from .singleflight import SingleFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...backends.base import Backend
    from ...core.commands import Program
    from ...core.errors import LockBackendError
    from ...engine.engine import Engine
    from ..values import Values
    from .invalidation_retries import Retry

OUTAGE_LOG_INTERVAL: Final = 10.0
"""Seconds between two log messages about a store that doesn't answer."""


class CacheCoordinator:
    """Coordinates the loads of one cache in this process.

    Attributes:
        alias: alias of the cache that keeps the values.
        same_server: values and leases are on one server.
        local: values and leases are in this process.
        performer: performs the effects of load programs.
        single_flight: the running loads of this process.
        reads: the running reads of values in this process.
        retries: invalidations that failed, to be repeated.
        retry_limits: for how long to retry if the store of the leases can't be reached. If it refuses, values are
            loaded without leases at once: a full store may refuse for hours.
        values: serializes values.
    """

    def __init__(
        self,
        alias: str,
        engine: Engine,
        key_layout: KeyLayout,
        values: Values | None,
        backend_wait: float = BACKEND_WAIT,
        *,
        local: bool = False,
    ) -> None:
        self.alias = alias
        self.same_server = values is not None
        self.local = local
        self.values: Values = values or Pickled()
        self.engine = engine
        self._cache = cache = caches.create_connection(alias)
        is_same_key_everywhere = type(cache).make_key is BaseCache.make_key and cache.key_func is default_key_func
        self.performer = LoadPerformer(engine, alias, None if is_same_key_everywhere else self.unchecked_key)
        self.single_flight = SingleFlight()
        self.reads = SingleFlight()
        self.retries = Retries(alias, self.performer, self._repeating, closes_connections=not self.same_server)
        self.backoff_until: dict[str, float] = {}
        """By key: the time until which its stale value isn't loaded again, because another process is loading it, or
        its loader failed."""
        self.retry_limits = RetryLimits(backend_wait, 0.0)
        self._key_layout = key_layout
        self._generation = self.generations()[0]
        self._inbox = key_layout.keys_of_escaped("").inbox
        self.cache_class = type(self._cache)
        self.get: Callable[..., Any] | None = self._cache.get if self.cache_class is LocMemCache else None
        """``get`` of the cache, if one object may serve all threads. A lookup in ``caches`` costs half as much as a
        read of a local-memory cache."""
        self.is_django_format = self.same_server and isinstance(self._cache, RedisCache)
        """Whether values are stored in the format of Django's own Redis cache."""
        self.default_ttl: float | None = self._cache.default_timeout
        self._down_until = self._no_log_until = 0.0

    def key(self, key: str, version: int | None) -> str:
        """Return the key under which the cache stores a value, validated by the cache, which may issue a warning.

        Raises:
            InvalidCacheKey: the cache refuses the key.
        """
        return str(self._cache.make_and_validate_key(key, version=version))

    def unchecked_key(self, key: str, version: int | None) -> str:
        """Return the same key without validation, for calls in which the cache itself validates it."""
        return str(self._cache.make_key(key, version=version))

    def load(self, key: str, name: str) -> LoadLease:
        """Return the lease of the load of a value. ``key``: as the cache stores it."""
        keys = self._same_server_keys(key) if self.same_server else self._separate_server_keys(key)
        lock_id = LockId(self.engine.backend.identity, keys.lease)
        return LoadLease(self.engine, lock_id, keys, name, self.alias, self.retry_limits)

    @cached_property
    def _keeps_envelopes(self) -> bool:
        """Whether the serializer of the cache returns an envelope as one: pickle does, JSON doesn't."""
        return not self.same_server or type(self.values.loads(self.values.dumps(Envelope(None, None)))) is Envelope

    def group_keys(self, groups: Iterable[str], version: int | None) -> tuple[tuple[str, str], ...]:
        """Return the key of each group's stamp, and that key as the cache stores it.

        Raises:
            ValueError: ``groups`` aren't names.
            TypeError: the serializer of the cache can't store values with their stamps.
        """
        if not self._keeps_envelopes:
            raise TypeError(
                f"groups need a cache that pickles its values: the serializer of {self.alias!r} changes tuples"
            )
        keys = [f"load-group:{escape(name)}" for name in group_names(groups, "groups")]
        return tuple((key, self.key(key, version)) for key in keys)

    def generations(self) -> list[str]:
        """Return the keys of the generation counters. All caches in one Redis database share them."""
        counters = self._key_layout.fence_counters()
        return counters if self.same_server else [f"{counter}:{self.alias}" for counter in counters]

    def _same_server_keys(self, key: str) -> LoadKeys:
        tag = _hash_tag(key)
        return LoadKeys(
            f"{tag}:k:load",
            f"{tag}:w:load",
            self._generation,
            f"{tag}:s:load",
            f"{tag}:p:load",
            value=key,
            inbox=self._inbox,
        )

    def _separate_server_keys(self, key: str) -> LoadKeys:
        lease, waiters, fence, _, inbox = self._key_layout.keys_of(f"{self.alias}:{key}")
        tag, _, name = lease.rpartition("}:k:")
        return LoadKeys(
            lease,
            waiters,
            f"{fence}:{self.alias}",
            f"{tag}}}:s:{name}",
            f"{tag}}}:p:{name}",
            value="",
            inbox=inbox,
        )

    @property
    def down(self) -> bool:
        """Whether the store couldn't be reached a moment ago, so that no requests are sent to it for now."""
        return self._down_until > 0.0 and clock.now() < self._down_until

    def record_failure(self, failure: LockBackendError) -> None:
        """Count and log a failure of the store. If it can't be reached, no requests are sent to it for a moment. One that
        refuses, as a full server refuses claims, may still serve values."""
        now = clock.now()
        metrics.count(self.alias, metrics.DOWN)
        if now >= self._no_log_until:
            self._no_log_until = now + OUTAGE_LOG_INTERVAL
            metrics.log.warning("Loads of cache %r are coordinated in this process only: %s", self.alias, failure)
        if failure.unreachable:
            self._down_until = now + self.performer.tuning.lease_store_backoff

    def backs_off(self, key: str) -> bool:
        """Return whether loads of a key shall not wait for each other at the moment."""
        return self.backoff_until.get(key, 0.0) > clock.now()

    def back_off(self, key: str, seconds: float) -> None:
        """Let loads of a key not wait for each other for some seconds."""
        if len(self.backoff_until) >= 4096:
            self.backoff_until.clear()
        self.backoff_until[key] = clock.now() + seconds

    def _repeating(self, retry: Retry) -> Program[None]:
        """Carry out an invalidation that has failed before."""
        now = clock.now()
        stale_ms, lag_ms = (max(0, round(1000 * (until - now))) for until in (retry.stale_until, retry.lag_until))
        self.forget(retry.key)
        yield from self.load(retry.key, "").invalidating(stale_ms, lag_ms, self.retry_limits)
        if not self.same_server:  # last: each attempt would delete values written since
            yield Delete(retry.user_key, retry.version, stored_key=retry.key)
        self.forget(retry.key)

    def forget(self, key: str) -> None:
        """Let later callers of a key start a new load, instead of waiting for one that began before a write."""
        self.single_flight.forget(key)
        self.backoff_until.pop(key, None)


def lease_of(key: str) -> str:
    """Return the key of the lease of a value, in the same slot of a Cluster. The hash tag of the value's key is used,
    if any."""
    return f"{_hash_tag(key)}:k:load"


def _hash_tag(key: str) -> str:
    begin = key.find("{")
    tagged = begin >= 0 and key.find("}", begin) > begin + 1
    return f"{key}{{}}" if tagged else f"{{{key}}}"


_coordinators: dict[tuple[str, str | None], CacheCoordinator] = {}
_mutex = ForkSafeLock()


def coordinator_of(cache: Any = DEFAULT, using: str | None = None) -> CacheCoordinator:
    """Return the coordinator of a cache. Calls with the same arguments return the same object until settings change.

    Args:
        cache: the cache, or its alias.
        using: alias of ``REDIS_LOCKS``; by default the one that a ``StampedeCache`` names, or "default".

    Raises:
        InvalidCacheBackendError: there is no such cache.
        InvalidLockBackend: there is no server for its leases, or it doesn't support loads.
    """
    alias = cache if type(cache) is str else alias_of(cache)
    coordinator = _coordinators.get((alias, using))
    if coordinator is None:
        with _mutex.rlock:
            coordinator = _coordinators.get((alias, using)) or _coordinators.setdefault(
                (alias, using), _make(alias, using)
            )
    return coordinator


def alias_of(cache: Any) -> str:
    """Return the alias of a cache that is given as an object or by its alias.

    Raises:
        TypeError: the object isn't one of Django's ``caches``.
    """
    if isinstance(cache, str):
        return cache
    alias = getattr(cache, "_alias", None)  # django.core.cache.cache
    if isinstance(alias, str):
        return alias
    for alias in caches:
        if caches[alias] is cache:
            return str(alias)
    raise TypeError(f"cache is an alias of CACHES, or a cache of Django's caches, not {cache!r}")


def _make(cache_alias: str, given_using: str | None) -> CacheCoordinator:
    if cache_alias not in caches.settings:
        raise InvalidCacheBackendError(f"There is no cache {cache_alias!r} in CACHES.")
    alias, configured_using = servers.wrapped_alias(cache_alias)
    using = given_using or configured_using or DEFAULT
    if (alias, using) != (cache_alias, given_using):  # all spellings of the same pair share one coordinator
        return coordinator_of(alias, using)
    cache = caches.create_connection(alias)
    values = _values_of(cache)
    if values is not None and servers.why_not_usable(alias) is None:
        location, options = servers.connection_settings(alias)
        backend = _redis_backend()
        if backend is not None and backend.validation_error(location, options) is None:
            entry = DEFAULTS | dict(locks.configuration().get(using, {}))
            engine = engine_of(backend, location, options)
            key_layout = KeyLayout(f"{entry['KEY_PREFIX']}:load")
            return CacheCoordinator(
                alias, engine, key_layout, values, durations.wait_seconds(entry["BACKEND_WAIT"], "BACKEND_WAIT")
            )
    if isinstance(cache, LocMemCache | DummyCache):
        return CacheCoordinator(alias, engine_of(MemoryBackend, "caches", {}), KeyLayout("load"), None, local=True)
    client = locks[using]
    client.engine.require("loads", client.settings.alias)
    key_layout = KeyLayout(f"{client.settings.key_prefix}:load", client.engine.backend.buckets)
    return CacheCoordinator(alias, client.engine, key_layout, None, client.settings.backend_wait)


def _redis_backend() -> type[Backend] | None:
    """Return the Redis backend, or None if redis-py can't be used; a check of the locks reports that."""
    try:
        backend: type[Backend] = import_string(DEFAULTS["BACKEND"])
    except ImportError:
        return None
    return backend


def _values_of(cache: Any) -> Values | None:
    """Return the serializer of a Redis cache that stores values exactly as Django's or django-redis's does, or None."""
    cache_class = type(cache)
    if isinstance(cache, RedisCache):
        is_django_format = all(
            getattr(cache_class, name) is getattr(RedisCache, name) for name in ("get", "set", "get_backend_timeout")
        )
        client: Any = cache._cache
        return client._serializer if is_django_format and type(client).__module__ == RedisCache.__module__ else None
    if cache_class.__module__ == "django_redis.cache" and cache_class.__name__ == "RedisCache":
        return DjangoRedis(cache.client)
    return None


@on_settings_change
@clock.on_install
def forget_coordinators() -> None:
    """Forget all coordinators."""
    with _mutex.rlock:
        for coordinator in _coordinators.values():
            coordinator.retries.drop()
        _coordinators.clear()
