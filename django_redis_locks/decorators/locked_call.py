"""``LockedCall``: runs each call of a decorated callable under its lock."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.http.response import HttpResponseBase

from .. import deferred_release, open_transactions
from ..core import key_templates
from ..core.errors import LockBackendError, LockError, LockKeyError, LockNotAcquired
from ..core.multi_grant import MultiGrant
from ..decorated_callables import declare
from ..handler import locks
from . import argument_callables, atomic_requests, callables, commands, on_conflict, views
from .on_conflict import RefusedCall

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..conf.decorator_options import DecoratorOptions
    from ..core.grant import Grant
    from ..primitives.multi_lock import MultiLock
    from ..primitives.shared.base_lock import BaseLock
    from .arguments import DecoratorArguments

_KEY = "key callable"
_CONDITION = "condition"


class LockedCall:
    """One decorated callable, with the arguments of its decorator."""

    def __init__(self, target: Any, arguments: DecoratorArguments) -> None:
        self.target = target
        self.arguments = arguments
        self.body = views.innermost_function(target)
        owner = callables.bound_to(target)
        bound = {} if owner is None else {"self": owner}
        self.name = arguments.name or callables.label(target)
        if arguments.on_lost == "cancel" and not callables.may_run_async(target):
            raise ValueError(f'on_lost="cancel" of {self.name} cancels a task, and needs an async function')
        self.using, self.features = arguments.using, arguments.features
        declare(self)
        self.stacked = hasattr(target, views.DECORATED)
        self.non_atomic = atomic_requests.marker(target)
        for what, function in ((_KEY, arguments.key), (_CONDITION, arguments.options.condition)):
            if callables.is_async(function) and not callables.may_run_async(target):
                raise argument_callables.not_async(what)
        self.make_key: argument_callables.ArgumentCallable
        if callable(arguments.key):
            self.make_key = argument_callables.argument_callable(arguments.key, _KEY, self.name)
        elif isinstance(arguments.key, list | tuple):
            makers = [key_templates.compile_template(template, target, bound) for template in arguments.templates]
            self.make_key = lambda args, kwargs: [make(args, kwargs) for make in makers]
        else:
            template = arguments.key or self.name.replace("{", "{{").replace("}", "}}")
            self.make_key = key_templates.compile_template(template, target, bound)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of a synchronous function under the lock, and return its result or the response of a refused
        view."""
        request = views.request_of(args, kwargs)
        view_request = self._claimed_request(request, args)
        options = self._options()
        self._refuse_skip_of_view(view_request, options)
        aliases = self._aliases_to_begin(request)
        condition = self._condition(options, request)
        if condition is not None and not argument_callables.evaluate(condition, _CONDITION, args, kwargs):
            self._view_begins(view_request)
            with atomic_requests.transactions_begun(request, aliases):
                return self.target(*args, **kwargs)
        try:
            made = argument_callables.evaluate(self.make_key, _KEY, args, kwargs)
            lock, kept = self._lock(made, options, reenter=True)
            grant = lock.acquire()
        except LockKeyError as error:
            self._add_name(error)
            return on_conflict.respond_without_key(self._refused(view_request, options, args, kwargs), error)
        except (LockNotAcquired, LockBackendError) as failure:
            return on_conflict.respond(self._refused(view_request, options, args, kwargs), failure)
        self._view_begins(view_request)
        result = None
        try:
            with atomic_requests.transactions_begun(request, aliases):
                result = self.target(*args, **kwargs)
                if inspect.isawaitable(result):
                    argument_callables.close_unawaited(result)
                    raise TypeError(
                        f"{self.name} returned an awaitable to a synchronous @redis_lock, which would release the lock "
                        "before it is awaited: decorate the async function itself"
                    )
        finally:
            if not options.keeps_lock:
                self._defer_release(grant, options, result, request, new=not kept)
            try:
                if options.keeps_lock:
                    grant.lock.leave_grant(grant)
                else:
                    grant.release()
            except LockError as failure:
                deferred_release.report(grant, failure)
        return result

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of an asynchronous function under the lock, and return its result or the response of a refused
        view."""
        request = views.request_of(args, kwargs)
        view_request = self._claimed_request(request, args)
        options = self._options()
        self._refuse_skip_of_view(view_request, options)
        self._aliases_to_begin(request)  # raises if there are any
        condition = self._condition(options, request)
        if condition is not None and not await argument_callables.aevaluate(condition, request, args, kwargs):
            self._view_begins(view_request)
            return await self.target(*args, **kwargs)
        try:
            made = await argument_callables.aevaluate(self.make_key, request, args, kwargs)
            lock, _ = self._lock(made, options, reenter=False)  # a coroutine has no transactions
            grant = await lock.aacquire()
        except LockKeyError as error:
            self._add_name(error)
            return on_conflict.respond_without_key(self._refused(view_request, options, args, kwargs), error)
        except (LockNotAcquired, LockBackendError) as failure:
            return await on_conflict.arespond(self._refused(view_request, options, args, kwargs), failure)
        self._view_begins(view_request)
        result = None
        try:
            result = await self.target(*args, **kwargs)
        finally:
            if not options.keeps_lock:
                self._defer_release(grant, options, result, request, new=True)
            try:
                if options.keeps_lock:
                    await grant.lock.aleave_grant(grant)
                else:
                    await grant.arelease()
            except LockError as failure:
                deferred_release.report(grant, failure)
        return result

    def _defer_release(
        self, grant: Grant, options: DecoratorOptions, result: Any, request: HttpRequest | None, *, new: bool
    ) -> None:
        """Hold the lock beyond the call, as the option ``hold`` says."""
        if options.hold != "call":
            response = result if options.hold == "response" and isinstance(result, HttpResponseBase) else None
            connections = open_transactions.around_call(self.name, new=new)
            for each in grant.grants.values() if isinstance(grant, MultiGrant) else (grant,):
                deferred_release.defer_release(each, connections, response, request)

    def _options(self) -> DecoratorOptions:
        return self.arguments.options_for(locks[self.arguments.using], self.name)

    def _condition(
        self, options: DecoratorOptions, request: HttpRequest | None
    ) -> argument_callables.ArgumentCallable | None:
        """The condition for the lock, or None if the call needs it in any case."""
        if options.methods is not None:
            if request is None:
                raise TypeError(
                    f"{self.name} has methods= and was called without a request. Pass a request as the first or second "
                    "argument or as request=, or use condition= instead of methods="
                )
            if request.method not in options.methods:
                return _without_lock
        return (
            None
            if options.condition is None
            else argument_callables.argument_callable(options.condition, _CONDITION, self.name)
        )

    def _lock(self, made: Any, options: DecoratorOptions, *, reenter: bool) -> tuple[BaseLock | MultiLock, bool]:
        """Return the lock of a call, and whether it is entered again: an open transaction keeps it for an earlier call of
        this thread. ``made`` is what the key callable has returned, or a filled template, or several of them."""
        client = locks[self.arguments.using]
        if isinstance(made, str) and made:
            lock = self.arguments.lock(client, made, self.name, options)
            kept = reenter and deferred_release.deferred_grant_of(lock) is not None
            return replace(lock, reentrant=True) if kept else lock, kept
        members, any_kept = [], False
        for key in dict.fromkeys(self._keys(made)):
            lock = self.arguments.lock(client, key, self.name, options, alone=False)
            kept = reenter and deferred_release.deferred_grant_of(lock) is not None
            members.append(replace(lock, reentrant=True) if kept else lock)
            any_kept = any_kept or kept
        return client.multi_lock(*members, on_lost=self.arguments.on_lost), any_kept

    def _keys(self, made: Any) -> list[str]:
        """Return several keys.

        Raises:
            LockKeyError: the key callable has returned something else.
        """
        keys = list(made) if isinstance(made, list | tuple) and made else [made]
        for key in keys:
            if not isinstance(key, str) or not key:
                what = "an empty one" if key in ("", [], ()) else type(key).__name__
                raise LockKeyError(
                    f"the key callable of {self.name} must return a str, or a list of them, not {what}; use condition= for "
                    "calls that need no lock"
                )
        return keys

    def _add_name(self, error: LockKeyError) -> None:
        """Add the lock's name and alias to an error of the key, which is made without them."""
        error.name = error.name or self.name
        error.alias = error.alias or self.arguments.using

    def _aliases_to_begin(self, request: HttpRequest | None) -> list[str]:
        """The aliases of the transactions to begin. Only the innermost of stacked locks begins any."""
        return [] if self.stacked else atomic_requests.aliases_to_begin(request, self.target, self.non_atomic)

    def _claimed_request(self, request: HttpRequest | None, args: tuple[Any, ...]) -> HttpRequest | None:
        """The request, if this call is its view."""
        if request is None or not views.is_view_of(request, self.target, args, self.body):
            return None
        views.claim_request(request, self.body)
        return request

    def _view_begins(self, request: HttpRequest | None) -> None:
        if request is not None and not self.stacked:
            views.view_begins(request)

    def _refused(
        self, view_request: HttpRequest | None, options: DecoratorOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RefusedCall:
        return RefusedCall(
            self.name,
            self.arguments.using,
            options,
            view_request,
            views.drf_request_of(self.target, args, kwargs),
            commands.is_command_body(self.target, args),
        )

    def _refuse_skip_of_view(self, view_request: HttpRequest | None, options: DecoratorOptions) -> None:
        """Raise at the first request of a view with ``on_conflict="skip"``, not only at the first conflict."""
        if options.on_conflict == "skip" and view_request is not None and view_request.resolver_match is not None:
            raise TypeError(
                f'{self.name} is a view and has on_conflict="skip", which returns None instead of a response: '
                "give it a handler(request, refused), or leave on_conflict out"
            )


def _without_lock(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    """A condition that is never true."""
    return False
