"""A decorated callable: which lock a call needs, and what becomes of its outcome."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.http.response import HttpResponseBase

from .. import deferred_release as deferred
from .. import open_transactions
from ..core import key_templates as templates
from ..core.errors import LockBackendError, LockError, LockKeyError, LockNotAcquired
from ..declared import declare
from ..handler import locks
from . import argument_callables as asked
from . import callables, commands, transactions, views
from . import on_conflict as conflicts
from .on_conflict import RefusedCall

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..conf.decorator_options import DecoratorOptions
    from ..core.grant import Grant
    from ..primitives.lock import Lock
    from .options import Plan

_KEY = "key callable"
_CONDITION = "condition"


class LockedCall:
    def __init__(self, target: Any, plan: Plan) -> None:
        self.target = target
        self.plan = plan
        self.body = views.body_of(target)
        owner = callables.bound_to(target)
        bound = {} if owner is None else {"self": owner}
        self.name = plan.name or callables.label(target)
        if plan.on_lost == "cancel" and not callables.may_run_async(target):
            raise ValueError(f'on_lost="cancel" of {self.name} cancels a task, and needs an async function')
        self.using = plan.using
        declare(self)
        self.stacked = hasattr(target, views.MARK)
        self.non_atomic = transactions.marker(target)
        for what, function in ((_KEY, plan.key), (_CONDITION, plan.calls.condition)):
            if callables.is_async(function) and not callables.may_run_async(target):
                raise asked.refusal(what)
        if callable(plan.key):
            self.make_key: asked.Asker = asked.asker(plan.key, _KEY, self.name)
        else:
            template = plan.key or self.name.replace("{", "{{").replace("}", "}}")
            self.make_key = templates.compile_template(template, target, bound)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = views.request_of(args, kwargs)
        answered = self._answered(request, args)
        calls = self._calls()
        self._not_to_be_skipped(answered, calls)
        aliases = self._aliases(request)
        condition = self._condition(calls, request)
        if condition is not None and not asked.ask(condition, _CONDITION, args, kwargs):
            self._enter(answered)
            with transactions.begun(request, aliases):
                return self.target(*args, **kwargs)
        try:
            lock = self._lock(asked.ask(self.make_key, _KEY, args, kwargs), calls)
            left = deferred.rejoin(lock)
            grant = (lock if left is None else replace(lock, reentrant=True)).acquire()
        except LockKeyError as mistake:
            self._sign(mistake)
            return conflicts.unkeyed(self._refused(answered, calls, args, kwargs), mistake)
        except (LockNotAcquired, LockBackendError) as failure:
            return conflicts.answer(self._refused(answered, calls, args, kwargs), failure)
        self._enter(answered)
        result = None
        try:
            with transactions.begun(request, aliases):
                result = self.target(*args, **kwargs)
                if inspect.isawaitable(result):
                    asked.close(result)
                    raise TypeError(
                        f"{self.name} returned an awaitable to a synchronous @redis_lock, which would free the lock "
                        "before it runs: decorate the async function itself"
                    )
        finally:
            if calls.cools:
                grant.lock.detach_grant(grant)
            else:
                self._keep(grant, calls, result, request, new=left is None)
                try:
                    grant.release()
                except LockError as failure:
                    deferred.report(grant, failure)
        return result

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = views.request_of(args, kwargs)
        answered = self._answered(request, args)
        calls = self._calls()
        self._not_to_be_skipped(answered, calls)
        self._aliases(request)  # refuses them
        condition = self._condition(calls, request)
        if condition is not None and not await asked.aask(condition, request, args, kwargs):
            self._enter(answered)
            return await self.target(*args, **kwargs)
        try:
            grant = await self._lock(await asked.aask(self.make_key, request, args, kwargs), calls).aacquire()
        except LockKeyError as mistake:
            self._sign(mistake)
            return conflicts.unkeyed(self._refused(answered, calls, args, kwargs), mistake)
        except (LockNotAcquired, LockBackendError) as failure:
            return await conflicts.aanswer(self._refused(answered, calls, args, kwargs), failure)
        self._enter(answered)
        result = None
        try:
            result = await self.target(*args, **kwargs)
        finally:
            if calls.cools:
                grant.lock.detach_grant(grant)
            else:
                self._keep(grant, calls, result, request, new=True)
                try:
                    await grant.arelease()
                except LockError as failure:
                    deferred.report(grant, failure)
        return result

    def _keep(
        self, grant: Grant, calls: DecoratorOptions, result: Any, request: HttpRequest | None, *, new: bool
    ) -> None:
        """Hold the lock for longer than the call, as its ``hold`` says."""
        if calls.hold != "call":
            response = result if calls.hold == "response" and isinstance(result, HttpResponseBase) else None
            deferred.keep(grant, open_transactions.around(self.name, new=new), response, request)

    def _calls(self) -> DecoratorOptions:
        return self.plan.calls_of(locks[self.plan.using], self.name)

    def _condition(self, calls: DecoratorOptions, request: HttpRequest | None) -> asked.Asker | None:
        """What tells whether the call needs the lock; None if it does."""
        if calls.methods is not None:
            if request is None:
                raise TypeError(
                    f"{self.name} has methods= and was called without a request, whose verb they mean: "
                    "a request is the first or second argument, or request=. Elsewhere there is condition="
                )
            if request.method not in calls.methods:
                return _never
        return None if calls.condition is None else asked.asker(calls.condition, _CONDITION, self.name)

    def _lock(self, key: Any, calls: DecoratorOptions) -> Lock:
        if not isinstance(key, str) or not key:
            what = "an empty one" if key == "" else type(key).__name__
            raise LockKeyError(
                f"the key callable of {self.name} must return a text, not {what}; calls that need no lock are for condition="
            )
        return self.plan.lock(locks[self.plan.using], key, self.name, calls)

    def _sign(self, mistake: LockKeyError) -> None:
        """Who makes keys doesn't know whose they are."""
        mistake.name = mistake.name or self.name
        mistake.alias = mistake.alias or self.plan.using

    def _aliases(self, request: HttpRequest | None) -> list[str]:
        """Whose transactions the call has to begin: the innermost lock does."""
        return [] if self.stacked else transactions.to_begin(request, self.target, self.non_atomic)

    def _answered(self, request: HttpRequest | None, args: tuple[Any, ...]) -> HttpRequest | None:
        """The request, if this call is the view that answers it."""
        if request is None or not views.answers(request, self.target, args, self.body):
            return None
        views.claim(request, self.body)
        return request

    def _enter(self, request: HttpRequest | None) -> None:
        if request is not None and not self.stacked:
            views.enter(request)

    def _refused(
        self, answered: HttpRequest | None, calls: DecoratorOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RefusedCall:
        return RefusedCall(
            self.name,
            self.plan.using,
            calls,
            answered,
            views.wrapped(self.target, args, kwargs),
            commands.runs(self.target, args),
        )

    def _not_to_be_skipped(self, answered: HttpRequest | None, calls: DecoratorOptions) -> None:
        """A view that returns nothing answers nobody: told at its first request, not at the first conflict."""
        if calls.on_conflict == "skip" and answered is not None and answered.resolver_match is not None:
            raise TypeError(
                f'{self.name} is a view and has on_conflict="skip", which returns None instead of a response: '
                "give it a handler(request, refused), or leave on_conflict out"
            )


def _never(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return False
