"""``@redis_lock``: runs each call of a function under a lock, synchronous or asynchronous.

Without ``wait=`` it makes one attempt. If the lock is busy, a view returns 409 and other functions raise
``LockNotAcquired``; ``on_conflict=`` changes both. If the lease ended while the call ran, a signal is sent and an ERROR
logged, and the call's result is still returned.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Never,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from ..core.arguments import refuse_unknown
from ..handler import DEFAULT
from . import atomic_requests, callables, views
from .arguments import DecoratorArguments
from .locked_call import LockedCall

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ..conf.decorator_options import HoldUntil, LockKind
    from ..core.durations import Duration
    from ..core.errors import LockNotAcquired
    from ..core.grant import OnLost
    from ..mutex_maker import OnBackendError

F = TypeVar("F", bound=Callable[..., Any])


P = ParamSpec("P")
R = TypeVar("R")


class _Options(TypedDict, total=False):
    """The options that don't change the return type of the decorated function."""

    key: str | list[str] | tuple[str, ...] | Callable[..., Any] | None
    kind: LockKind | None
    limit: int | None
    expire: Duration | None
    wait: Duration | None
    renew: bool | None
    max_hold: Duration | None
    reentrant: bool | None
    auto_release: bool | None
    methods: set[str] | frozenset[str] | list[str] | tuple[str, ...] | None
    condition: Callable[..., Any] | None
    status: int | None
    retry_after: bool | int | None
    name: str | None
    using: str
    on_lost: OnLost
    on_backend_error: OnBackendError | None
    hold: HoldUntil | None
    on_key_error: int | Literal["raise"] | None


class Options(_Options, total=False):
    """The named arguments of the decorator."""

    on_conflict: str | Callable[[HttpRequest, LockNotAcquired], HttpResponseBase | Awaitable[HttpResponseBase]] | None


class Skipping(Protocol):
    """The type of ``redis_lock(..., on_conflict="skip")``: a call of the decorated function may return None."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


@overload
def redis_lock(  # type: ignore[overload-overlap] # "skip" is a str, too
    template: str | None = None, /, *, on_conflict: Literal["skip"], **options: Unpack[_Options]
) -> Skipping: ...
@overload
def redis_lock(
    function: Callable[P, Coroutine[Any, Any, R]], /, *, on_conflict: Literal["skip"], **options: Unpack[_Options]
) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
@overload
def redis_lock(
    function: Callable[P, R], /, *, on_conflict: Literal["skip"], **options: Unpack[_Options]
) -> Callable[P, R | None]: ...
@overload
def redis_lock(function: F, /, **options: Unpack[Options]) -> F: ...
@overload
def redis_lock(template: str | None = None, /, **options: Unpack[Options]) -> Callable[[F], F]: ...
def redis_lock(
    target: Any = None,
    /,
    *,
    key: Any = None,
    kind: LockKind | None = None,
    limit: int | None = None,
    expire: Duration | None = None,
    wait: Duration | None = None,
    renew: bool | None = None,
    max_hold: Duration | None = None,
    reentrant: bool | None = None,
    auto_release: bool | None = None,
    methods: Any = None,
    condition: Callable[..., Any] | None = None,
    status: int | None = None,
    retry_after: bool | int | None = None,
    name: str | None = None,
    using: str = DEFAULT,
    on_lost: OnLost = None,
    on_backend_error: OnBackendError | None = None,
    hold: HoldUntil | None = None,
    on_conflict: Any = None,
    on_key_error: int | Literal["raise"] | None = None,
    **unknown: Never,
) -> Any:
    """Run each call of a view, method or function under a lock::

        @redis_lock("order:{order_id}")
        def charge(order_id): ...

    Options that are left out come from ``LOCKS[name]`` in the settings, or have the default described here.

    Args:
        key: a template that is filled from the arguments, ``"order:{order_id}"``, which may also be the first
            positional argument; or a callable that takes the arguments and returns the key, only as ``key=``; or a list
            of templates, or of keys that the callable returns: all of these locks are acquired, or none, as by
            ``locks.multi_lock``. By default all calls of the function share one lock.
        kind: ``"fair"`` makes calls that wait get the lock in the order of their arrival at the store, as
            ``locks.fair_lock``. ``"read"`` and ``"write"`` are the two sides of ``locks.rwlock``, and ``"semaphore"`` is
            ``locks.semaphore``. By default ``"lock"``.
        limit: the number of calls that run at a time, on all hosts; for ``kind="semaphore"``, which needs it.
        expire: the lease in seconds; given here it is fixed, unless ``renew=True``. By default the settings'
            ``EXPIRE``, renewed while the call runs.
        wait: seconds to wait for the lock, -1 for ever. By default 0: one attempt.
        renew: whether the lease is renewed while the call runs.
        max_hold: the largest number of seconds for which the lease is renewed; -1 for ever, by default the settings'
            ``MAX_HOLD``.
        reentrant: let the holder of the lock enter it again. A call inside of another one then shares the permit of a
            semaphore; otherwise it takes one of its own.
        auto_release: False keeps the lock until its lease ends, even if the call fails: at most one call in ``expire``
            seconds, which must be given. A refused view answers 429.
        methods: the verbs that need the lock, such as ``{"POST", "PUT"}``; requests with others pass without it.
        condition: a callable that takes the arguments; a call for which it returns false runs without the lock.
        status: the status of the response to a refused request, 400 to 599. By default 409.
        retry_after: its ``Retry-After``: True for the time left of the lease, False for none, or seconds.
        name: the label in settings, messages and metrics; by default the template, or all of them.
        using: the alias in ``REDIS_LOCKS``.
        on_lost: called with the grant when the lease is lost, in a thread for such calls, or in the loop of the task
            that made the call; ``"cancel"`` cancels that task.
        on_backend_error: if the store is down, ``"closed"`` raises, and a view answers 503; ``"open"`` makes the call
            without a lock.
        hold: when the lock is released. ``"transaction"``, the default: at the end of the transaction that is open when
            the call returns. ``"response"``: also not before the view's response is closed. ``"call"``: when the call
            returns.
        on_conflict: the behaviour if the lock is busy. ``"answer"``, the default: a view answers, other functions raise
            ``LockNotAcquired``. ``"raise"``: views raise it, too. ``"skip"``, not for views: the call isn't made and
            returns None. Or a handler or its dotted path: ``handler(request, refused)`` returns the response of a view,
            and may be asynchronous. Only views call it.
        on_key_error: the status of the response to a request that lacks a value of the template, such as a header: 400
            to 499, by default 400. ``"raise"``: ``LockKeyError`` is raised, as other functions do.

    Returns:
        The decorated function, or a decorator for it.

    Raises:
        TypeError: at decoration: the target can't be decorated, the template names no argument, ``max_hold`` is given for a
            lease that isn't renewed, or only one of ``kind="semaphore"`` and ``limit``.
        ValueError: at decoration: a time, a limit or a status is out of range, ``kind``, ``hold``, ``on_conflict``,
            ``on_backend_error`` or ``on_lost`` has an unknown value, or ``on_lost`` is ``"cancel"`` for a synchronous function.
    """
    if unknown:
        refuse_unknown(unknown, "@redis_lock", tuple(Options.__annotations__))
    if isinstance(target, str):
        if key is not None:
            raise TypeError(f"@redis_lock was given two keys, {target!r} and key=...")
        target, key = None, target
    if isinstance(target, FunctionType) and target.__name__ == "<lambda>":
        raise TypeError("@redis_lock was given a lambda to decorate: pass a callable that makes keys as key=lambda ...")
    arguments = DecoratorArguments(
        key=key,
        kind=kind,
        limit=limit,
        expire=expire,
        wait=wait,
        renew=renew,
        max_hold=max_hold,
        reentrant=reentrant,
        auto_release=auto_release,
        methods=methods,
        condition=condition,
        status=status,
        retry_after=retry_after,
        name=name,
        using=using,
        on_lost=on_lost,
        on_backend_error=on_backend_error,
        hold=hold,
        on_conflict=on_conflict,
        on_key_error=on_key_error,
    )
    return functools.partial(_decorate, arguments=arguments) if target is None else _decorate(target, arguments)


def _decorate(target: Any, arguments: DecoratorArguments) -> Any:
    callables.refuse(target)
    call = LockedCall(target, arguments)

    if callables.is_async(target):

        @functools.wraps(target)
        async def alocked(*args: Any, **kwargs: Any) -> Any:
            return await call.arun(args, kwargs)

        wrapper: Any = alocked
    else:

        @functools.wraps(target)
        def locked(*args: Any, **kwargs: Any) -> Any:
            if callables.runs_async(target, args):
                return call.arun(args, kwargs)
            return call.run(args, kwargs)

        wrapper = locked
    setattr(wrapper, views.DECORATED, True)
    atomic_requests.mark(wrapper, call.non_atomic)
    return wrapper
