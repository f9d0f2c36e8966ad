"""The public functions ``get_or_load_many`` and ``aget_or_load_many``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from ..core.runner import arun, run
from ..handler import DEFAULT
from .api import coordinator_and_options
from .loading import loader as loaders
from .loading.batch import get_values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import TypeAlias

    from .options import LoadOptions
    from .results import LoadResult

    T = TypeVar("T")
    BatchLoader: TypeAlias = Callable[[list[str]], Mapping[str, T]]
    AsyncBatchLoader: TypeAlias = Callable[[list[str]], Awaitable[Mapping[str, T]]]


@overload
def get_or_load_many(
    keys: Iterable[str], loader: BatchLoader[T], *, info: Literal[True], **options: Unpack[LoadOptions]
) -> dict[str, LoadResult[T | None]]: ...
@overload
def get_or_load_many(
    keys: Iterable[str], loader: BatchLoader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]
) -> dict[str, T | None]: ...
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
    """Return the cached values of many keys; load in one call those that the cache lacks and no other caller loads.

    Args:
        keys: in any order; each is read once.
        loader: a callable that takes the list of keys to load, and returns a mapping. The value of a key that isn't in
            it is None, and kept for ``none_ttl``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``get``.
        using: alias of the locks on the server that coordinates loads; by default the one in the entry of a
            ``StampedeCache``, or "default". Without effect for a Redis cache: its own server coordinates them.
        info: return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The values, or with ``info`` a ``LoadResult`` each, by their keys, in the order of the keys.

    Raises:
        LoadFailed: the loader of another process failed less than ``error_ttl`` seconds ago, or the loader called
            ``LoadContext.fail()``.
        LoadTimeout: the load takes longer than ``wait`` or ``load_timeout``, and there is no default.
        TypeError: the loader is asynchronous, or an option is unknown.
        ValueError: an option is out of its range.
        Exception: what the loader raised, if there is no default.

    Example::

        names = get_or_load_many(["user:1", "user:2"], names_of, ttl=300)
    """
    loaders.check_sync(loader)
    coordinator, checked = coordinator_and_options(cache, using, options)
    results = run(get_values(coordinator, keys, version, loader, checked), coordinator.performer)
    return results if info else _values(results)


@overload
async def aget_or_load_many(
    keys: Iterable[str],
    loader: AsyncBatchLoader[T] | BatchLoader[T],
    *,
    info: Literal[True],
    **options: Unpack[LoadOptions],
) -> dict[str, LoadResult[T | None]]: ...
@overload
async def aget_or_load_many(
    keys: Iterable[str],
    loader: AsyncBatchLoader[T] | BatchLoader[T],
    *,
    info: Literal[False] = False,
    **options: Unpack[LoadOptions],
) -> dict[str, T | None]: ...
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
    """Return the cached values of many keys; load in one call those that the cache lacks and no other caller loads.

    Args:
        keys: in any order; each is read once.
        loader: a callable, asynchronous or not, that takes the list of keys to load, and returns a mapping. The value
            of a key that isn't in it is None, and kept for ``none_ttl``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``aget``.
        using: alias of the locks on the server that coordinates loads; by default the one in the entry of a
            ``StampedeCache``, or "default". Without effect for a Redis cache: its own server coordinates them.
        info: return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The values, or with ``info`` a ``LoadResult`` each, by their keys, in the order of the keys.

    Raises:
        LoadFailed: the loader of another process failed less than ``error_ttl`` seconds ago, or the loader called
            ``LoadContext.fail()``.
        LoadTimeout: the load takes longer than ``wait`` or ``load_timeout``, and there is no default.
        TypeError: an option is unknown.
        ValueError: an option is out of its range.
        Exception: what the loader raised, if there is no default.
    """
    loaders.check_async(loader)
    coordinator, checked = coordinator_and_options(cache, using, options)
    results = await arun(get_values(coordinator, keys, version, loader, checked), coordinator.performer)
    return results if info else _values(results)


def _values(results: dict[str, LoadResult[Any]]) -> dict[str, Any]:
    return {key: result.value for key, result in results.items()}
