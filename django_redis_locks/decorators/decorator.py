"""The decorator: a lock around a call, synchronous or asynchronous.

It fails at once unless told to wait. In a view that is answered with 409; elsewhere ``LockNotAcquired`` is raised. A lease
that ended while the call ran is reported by a signal and an ERROR in the log, and the call's result is returned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..handler import DEFAULT
from . import callables, transactions, views
from .call import Call
from .deferred import Until
from .plan import Plan

if TYPE_CHECKING:
    from ..core.durations import Duration
    from ..core.hold import OnLost

F = TypeVar("F", bound=Callable[..., Any])


@overload
def redis_lock(
    function: F,
    /,
    *,
    key: str | Callable[..., Any] | None = None,
    expire: Duration | None = None,
    wait: Duration | None = None,
    renew: bool | None = None,
    reentrant: bool = False,
    name: str | None = None,
    using: str = DEFAULT,
    on_lost: OnLost = None,
    on_backend_error: str | None = None,
    hold: Until = "transaction",
) -> F: ...
@overload
def redis_lock(
    template: str | None = None,
    /,
    *,
    key: str | Callable[..., Any] | None = None,
    expire: Duration | None = None,
    wait: Duration | None = None,
    renew: bool | None = None,
    reentrant: bool = False,
    name: str | None = None,
    using: str = DEFAULT,
    on_lost: OnLost = None,
    on_backend_error: str | None = None,
    hold: Until = "transaction",
) -> Callable[[F], F]: ...
def redis_lock(
    target: Any = None,
    /,
    *,
    key: Any = None,
    expire: Duration | None = None,
    wait: Duration | None = None,
    renew: bool | None = None,
    reentrant: bool = False,
    name: str | None = None,
    using: str = DEFAULT,
    on_lost: OnLost = None,
    on_backend_error: str | None = None,
    hold: Until = "transaction",
) -> Any:
    """Run every call of a view, method or function under a lock.

    Args:
        key: a template filled from the arguments, ``"order:{order_id}"``, which may also come first and unnamed; or a
            callable that is given the arguments and returns the key, always named: what comes unnamed is the decorated
            function. By default one lock for all calls of this function.
        expire: the lease in seconds; given here it is fixed, unless ``renew=True``. By default the settings' ``EXPIRE``,
            renewed while the call runs.
        wait: seconds to wait for the lock, -1 for ever. By default 0, or what ``LOCKS[name]`` says.
        renew: whether the lease is renewed while the call runs.
        reentrant: let a call enter that is made by the holder itself.
        name: the label in settings, messages and metrics; by default the template.
        using: the alias.
        on_lost, on_backend_error: as for ``locks.lock``.
        hold: how long the lock is held. Until the end of the ``"transaction"`` that is open when the call returns; until
            the ``"response"`` that a view returns is closed, too; or only for the ``"call"``.

    Raises:
        TypeError: at decoration, for what it can't protect or a template that names no argument.
        ValueError: at decoration, for a time out of range.
    """
    if isinstance(target, str):
        if key is not None:
            raise TypeError(f"@redis_lock was given two keys, {target!r} and key=...")
        target, key = None, target
    if isinstance(target, FunctionType) and target.__name__ == "<lambda>":
        raise TypeError(
            "@redis_lock was given a lambda to decorate: a callable that makes keys is named, key=lambda ..."
        )
    plan = Plan(key, expire, wait, renew, reentrant, name, using, on_lost, on_backend_error, hold)
    return functools.partial(_decorate, plan=plan) if target is None else _decorate(target, plan)


def _decorate(target: Any, plan: Plan) -> Any:
    callables.refuse(target)
    call = Call(target, plan)

    if callables.iscoroutinefunction(target):

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
    setattr(wrapper, views.MARK, True)
    transactions.mark(wrapper, call.non_atomic)
    return wrapper
