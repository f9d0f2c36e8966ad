"""The functions that users call."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.core.cache import caches

from ..core.durations import Duration, patience
from ..core.errors import LockBackendError
from ..core.runner import arun, run
from ..handler import DEFAULT
from .loading import loader as loaders
from .loading import transactions as commits
from .loading.batch import get_values
from .loading.coordinator import alias_of, coordinator_of
from .loading.get import get_value, reload_value
from .loading.invalidation import invalidate_all
from .loading.request import LoadRequest
from .metrics import HITS, count
from .results import MISSING
from .stampede_settings import options_for
from .values import read_envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .loading.coordinator import CacheCoordinator
    from .options import CheckedOptions
    from .results import LoadResult


def _coordinator_and_options(
    cache: Any, using: str | None, given: dict[str, Any]
) -> tuple[CacheCoordinator, CheckedOptions]:
    """Raises:
    TypeError: there is no such option, or not here.
    ValueError: one is out of its range.
    """
    alias = alias_of(cache)
    coordinator, options = coordinator_of(alias, using), options_for(alias, given)
    if options.refresh == "celery":
        raise TypeError(
            'refresh="celery" is for functions with @cached: a worker finds those by their name, and knows nothing of this '
            'loader. Decorate it, or take refresh="thread"'
        )
    return coordinator, options


def get_or_load(
    key: str,
    loader: Callable[..., Any],
    *,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    info: bool = False,
    **options: Any,
) -> Any:
    """The value of a key of a cache; if there is none, what the loader returns, which is stored. Of many callers, on all
    hosts, one loads, and the others wait for it, or are served the value before.

    Args:
        key: as for the cache's own ``get``.
        loader: takes no argument, or one, a ``LoadContext``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``get``.
        using: alias of the locks on whose server loads are coordinated; by default the one that a ``StampedeCache`` names,
            or "default". Not for a Redis cache: its own server does that.
        info: return a ``LoadResult``, which says where the value is from.
        options: see ``CheckedOptions``.

    Returns:
        The value, or a ``LoadResult``.

    Raises:
        LoadFailed: another process's loader failed a moment ago.
        LoadTimeout: another caller still loads after ``wait`` seconds, and there is no default.
        TypeError: the loader is asynchronous; an unknown option.
        ValueError: an option is out of its range.
        Exception: whatever the loader raised.
    """
    loaders.check_sync(loader)
    coordinator, checked = _coordinator_and_options(cache, using, options)
    first_read = None
    if not coordinator.same_server:  # a hit is what it costs there, with little on top
        first_read = read_envelope(caches[coordinator.alias].get(key, MISSING, version=version))
        if first_read.value is not MISSING and first_read.fresh_for is None and not info and not commits.any_pending():
            count(coordinator.alias, HITS)
            return first_read.value
    request = LoadRequest(coordinator, key, version, loader, checked)
    request.first_read = first_read
    result = run(get_value(request), coordinator.performer)
    return result if info else result.value


async def aget_or_load(
    key: str,
    loader: Callable[..., Any],
    *,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    info: bool = False,
    **options: Any,
) -> Any:
    """As ``get_or_load``. The loader may be asynchronous; one that isn't runs in the thread of Django's synchronous code.
    It goes on when this caller is cancelled, for the others."""
    loaders.check_async(loader)
    coordinator, checked = _coordinator_and_options(cache, using, options)
    request = LoadRequest(coordinator, key, version, loader, checked)
    request.asynchronous = iscoroutinefunction(loader)
    result = await arun(get_value(request), coordinator.performer)
    return result if info else result.value


def refresh(
    key: str,
    loader: Callable[..., Any],
    *,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    info: bool = False,
    **options: Any,
) -> Any:
    """Load a value now, whether or not there is one, and store it. A load that runs isn't stored: it may be older than what
    this one is called for."""
    loaders.check_sync(loader)
    coordinator, checked = _coordinator_and_options(cache, using, options)
    request = LoadRequest(coordinator, key, version, loader, checked)
    result = run(reload_value(request), coordinator.performer)
    return result if info else result.value


async def arefresh(
    key: str,
    loader: Callable[..., Any],
    *,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    info: bool = False,
    **options: Any,
) -> Any:
    """As ``refresh``."""
    loaders.check_async(loader)
    coordinator, checked = _coordinator_and_options(cache, using, options)
    request = LoadRequest(coordinator, key, version, loader, checked)
    request.asynchronous = iscoroutinefunction(loader)
    result = await arun(reload_value(request), coordinator.performer)
    return result if info else result.value


def get_or_load_many(
    keys: Iterable[str],
    loader: Callable[..., Any],
    *,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    info: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The values of many keys. What the cache lacks, and nobody else loads, is loaded in one call.

    Args:
        keys: in any order; each is asked for once.
        loader: is given the list of keys to load, and returns a mapping. What isn't in it is None, and kept for
            ``none_ttl``.

    The other arguments, and what is raised, are those of ``get_or_load``.

    Returns:
        Values by their keys, in the order of the keys; ``LoadResult`` with ``info``.
    """
    loaders.check_sync(loader)
    coordinator, checked = _coordinator_and_options(cache, using, options)
    results = run(get_values(coordinator, keys, version, loader, checked), coordinator.performer)
    return _plain(results, info)


async def aget_or_load_many(
    keys: Iterable[str],
    loader: Callable[..., Any],
    *,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    info: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """As ``get_or_load_many``."""
    loaders.check_async(loader)
    coordinator, checked = _coordinator_and_options(cache, using, options)
    results = await arun(get_values(coordinator, keys, version, loader, checked), coordinator.performer)
    return _plain(results, info)


def _plain(results: dict[str, LoadResult[Any]], info: bool) -> dict[str, Any]:
    return {key: result if info else result.value for key, result in results.items()}


def invalidate(
    *keys: str,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    stale: Duration = 0,
    replica_lag: Duration = 0,
    immediate: bool = False,
) -> None:
    """Forget values, and have no load store what it began to load before. Inside of a transaction, when that is committed:
    until then others would only load again what is about to change.

    Args:
        keys: as for the cache's own ``delete``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``delete``.
        using: as for ``get_or_load``.
        stale: for so many seconds the old values may still be served by those who take stale ones, while one caller loads.
        replica_lag: the seconds by which a replica may be late: until then loaded values are kept no longer than that.
        immediate: now, even inside of a transaction.

    Raises:
        LockBackendError: the store can't be reached, so that old values may stay. It is repeated in the background until it
            succeeds. After a commit that is logged only.
        ValueError: an argument is out of its range.
    """
    coordinator = coordinator_of(cache, using)
    items = [(coordinator.key(key, version), key, version) for key in keys]
    keep, lag = _milliseconds(stale, "stale"), _milliseconds(replica_lag, "replica_lag")

    connections = [] if immediate else commits.open_now()

    def work() -> None:
        failure = run(invalidate_all(coordinator, items, keep, lag), coordinator.performer)
        if failure is not None and not (connections and isinstance(failure, LockBackendError)):
            raise failure  # Django logs it after a commit

    for key, _, _ in items if connections else ():
        commits.forget(coordinator.load(key, "").lock_id)
    commits.after_commit(connections, work)


async def ainvalidate(
    *keys: str,
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    stale: Duration = 0,
    replica_lag: Duration = 0,
    immediate: bool = False,
) -> None:
    """As ``invalidate``, at once: asynchronous code has no transactions. Inside of ``sync_to_async`` use that."""
    coordinator = coordinator_of(cache, using)
    items = [(coordinator.key(key, version), key, version) for key in keys]
    keep, lag = _milliseconds(stale, "stale"), _milliseconds(replica_lag, "replica_lag")
    failure = await arun(invalidate_all(coordinator, items, keep, lag), coordinator.performer)
    if failure is not None:
        raise failure


def _milliseconds(value: Duration, name: str) -> int:
    seconds = patience(value, name)
    if seconds == inf:
        raise ValueError(f"{name} must be 0 or more seconds, not -1")
    return round(seconds * 1000)
