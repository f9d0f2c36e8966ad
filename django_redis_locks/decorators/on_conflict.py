"""``on_conflict``: a call that doesn't get its lock returns a response, calls a handler, raises, or is skipped."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http.response import HttpResponseBase

from .. import answers
from ..conf import overrides
from ..core.errors import LockBackendError, LockKeyError, LockNotAcquired
from ..handler import locks
from . import argument_callables, callables, commands, views

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ..conf.decorator_options import DecoratorOptions, Handler


_log = logging.getLogger("django_redis_locks")


class RefusedCall(NamedTuple):
    """A call that didn't get its lock."""

    name: str
    using: str
    options: DecoratorOptions
    request: HttpRequest | None
    """The request, if the call is its view."""
    drf_request: Any
    """The request of Django REST framework that the call serves, or None."""
    in_command: bool
    """Whether the call is the body of a management command."""


def respond(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Any:
    """Return the response of a view, or None for ``"skip"``.

    Raises:
        LockNotAcquired, LockBackendError: the call isn't a view, or ``on_conflict`` is ``"raise"``. In Django REST
            framework or a management command, a subclass from which the framework makes a response, or the command an
            error message.
    """
    handler = _handler_for(refused, failure)
    if handler is None:
        return _respond(refused, failure)
    return call_handler(handler, refused.request, failure, refused.name)


async def arespond(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Any:
    """As ``respond``, for an asynchronous call."""
    handler = _handler_for(refused, failure)
    if handler is None:
        return _respond(refused, failure)
    with _errors_noted(refused.name, failure):
        make: Any = handler if callables.is_async(handler) else sync_to_async(handler)  # it may use the database
        response = await make(refused.request, failure)
        if inspect.isawaitable(response):
            response = await response
        return _checked_response(response, refused.request)


def respond_without_key(refused: RefusedCall, error: LockKeyError) -> HttpResponse:
    """Return the response to a request that lacks a part of the key.

    Raises:
        LockKeyError: the part comes from elsewhere, the call isn't a view, or ``on_key_error`` is ``"raise"``.
    """
    status = refused.options.on_key_error or 400
    lacking_request = views.request_of((error.source,), {})
    if lacking_request is None or lacking_request is not refused.request or status == "raise":
        raise error
    _log.warning("Lock %s: a request is answered with %d: %s", refused.name, status, error)
    if refused.drf_request is not None:
        from . import drf_errors  # noqa: PLC0415 - only such a request needs Django REST framework

        raise drf_errors.UnusableRequest(error, status) from error
    return answers.unusable_request(refused.request, status)


def call_handler(handler: Handler, request: HttpRequest | None, failure: Any, name: str) -> HttpResponseBase:
    """Call a handler and return its response."""
    with _errors_noted(name, failure):
        make: Any = async_to_sync(handler) if callables.is_async(handler) else handler
        return _checked_response(make(request, failure), request)


def handler_in_settings(error: LockNotAcquired) -> Handler | None:
    """The handler for this lock in the settings, or None."""
    client = locks[error.alias or "default"]
    policy = client.overrides(error.name or "").decorator_options.on_conflict or client.settings.on_conflict
    return None if policy in ("answer", "raise") else _import_handler(policy, error.name or "", error)


def _handler_for(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Handler | None:
    """The handler for a refused view, or None. Handlers aren't called if the store is down."""
    if not isinstance(failure, LockNotAcquired):
        return None
    refused.options.set_response(failure)
    if refused.request is None:
        return None
    policy = _on_conflict_of(refused)
    return None if policy in ("answer", "raise", "skip") else _import_handler(policy, refused.name, failure)


def _on_conflict_of(refused: RefusedCall) -> str | Handler:
    return refused.options.on_conflict or locks[refused.using].settings.on_conflict


def _respond(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Any:
    if isinstance(failure, LockNotAcquired):
        policy = _on_conflict_of(refused)
        if policy == "skip":
            return None
        if policy == "raise":
            raise failure
    elif refused.request is not None:
        answers.report_unavailable(failure)
    if refused.drf_request is not None:
        from . import drf_errors  # noqa: PLC0415 - only such a request needs Django REST framework

        raise drf_errors.answered_error_in_view(failure, refused.drf_request, refused.request) from failure
    if refused.in_command:
        raise commands.command_error(failure) from failure
    if refused.request is None:
        raise failure
    return answers.answer(refused.request, failure)


def _import_handler(handler: Any, name: str, failure: LockNotAcquired) -> Handler:
    try:
        return overrides.import_handler(handler, "on_conflict")  # type: ignore[no-any-return]
    except ValueError as error:
        raise ImproperlyConfigured(f"Lock {name} is busy, and its {error}") from failure


@contextmanager
def _errors_noted(name: str, failure: BaseException) -> Iterator[None]:
    """Add a note to an exception of a handler, unless the handler raises the conflict itself."""
    try:
        yield
    except Exception as error:
        if error is not failure:
            error.add_note(f"The on_conflict handler of lock {name} raised this, instead of returning a response")
            error.__cause__ = error.__cause__ or failure
        raise


def _checked_response(response: Any, request: HttpRequest | None) -> HttpResponseBase:
    if not isinstance(response, HttpResponseBase):
        if inspect.isawaitable(response):
            argument_callables.close_unawaited(response)
        raise TypeError(
            f"on_conflict: a handler returns an HttpResponse, not {type(response).__name__}; "
            "it may also raise the exception, or return the default response, django_redis_locks.answers.answer(...)"
        )
    if request is not None:
        answers.expect_refusal(request)
    return response
