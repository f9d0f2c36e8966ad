"""The public functions that load one value: ``get_or_load`` and ``refresh``, ``aget_or_load`` and ``arefresh``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from asgiref.sync import iscoroutinefunction

from ..core.runner import arun, run
from ..handler import DEFAULT
from .loading import loader as loaders
from .loading.coordinator import alias_of, coordinator_of
from .loading.get import get_in_thread, get_value, read_first, reload_value
from .loading.request import LoadRequest
from .results import LoadResult
from .stampede_settings import options_for
from .values import CachedValue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from .loading.coordinator import CacheCoordinator
    from .loading.loader import LoadContext
    from .options import CheckedOptions, LoadOptions

    T = TypeVar("T")
    Loader: TypeAlias = Callable[[], T] | Callable[[LoadContext], T]
    AsyncLoader: TypeAlias = Callable[[], Awaitable[T]] | Callable[[LoadContext], Awaitable[T]]


def coordinator_and_options(
    cache: Any, using: str | None, given: dict[str, Any]
) -> tuple[CacheCoordinator, CheckedOptions]:
    """Return the coordinator of a cache and the checked options.

    Raises:
        TypeError: an unknown option, or ``refresh="celery"``.
        ValueError: an option is out of its range.
    """
    alias = cache if type(cache) is str else alias_of(cache)
    coordinator, options = coordinator_of(alias, using), options_for(alias, given)
    if options.refresh == "celery":
        raise TypeError(
            'refresh="celery" is for functions with @cached, which a worker can import by name. Decorate the loader, or '
            'use refresh="thread"'
        )
    return coordinator, options


def _request(
    key: str,
    loader: Callable[..., Any],
    cache: Any,
    version: int | None,
    using: str | None,
    given: dict[str, Any],
    *,
    asynchronous: bool = False,
) -> LoadRequest:
    coordinator, checked = coordinator_and_options(cache, using, given)
    return LoadRequest(coordinator, key, version, loader, checked, asynchronous=asynchronous)


@overload
def get_or_load(
    key: str, loader: Loader[T], *, info: Literal[True], **options: Unpack[LoadOptions]
) -> LoadResult[T]: ...
@overload
def get_or_load(key: str, loader: Loader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]) -> T: ...
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
    """Return the cached value of a key; load and store it if the cache has none.

    One caller on all hosts loads. The others are served the stale value, if there is one, or wait for the load.

    Args:
        key: as for the cache's own ``get``.
        loader: a callable without arguments, or with one, a ``LoadContext``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``get``.
        using: alias of the locks on the server that coordinates loads; by default the one in the entry of a
            ``StampedeCache``, or "default". Without effect for a Redis cache: its own server coordinates them.
        info: return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The value, or a ``LoadResult``.

    Raises:
        LoadFailed: the loader of another process failed less than ``error_ttl`` seconds ago, or the loader called
            ``LoadContext.fail()``.
        LoadTimeout: the load takes longer than ``wait`` or ``load_timeout``, and there is no default.
        TypeError: the loader is asynchronous, or an option is unknown.
        ValueError: an option is out of its range.
        Exception: what the loader raised, if there is no default.

    Example::

        report = get_or_load("sales", sales, ttl=60, stale=300)
    """
    loaders.check_sync(loader)
    coordinator, checked = coordinator_and_options(cache, using, options)
    first_read = None
    if not coordinator.same_server and not checked.groups:
        first_read = read_first(coordinator, key, version)
        if type(first_read) is not CachedValue:
            return LoadResult(first_read, "hit") if info else first_read
    request = LoadRequest(coordinator, key, version, loader, checked)
    result = get_in_thread(request, first_read)
    return result if info else result.value


@overload
async def aget_or_load(
    key: str, loader: AsyncLoader[T], *, info: Literal[True], **options: Unpack[LoadOptions]
) -> LoadResult[T]: ...
@overload
async def aget_or_load(
    key: str, loader: AsyncLoader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]
) -> T: ...
@overload
async def aget_or_load(
    key: str, loader: Loader[T], *, info: Literal[True], **options: Unpack[LoadOptions]
) -> LoadResult[T]: ...
@overload
async def aget_or_load(
    key: str, loader: Loader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]
) -> T: ...
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
    """Return the cached value of a key; load and store it if the cache has none.

    One caller on all hosts loads. The others are served the stale value, if there is one, or wait for the load. A load
    continues for them when the task of the caller that loads is cancelled.

    Args:
        key: as for the cache's own ``aget``.
        loader: an asynchronous callable, or a synchronous one, which runs in the thread of Django's synchronous code;
            without arguments, or with one, a ``LoadContext``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``aget``.
        using: alias of the locks on the server that coordinates loads; by default the one in the entry of a
            ``StampedeCache``, or "default". Without effect for a Redis cache: its own server coordinates them.
        info: return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The value, or a ``LoadResult``.

    Raises:
        LoadFailed: the loader of another process failed less than ``error_ttl`` seconds ago, or the loader called
            ``LoadContext.fail()``.
        LoadTimeout: the load takes longer than ``wait`` or ``load_timeout``, and there is no default.
        TypeError: an option is unknown.
        ValueError: an option is out of its range.
        Exception: what the loader raised, if there is no default.
    """
    loaders.check_async(loader)
    request = _request(key, loader, cache, version, using, options, asynchronous=iscoroutinefunction(loader))
    result = await arun(get_value(request), request.coordinator.performer)
    return result if info else result.value


@overload
def refresh(key: str, loader: Loader[T], *, info: Literal[True], **options: Unpack[LoadOptions]) -> LoadResult[T]: ...
@overload
def refresh(key: str, loader: Loader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]) -> T: ...
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
    """Load a value now and store it, whether or not the cache has one. A load that is already running doesn't store its
    value, which may be older than the change that this refresh is for.

    Args:
        key: as for the cache's own ``get``.
        loader: a callable without arguments, or with one, a ``LoadContext``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``get``.
        using: alias of the locks on the server that coordinates loads; by default the one in the entry of a
            ``StampedeCache``, or "default". Without effect for a Redis cache: its own server coordinates them.
        info: return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The value, or a ``LoadResult``.

    Raises:
        LoadFailed: the loader called ``LoadContext.fail()``.
        TypeError: the loader is asynchronous, or an option is unknown.
        ValueError: an option is out of its range.
        Exception: what the loader raised.

    Example::

        product.save()
        refresh(f"product:{product.pk}", lambda: render(product), ttl=3600)
    """
    loaders.check_sync(loader)
    request = _request(key, loader, cache, version, using, options)
    result = run(reload_value(request), request.coordinator.performer)
    return result if info else result.value


@overload
async def arefresh(
    key: str, loader: AsyncLoader[T], *, info: Literal[True], **options: Unpack[LoadOptions]
) -> LoadResult[T]: ...
@overload
async def arefresh(
    key: str, loader: AsyncLoader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]
) -> T: ...
@overload
async def arefresh(
    key: str, loader: Loader[T], *, info: Literal[True], **options: Unpack[LoadOptions]
) -> LoadResult[T]: ...
@overload
async def arefresh(
    key: str, loader: Loader[T], *, info: Literal[False] = False, **options: Unpack[LoadOptions]
) -> T: ...
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
    """Load a value now and store it, whether or not the cache has one. A load that is already running doesn't store its
    value, which may be older than the change that this refresh is for.

    Args:
        key: as for the cache's own ``aget``.
        loader: an asynchronous callable, or a synchronous one, which runs in the thread of Django's synchronous code;
            without arguments, or with one, a ``LoadContext``.
        cache: alias of ``CACHES``, or the cache.
        version: as for the cache's own ``aget``.
        using: alias of the locks on the server that coordinates loads; by default the one in the entry of a
            ``StampedeCache``, or "default". Without effect for a Redis cache: its own server coordinates them.
        info: return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The value, or a ``LoadResult``.

    Raises:
        LoadFailed: the loader called ``LoadContext.fail()``.
        TypeError: an option is unknown.
        ValueError: an option is out of its range.
        Exception: what the loader raised.
    """
    loaders.check_async(loader)
    request = _request(key, loader, cache, version, using, options, asynchronous=iscoroutinefunction(loader))
    result = await arun(reload_value(request), request.coordinator.performer)
    return result if info else result.value
