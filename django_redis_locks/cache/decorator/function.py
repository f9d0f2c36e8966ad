"""The objects that ``@cached`` returns: for functions, static methods, class methods and bound methods."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from ...core.durations import Duration
from .function_cache import FunctionCache

if TYPE_CHECKING:
    from ..loading.refresh_job import Job
    from ..results import Source

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")


class Cached(Generic[P, R_co]):
    """A function with ``@cached``. A call returns the cached value, or loads it.

    Its methods take the arguments of a call. Those of a bound method leave ``self`` out.

    Example::

        @cached("user:{pk}", ttl=300)
        def profile(pk): ...


        profile(7)
        profile.invalidate(7)
        first, second = profile.get_many([7, 8])
    """

    _function_cache: FunctionCache

    _first: tuple[Any, ...] = ()
    """Arguments to put before those of a call: the object or class that a method is bound to."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return the value for these arguments, from the cache or loaded, as ``get_or_load`` does. A call of an
        asynchronous function is awaited."""
        function_cache = self._function_cache
        if function_cache.asynchronous:
            return cast("R_co", function_cache.aload(self._first + args, kwargs))
        return cast("R_co", function_cache.load(self._first + args, kwargs))

    def uncached(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself, without the cache.

        Args:
            *args: positional arguments of a call.
            **kwargs: keyword arguments of a call.

        Returns:
            What the function returns.
        """
        return cast("R_co", self._function_cache.function(*self._first, *args, **kwargs))

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the cache's key of the value for these arguments.

        Args:
            *args: positional arguments of a call.
            **kwargs: keyword arguments of a call.

        Returns:
            The key, without the prefix and the version that the cache adds.

        Raises:
            TypeError: the function takes no such arguments.
            LockKeyError: the template can't be filled from them.
        """
        return self._function_cache.key(self._first + args, kwargs)

    def invalidate(
        self, *args: Any, replica_lag: Duration = 0, stale: bool = False, immediate: bool = False, **kwargs: Any
    ) -> None:
        """Delete the value for these arguments, and void a load of it that is running. Inside a transaction this is
        done after COMMIT; a failure of the store is then only logged. An argument of the function with the same name as
        an option of this method must be passed by position.

        Args:
            *args: positional arguments of a call.
            replica_lag: seconds by which a replica may lag: a value that is loaded within that time is kept no longer
                than that.
            stale: serve the old value for the seconds of the function's option ``stale`` while a new one is loaded.
            immediate: invalidate now, even inside a transaction.
            **kwargs: keyword arguments of a call.

        Raises:
            LockBackendError: the store doesn't answer, or refuses, and the old value may stay. The invalidation is
                repeated in the background until it succeeds.
            TypeError: the function takes no such arguments.
            ValueError: an argument is out of its range.
        """
        self._function_cache.invalidate(
            self._first + args, kwargs, replica_lag=replica_lag, stale=stale, immediate=immediate
        )

    async def ainvalidate(
        self, *args: Any, replica_lag: Duration = 0, stale: bool = False, immediate: bool = False, **kwargs: Any
    ) -> None:
        """Delete the value for these arguments, and void a load of it that is running. This is done at once, since
        asynchronous code has no transactions. An argument of the function with the same name as an option of this
        method must be passed by position.

        Args:
            *args: positional arguments of a call.
            replica_lag: seconds by which a replica may lag: a value that is loaded within that time is kept no longer
                than that.
            stale: serve the old value for the seconds of the function's option ``stale`` while a new one is loaded.
            immediate: without effect; accepted so that both methods take the same arguments.
            **kwargs: keyword arguments of a call.

        Raises:
            LockBackendError: the store doesn't answer, or refuses, and the old value may stay. The invalidation is
                repeated in the background until it succeeds.
            TypeError: the function takes no such arguments.
            ValueError: an argument is out of its range.
        """
        await self._function_cache.ainvalidate(
            self._first + args, kwargs, replica_lag=replica_lag, stale=stale, immediate=immediate
        )

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function now and store its result. The value of a load that is already running isn't stored.

        Args:
            *args: positional arguments of a call.
            **kwargs: keyword arguments of a call.

        Returns:
            What the function returns, or with ``info`` a ``LoadResult``.

        Raises:
            TypeError: the function is asynchronous, or takes no such arguments.
            Exception: what the function raised.
        """
        return cast("R_co", self._function_cache.refresh(self._first + args, kwargs))

    @overload
    async def arefresh(self: Cached[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def arefresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    async def arefresh(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function now and store its result. The value of a load that is already running isn't stored.

        Args:
            *args: positional arguments of a call.
            **kwargs: keyword arguments of a call.

        Returns:
            What the function returns, or with ``info`` a ``LoadResult``.

        Raises:
            TypeError: the function takes no such arguments.
            Exception: what the function raised.
        """
        return await self._function_cache.arefresh(self._first + args, kwargs)

    def get_many(self, calls: Iterable[Any]) -> list[R_co]:
        """Return the values of many calls, with one read of the cache.

        Args:
            calls: the argument of each call, or a tuple of its arguments. Missing values are loaded by the option
                ``many``, or by one call of the function each.

        Returns:
            The values, or with ``info`` a ``LoadResult`` each, in the order of the calls.

        Raises:
            LoadFailed: the function failed in another process less than ``error_ttl`` seconds ago.
            LoadTimeout: another caller still loads after ``wait`` seconds, and there is no default.
            TypeError: the function is asynchronous, or takes no such arguments.
            Exception: what the function raised.
        """
        return self._function_cache.get_many(self._first, list(calls))

    @overload
    async def aget_many(self: Cached[P, Coroutine[Any, Any, T]], calls: Iterable[Any]) -> list[T]: ...
    @overload
    async def aget_many(self, calls: Iterable[Any]) -> list[R_co]: ...
    async def aget_many(self, calls: Iterable[Any]) -> Any:
        """Return the values of many calls, with one read of the cache. An asynchronous function loads missing values
        concurrently.

        Args:
            calls: the argument of each call, or a tuple of its arguments. Missing values are loaded by the option
                ``many``, or by one call of the function each.

        Returns:
            The values, or with ``info`` a ``LoadResult`` each, in the order of the calls.

        Raises:
            LoadFailed: the function failed in another process less than ``error_ttl`` seconds ago.
            LoadTimeout: another caller still loads after ``wait`` seconds, and there is no default.
            TypeError: the function takes no such arguments.
            Exception: what the function raised.
        """
        return await self._function_cache.aget_many(self._first, list(calls))

    def counters(self) -> Counter[Source]:
        """Return the number of values that calls in this process got, by the sources of ``LoadResult``, such as
        ``"hit"``; 0 for the others. A call that raises isn't counted."""
        return Counter(self._function_cache.sources.read())

    @property
    def path(self) -> str:
        """The import path of the function for other processes: ``module:qualname``."""
        return self._function_cache.path


class CachedFunction(Cached[P, R_co]):
    """A cached function, or a method before it is bound."""

    def __init__(self, function_cache: FunctionCache, target: Any) -> None:
        functools.update_wrapper(cast("Any", self), target)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):  # inspect recognizes coroutine functions by these
            if hasattr(target, name):
                setattr(self, name, getattr(target, name))
        self._function_cache = function_cache

    @overload  # type checkers see a class method as a function of its class
    def __get__(
        self: CachedFunction[Concatenate[type[S], Q], R_co], instance: Any, owner: type[S]
    ) -> Cached[Q, R_co]: ...
    @overload
    def __get__(self, instance: None, owner: type[Any]) -> CachedFunction[P, R_co]: ...
    @overload
    def __get__(
        self: CachedFunction[Concatenate[S, Q], R_co], instance: S, owner: type[Any] | None = None
    ) -> Cached[Q, R_co]: ...
    @overload
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> CachedFunction[P, R_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else Bound(self, instance)

    def __repr__(self) -> str:
        return f"<cached {self._function_cache.label}>"

    def __reduce__(self) -> str:
        return cast("str", cast("Any", self).__qualname__)  # pickled as functions are, by name


class CachedStatic(CachedFunction[P, R_co]):
    """A cached static method."""

    def __get__(self, instance: object, owner: Any = None) -> CachedStatic[P, R_co]:
        return self


class CachedClassMethod(CachedFunction[P, R_co]):
    """A cached class method."""

    def __get__(self, instance: object, owner: Any = None) -> Cached[P, R_co]:  # type: ignore[override]
        return Bound(self, type(instance) if owner is None else owner)


class Bound(Cached[P, R_co]):
    """A cached method, bound to an object or a class."""

    def __init__(self, unbound: Any, to: Any) -> None:
        self.__func__ = unbound
        self.__self__ = to
        self.__module__ = unbound.__module__
        self.__doc__ = unbound.__doc__
        self._function_cache = unbound._function_cache
        self._first = (to,)

    @property
    def __wrapped__(self) -> Any:
        return MethodType(self._function_cache.function, self.__self__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.__self__ is other.__self__ and self.__func__ is other.__func__

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__func__))

    def __repr__(self) -> str:
        return f"<cached {self._function_cache.label} of {self.__self__!r}>"

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__func__.__name__)


def find(path: str) -> Cached[Any, Any]:
    """Return the cached function at an import path, which is the ``Cached.path`` of another process.

    Raises:
        LookupError: no cached function is there.
    """
    module, _, names = path.partition(":")
    try:
        found = functools.reduce(getattr, names.split("."), import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"there is no {path} here: does this process run the same code?") from error
    if not isinstance(found, Cached):
        raise LookupError(f"{path} isn't cached here: does this process run the same code?")
    return found


def take_over(path: str, token: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> bool:
    """Carry out a ``Job`` of another process: load the value of the cached function for these arguments.

    Returns:
        Whether it was loaded. False if the claim is void: its lease has ended, the value was invalidated or written, or
        another process has carried out the job; or if the load failed.

    Raises:
        LookupError: no cached function is there.
    """
    cached = find(path)
    return cached._function_cache.take_over(token, (*cached._first, *args), dict(kwargs or {}))


def is_same_value(job: Job, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether these arguments, after serialization, still have the key of the job: JSON turns a tuple into a list.

    Raises:
        LookupError: no cached function is at the job's path.
    """
    user_key: str = job.request.user_key
    return find(job.path).key(*args, **kwargs) == user_key


by_celery: weakref.WeakSet[Cached[Any, Any]] = weakref.WeakSet()
"""The functions of this process with ``refresh="celery"``."""


def refreshed_by_celery() -> list[str]:
    """The paths of the functions of this process with ``refresh="celery"``."""
    return sorted({cached.path for cached in by_celery})
