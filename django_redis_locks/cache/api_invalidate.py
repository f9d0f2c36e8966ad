"""The public functions ``invalidate`` and ``ainvalidate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.durations import wait_seconds
from ..core.errors import LockBackendError
from ..core.runner import arun, run
from ..handler import DEFAULT
from .loading import transactions
from .loading.coordinator import coordinator_of
from .loading.invalidation import invalidate_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.durations import Duration
    from .loading.coordinator import CacheCoordinator


def invalidate(
    *keys: str,
    groups: Iterable[str] = (),
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    stale: Duration = 0,
    replica_lag: Duration = 0,
    immediate: bool = False,
) -> None:
    """Delete values, and void the loads that are running, so that they don't store theirs. Inside a transaction this is
    done after COMMIT, since a load before that would read the old data; a failure of the store is then only logged.

    Args:
        *keys: as for the cache's own ``delete``.
        groups: names of groups, such as ``("user:42",)``: all values that were loaded with the option ``groups`` and one
            of these names.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``delete``; that of the groups, too.
        using: as for ``get_or_load``.
        stale: seconds for which callers with the option ``stale`` are still served the old values, while one of them
            loads.
        replica_lag: seconds by which a replica may lag: values that are loaded within that time are kept no longer than
            that.
        immediate: invalidate now, even inside a transaction.

    Raises:
        LockBackendError: the store can't be reached, or refuses, and old values may stay. The invalidation is repeated
            in the background until it succeeds.
        ValueError: an argument is out of its range, or ``groups`` come with ``stale`` or ``replica_lag``.
    """
    coordinator = coordinator_of(cache, using)
    stale_ms, lag_ms = _milliseconds(stale, "stale"), _milliseconds(replica_lag, "replica_lag")
    items = _items(coordinator, keys, groups, version, at_once=not stale_ms and not lag_ms)

    connections = [] if immediate else transactions.open_now()

    def work() -> None:
        failure = run(invalidate_all(coordinator, items, stale_ms, lag_ms), coordinator.performer)
        if failure is not None and not (connections and isinstance(failure, LockBackendError)):
            raise failure  # Django logs it after a commit

    for key, _, _ in items if connections else ():
        transactions.forget(coordinator.load(key, "").lock_id)
        transactions.forget_group(coordinator, key)
    transactions.after_commit(connections, work)


async def ainvalidate(
    *keys: str,
    groups: Iterable[str] = (),
    cache: Any = DEFAULT,
    version: int | None = None,
    using: str | None = None,
    stale: Duration = 0,
    replica_lag: Duration = 0,
    immediate: bool = False,
) -> None:
    """Delete values, and void the loads that are running, so that they don't store theirs. This is done at once, since
    asynchronous code has no transactions. Inside ``sync_to_async`` call ``invalidate``.

    Args:
        *keys: as for the cache's own ``adelete``.
        groups: names of groups, such as ``("user:42",)``: all values that were loaded with the option ``groups`` and one
            of these names.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``adelete``; that of the groups, too.
        using: as for ``aget_or_load``.
        stale: seconds for which callers with the option ``stale`` are still served the old values, while one of them
            loads.
        replica_lag: seconds by which a replica may lag: values that are loaded within that time are kept no longer than
            that.
        immediate: without effect; accepted so that the two functions take the same arguments.

    Raises:
        LockBackendError: the store can't be reached, or refuses, and old values may stay. The invalidation is repeated
            in the background until it succeeds.
        ValueError: an argument is out of its range, or ``groups`` come with ``stale`` or ``replica_lag``.
    """
    coordinator = coordinator_of(cache, using)
    stale_ms, lag_ms = _milliseconds(stale, "stale"), _milliseconds(replica_lag, "replica_lag")
    items = _items(coordinator, keys, groups, version, at_once=not stale_ms and not lag_ms)
    failure = await arun(invalidate_all(coordinator, items, stale_ms, lag_ms), coordinator.performer)
    if failure is not None:
        raise failure


def _items(
    coordinator: CacheCoordinator, keys: Iterable[str], groups: Iterable[str], version: int | None, *, at_once: bool
) -> list[tuple[str, str, int | None]]:
    """Return what to delete: the values of the keys, and the stamps of the groups."""
    if groups and not at_once:
        raise ValueError("stale and replica_lag are for keys, not for groups: invalidate these in a call of their own")
    stamps = coordinator.group_keys(groups, version) if groups else ()
    values = [(coordinator.key(key, version), key, version) for key in keys]
    return values + [(stored_key, key, version) for key, stored_key in stamps]


def _milliseconds(value: Duration, name: str) -> int:
    return round(1000 * wait_seconds(value, name, for_ever=False))
