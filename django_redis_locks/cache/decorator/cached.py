"""``@cached``: caches the results of a function, and lets one caller in the cluster compute each of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from django.core.cache.backends.base import BaseCache

from ...callable_kinds import is_async, name_of, refused_kind
from ...core import key_templates as templates
from ..loading.coordinator import alias_of
from ..options import LoadOptions
from ..options import options as checked
from ..results import LoadResult
from .function import CachedClassMethod, CachedFunction, CachedStatic, by_celery
from .function_cache import FunctionCache

P = ParamSpec("P")
R = TypeVar("R")


class CachedOptions(LoadOptions, total=False):
    """The options of ``@cached``: those of a load, and its own.

    Attributes:
        vary_on_language: keep a value for each language.
        many: loads what ``get_many`` misses: takes a list of calls and returns a dict of their values.
    """

    vary_on_language: bool
    many: Callable[..., Any] | None


class Caching(Protocol):
    """The type of ``cached(...)``."""

    @overload
    def __call__(self, function: classmethod[Any, P, R], /) -> CachedClassMethod[P, R]: ...
    @overload
    def __call__(self, function: staticmethod[P, R], /) -> CachedStatic[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> CachedFunction[P, R]: ...


class Informing(Protocol):
    """The type of ``cached(..., info=True)``: calls of the decorated function return a ``LoadResult``."""

    @overload
    def __call__(self, function: classmethod[Any, P, R], /) -> CachedClassMethod[P, LoadResult[R]]: ...
    @overload
    def __call__(self, function: staticmethod[P, R], /) -> CachedStatic[P, LoadResult[R]]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CachedFunction[P, Coroutine[Any, Any, LoadResult[R]]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> CachedFunction[P, LoadResult[R]]: ...


@overload
def cached(template: str | None = None, /, *, info: Literal[True], **options: Unpack[CachedOptions]) -> Informing: ...
@overload
def cached(function: classmethod[Any, P, R], /, **options: Unpack[CachedOptions]) -> CachedClassMethod[P, R]: ...
@overload
def cached(function: staticmethod[P, R], /, **options: Unpack[CachedOptions]) -> CachedStatic[P, R]: ...
@overload
def cached(function: Callable[P, R], /, **options: Unpack[CachedOptions]) -> CachedFunction[P, R]: ...
@overload
def cached(template: str | None = None, /, **options: Unpack[CachedOptions]) -> Caching: ...
def cached(
    target: Any = None,
    /,
    *,
    cache: str | BaseCache = "default",
    version: int | None = None,
    using: str | None = None,
    vary_on_language: bool = False,
    many: Callable[..., Any] | None = None,
    info: bool = False,
    **options: Any,
) -> Any:
    """Cache the results of a function; one caller in the cluster computes a missing one::

        @cached("user:{user.pk}", ttl=300, stale=3600)
        def profile(user): ...

    ``template`` is filled from the arguments, ``"user:{user.pk}:{lang}"``, as for ``@redis_lock``; but 1 and "1" have
    different keys here, and None and "" are accepted. Without a template the key is made of the function's module and
    name and of all its arguments; a method without one must be a class method, or one of a saved model instance.

    The options are those of ``get_or_load``. The decorated function has the methods ``key``, ``invalidate``,
    ``refresh``, ``get_many`` and ``uncached``, which take the arguments of a call, and the asynchronous
    ``ainvalidate``, ``arefresh`` and ``aget_many``.

    Args:
        cache: alias of ``CACHES``, or the cache.
        version: version of the keys, as for the cache's own ``get``.
        using: alias of the locks, for caches that aren't on Redis.
        vary_on_language: keep a value for each language.
        many: loads what ``get_many`` misses: takes a list of calls and returns a dict of their values.
        info: calls return a ``LoadResult``, which has the source of the value.
        **options: see ``LoadOptions``.

    Returns:
        The decorated function, a ``Cached``, or a decorator for it.

    Raises:
        TypeError: at decoration, for an object that can't be cached, an unknown option, or a template that names an
            argument which the function doesn't take.
        ValueError: at decoration, for an option out of its range.
    """
    template, target = (target, None) if isinstance(target, str) else (None, target)
    if template is not None:
        templates.parse(template)
    if "key" in options:
        raise TypeError('the template of @cached comes first and has no name: @cached("user:{user.pk}")')
    checked(options)
    if callable(options.get("groups")):
        raise TypeError('groups of @cached are templates, such as ["user:{user.pk}"], not a function')
    if many is not None and not callable(many):
        raise TypeError(f"many is a function that takes a list of calls, not {many!r}")
    location = {"cache": alias_of(cache), "version": version, "using": using}
    own_options: dict[str, Any] = {"vary_on_language": vary_on_language, "many": many, "info": info}
    decorate = functools.partial(
        _decorate, template=template, location=location, options=options, own_options=own_options
    )
    return decorate if target is None else decorate(target)


def _decorate(
    target: Any, *, template: str | None, location: dict[str, Any], options: dict[str, Any], own_options: dict[str, Any]
) -> Any:
    kind: Any = CachedFunction
    function = target
    if isinstance(target, classmethod | staticmethod):
        kind = CachedClassMethod if isinstance(target, classmethod) else CachedStatic
        function = target.__func__
    _refuse(function)
    if template is None:
        _refuse_ambiguous_name(function)
    if options.get("refresh") == "celery" and "<" in name_of(function):
        raise TypeError(
            f"a worker can't import {name_of(function)}, so it can't refresh it: refresh=\"celery\" is for functions of a "
            "module, and methods of its classes"
        )
    if options.get("refresh") == "celery" and own_options["vary_on_language"]:
        raise TypeError('vary_on_language=True and refresh="celery" can\'t be combined: a worker has another language')
    many = own_options["many"]
    if many is not None and is_async(many) and not is_async(function):
        raise TypeError(f"an async many needs an async function, and {name_of(function)} isn't one")
    decorated = kind(FunctionCache(function, template, location, options, **own_options), function)
    if options.get("refresh") == "celery":
        by_celery.add(decorated)
    return decorated


_REFUSALS: dict[str, str] = {
    "class": "can't decorate the class {name}: put it on a function or a method",
    "property": "goes below @property: write @property first, then @cached, then the function",
    "partialmethod": "can't decorate a partialmethod: decorate the method that it is made of",
    "task": "can't decorate the task {name}: decorate a function that the task calls",
    "value": 'decorates functions, not {target!r}; a key template is a str, "user:{{user.pk}}"',
    "generator": "can't decorate the generator {name}: its items can be read only once. Return a list",
}


def _refuse(target: Any) -> None:
    message = _REFUSALS.get(refused_kind(target) or "")
    if message is not None:
        raise TypeError("@cached " + message.format(name=name_of(target), target=target))


def _refuse_ambiguous_name(target: Any) -> None:
    """Raise if another function or closure may have the same name: without a template the name is the key."""
    name = name_of(target)
    code = getattr(inspect.unwrap(target), "__code__", None)
    enclosed = [] if code is None else [variable for variable in code.co_freevars if variable != "__class__"]
    if code is None or name.endswith("<lambda>") or ("<locals>" in name and enclosed):
        reason = (
            f"depends on {', '.join(enclosed)}, which isn't among its arguments" if enclosed else "has no unique name"
        )
        raise TypeError(f'{name} {reason}: give @cached a template, such as @cached("report:{{year}}")')
