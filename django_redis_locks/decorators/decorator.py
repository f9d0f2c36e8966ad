"""The decorator: a lock around a call, synchronous or asynchronous.

It fails at once unless told to wait. In a view that is answered with 409; elsewhere ``LockNotAcquired`` is raised. A lease
that ended while the call ran is reported by a signal and an ERROR in the log, and the call's result is returned.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from django.core.exceptions import SynchronousOnlyOperation

from ..core import durations, events, templates
from ..core.errors import LockBackendError, LockError, LockKeyError, LockLost, LockNotAcquired
from ..handler import DEFAULT, locks
from . import callables, responses, views

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ..core.durations import Duration
    from ..core.grant import Grant
    from ..core.hold import OnLost
    from ..primitives.lock import Lock

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
    plan = _Plan(key, expire, wait, renew, reentrant, name, using, on_lost, on_backend_error)
    return functools.partial(_decorate, plan=plan) if target is None else _decorate(target, plan)


_ASYNC_KEY = "an async key callable needs an async function"


class _Plan:
    """The arguments of the decorator, checked."""

    def __init__(
        self,
        key: Any,
        expire: Duration | None,
        wait: Duration | None,
        renew: bool | None,
        reentrant: bool,
        name: str | None,
        using: str,
        on_lost: OnLost,
        on_backend_error: str | None,
    ) -> None:
        if expire is not None:
            durations.lease_ms(expire)
        if wait is not None:
            durations.patience(wait)
        if key is not None and not isinstance(key, str) and not callable(key):
            raise TypeError(f"the key of @redis_lock is a text or a callable, not {key!r}")
        if isinstance(key, str):
            templates.parse(key)
        self.key = key
        self.wait = wait
        self.name = name or (key if isinstance(key, str) else None)
        self.using = using
        self.reentrant = reentrant
        self.options: dict[str, Any] = {
            "expire": expire,
            "renew": renew,
            "on_lost": on_lost,
            "on_backend_error": on_backend_error,
        }


def _decorate(target: Any, plan: _Plan) -> Any:
    callables.refuse(target)
    call = _Call(target, plan)

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
    return wrapper


class _Call:
    """A decorated callable: which lock a call needs, and what becomes of its outcome."""

    def __init__(self, target: Any, plan: _Plan) -> None:
        self.target = target
        self.plan = plan
        owner = callables.bound_to(target)
        bound = {} if owner is None else {"self": owner}
        self.name = plan.name or callables.label(target)
        self.stacked = hasattr(target, views.MARK)
        if callable(plan.key):
            if callables.iscoroutinefunction(plan.key) and not callables.may_run_async(target):
                raise TypeError(_ASYNC_KEY)
            self.make_key: templates.KeyMaker = lambda args, kwargs: plan.key(*args, **kwargs)
        else:
            template = plan.key or self.name.replace("{", "{{").replace("}", "}}")
            self.make_key = templates.compile_template(template, target, bound)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = views.request_of(args, kwargs)
        view = views.answers(request, self.target, args)
        try:
            key = self.make_key(args, kwargs)
            if inspect.isawaitable(key):
                _close(key)
                raise TypeError(_ASYNC_KEY)
            grant = self._lock(key).acquire()
        except LockKeyError as mistake:
            self._sign(mistake)
            raise
        except (LockNotAcquired, LockBackendError) as failure:
            return self._answer(request if view else None, failure)
        self._enter(request if view else None)
        try:
            result = self.target(*args, **kwargs)
            if inspect.isawaitable(result):
                _close(result)
                raise TypeError(
                    f"{self.name} returned an awaitable to a synchronous @redis_lock, which would free the lock before "
                    "it runs: decorate the async function itself"
                )
        finally:
            try:
                grant.release()
            except LockError as failure:
                _report(grant, failure)
        return result

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = views.request_of(args, kwargs)
        view = views.answers(request, self.target, args)
        try:
            key = await self._amake_key(request, args, kwargs)
            grant = await self._lock(key).aacquire()
        except LockKeyError as mistake:
            self._sign(mistake)
            raise
        except (LockNotAcquired, LockBackendError) as failure:
            return self._answer(request if view else None, failure)
        self._enter(request if view else None)
        try:
            return await self.target(*args, **kwargs)
        finally:
            try:
                await grant.arelease()
            except LockError as failure:
                _report(grant, failure)

    async def _amake_key(self, request: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            key = self.make_key(args, kwargs)
        except SynchronousOnlyOperation:
            if not hasattr(request, "auser"):
                raise
            request.user = await request.auser()  # the lazy one asks session and database, synchronously
            key = self.make_key(args, kwargs)
        return await key if inspect.isawaitable(key) else key

    def _lock(self, key: Any) -> Lock:
        if not isinstance(key, str) or not key:
            what = "an empty one" if key == "" else type(key).__name__
            raise LockKeyError(f"the key callable of {self.name} must return a text, not {what}")
        plan = self.plan
        client = locks[plan.using]
        wait: Duration | None = plan.wait
        if wait is None and client.wait_of(self.name) is None:
            wait = 0
        make = client.rlock if plan.reentrant else client.lock
        return make(key, wait=wait, name=self.name, **plan.options)

    def _sign(self, mistake: LockKeyError) -> None:
        """Who makes keys doesn't know whose they are."""
        mistake.name = mistake.name or self.name
        mistake.alias = mistake.alias or self.plan.using

    def _enter(self, request: HttpRequest | None) -> None:
        if request is not None and not self.stacked:
            views.enter(request)

    def _answer(self, request: HttpRequest | None, failure: LockNotAcquired | LockBackendError) -> HttpResponse:
        if request is None:
            raise failure
        if isinstance(failure, LockNotAcquired):
            return responses.conflict(request, failure)
        about = (failure.key or "", self.name, self.plan.using)
        events.emit(events.BackendFailed(*about, "acquire, answered with 503", str(failure)))
        return responses.unavailable(request, failure)


def _report(grant: Grant, failure: LockError) -> None:
    """The call is over and its result stands. A loss was told when it was found; a store that is down is told here, and
    the release goes on in the background."""
    if isinstance(failure, LockBackendError):
        events.emit(events.BackendFailed(grant.key, grant.name, grant.alias, "release", str(failure)))
    elif not isinstance(failure, LockLost):
        raise failure


def _close(awaitable: Any) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
