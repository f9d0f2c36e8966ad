"""A decorated callable: which lock a call needs, and what becomes of its outcome."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from django.core.exceptions import SynchronousOnlyOperation

from ..core import events, templates
from ..core.errors import LockBackendError, LockError, LockKeyError, LockNotAcquired
from ..handler import locks
from . import callables, deferred, responses, transactions, views

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ..core.durations import Duration
    from ..primitives.lock import Lock
    from .plan import Plan

_ASYNC_KEY = "an async key callable needs an async function"


class Call:
    def __init__(self, target: Any, plan: Plan) -> None:
        self.target = target
        self.plan = plan
        owner = callables.bound_to(target)
        bound = {} if owner is None else {"self": owner}
        self.name = plan.name or callables.label(target)
        self.stacked = hasattr(target, views.MARK)
        self.non_atomic = transactions.marker(target)
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
        aliases = self._aliases(request)
        try:
            key = self.make_key(args, kwargs)
            if inspect.isawaitable(key):
                _close(key)
                raise TypeError(_ASYNC_KEY)
            grant, left = deferred.acquire(self._lock(key))
        except LockKeyError as mistake:
            self._sign(mistake)
            raise
        except (LockNotAcquired, LockBackendError) as failure:
            return self._answer(request if view else None, failure)
        self._enter(request if view else None)
        result = None
        try:
            with transactions.begun(request, aliases):
                result = self.target(*args, **kwargs)
                if inspect.isawaitable(result):
                    _close(result)
                    raise TypeError(
                        f"{self.name} returned an awaitable to a synchronous @redis_lock, which would free the lock "
                        "before it runs: decorate the async function itself"
                    )
        finally:
            deferred.defer(grant, self.plan.hold, result, left, self.name)
            try:
                grant.release()
            except LockError as failure:
                deferred.report(grant, failure)
        return result

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = views.request_of(args, kwargs)
        view = views.answers(request, self.target, args)
        self._aliases(request)  # refuses them
        try:
            key = await self._amake_key(request, args, kwargs)
            grant = await self._lock(key).aacquire()
        except LockKeyError as mistake:
            self._sign(mistake)
            raise
        except (LockNotAcquired, LockBackendError) as failure:
            return self._answer(request if view else None, failure)
        self._enter(request if view else None)
        result = None
        try:
            result = await self.target(*args, **kwargs)
        finally:
            deferred.defer(grant, self.plan.hold, result, None, self.name)
            try:
                await grant.arelease()
            except LockError as failure:
                deferred.report(grant, failure)
        return result

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

    def _aliases(self, request: HttpRequest | None) -> list[str]:
        """Whose transactions the call has to begin: the innermost lock does."""
        return [] if self.stacked else transactions.to_begin(request, self.target, self.non_atomic)

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


def _close(awaitable: Any) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
