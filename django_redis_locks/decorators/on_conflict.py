"""What becomes of a call whose lock isn't to be had: an answer of ours or of a handler's, an exception, or nothing."""

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
    """A call that wasn't made."""

    name: str
    using: str
    options: DecoratorOptions
    request: HttpRequest | None
    """Whom it answers; None if it is no view."""
    drf_request: Any
    """The request of Django REST framework that it was given, or None."""
    in_command: bool
    """It is the body of a management command."""


def respond(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Any:
    """What the call returns.

    Raises:
        LockNotAcquired, LockBackendError: there is nobody to answer, or somebody else does.
    """
    handler = _handler_for(refused, failure)
    if handler is None:
        return _respond(refused, failure)
    return call_handler(handler, refused.request, failure, refused.name)


async def arespond(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Any:
    """The same for an asynchronous call."""
    handler = _handler_for(refused, failure)
    if handler is None:
        return _respond(refused, failure)
    with _errors_noted(refused.name, failure):
        make: Any = handler if callables.is_async(handler) else sync_to_async(handler)  # it may ask the database
        response = await make(refused.request, failure)
        if inspect.isawaitable(response):
            response = await response
        return _checked_response(response, refused.request)


def respond_without_key(refused: RefusedCall, error: LockKeyError) -> HttpResponse:
    """Answer a request from which no key can be made.

    Raises:
        LockKeyError: the request isn't to blame, or isn't answered here.
    """
    status = refused.options.on_key_error or 400
    to_blame = views.request_of((error.source,), {})
    if to_blame is None or to_blame is not refused.request or status == "raise":
        raise error
    _log.warning("Lock %s: a request is answered with %d: %s", refused.name, status, error)
    if refused.drf_request is not None:
        from . import drf_errors  # noqa: PLC0415 - who has such a request has Django REST framework

        raise drf_errors.UnusableRequest(error, status) from error
    return answers.unusable(refused.request, status)


def call_handler(handler: Handler, request: HttpRequest | None, failure: Any, name: str) -> HttpResponseBase:
    """A handler's response."""
    with _errors_noted(name, failure):
        make: Any = async_to_sync(handler) if callables.is_async(handler) else handler
        return _checked_response(make(request, failure), request)


def handler_in_settings(error: LockNotAcquired) -> Handler | None:
    """The handler that the settings have for the locks of this name, if any."""
    client = locks[error.alias or "default"]
    how = client.overrides(error.name or "").decorator_options.on_conflict or client.settings.on_conflict
    return None if how in ("answer", "raise") else _import_handler(how, error.name or "", error)


def _handler_for(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Handler | None:
    """Who answers, or None. A store that is down is no conflict."""
    if not isinstance(failure, LockNotAcquired):
        return None
    refused.options.set_response(failure)
    if refused.request is None:
        return None
    how = _on_conflict_of(refused)
    return None if how in ("answer", "raise", "skip") else _import_handler(how, refused.name, failure)


def _on_conflict_of(refused: RefusedCall) -> str | Handler:
    return refused.options.on_conflict or locks[refused.using].settings.on_conflict


def _respond(refused: RefusedCall, failure: LockNotAcquired | LockBackendError) -> Any:
    if isinstance(failure, LockNotAcquired):
        how = _on_conflict_of(refused)
        if how == "skip":
            return None
        if how == "raise":
            raise failure
    elif refused.request is not None:
        answers.outcome_unknown(failure)
    if refused.drf_request is not None:
        from . import drf_errors  # noqa: PLC0415 - who has such a request has Django REST framework

        raise drf_errors.answered_error_in_view(failure, refused.drf_request, refused.request) from failure
    if refused.in_command:
        raise commands.command_error(failure) from failure
    if refused.request is None:
        raise failure
    return answers.answer(refused.request, failure)


def _import_handler(how: Any, name: str, failure: LockNotAcquired) -> Handler:
    try:
        return overrides.import_handler(how, "on_conflict")  # type: ignore[no-any-return]
    except ValueError as error:
        raise ImproperlyConfigured(f"Lock {name} is busy, and its {error}") from failure


@contextmanager
def _errors_noted(name: str, failure: BaseException) -> Iterator[None]:
    """What a handler raises says where it comes from; the conflict itself is no mistake of its."""
    try:
        yield
    except Exception as error:
        if error is not failure:
            error.add_note(f"The on_conflict handler of lock {name} raised this, which was to answer a refused request")
            error.__cause__ = error.__cause__ or failure
        raise


def _checked_response(response: Any, request: HttpRequest | None) -> HttpResponseBase:
    if not isinstance(response, HttpResponseBase):
        if inspect.isawaitable(response):
            argument_callables.close_unawaited(response)
        raise TypeError(
            f"on_conflict: a handler returns an HttpResponse, not {type(response).__name__}; "
            "to have the exception raised, raise it, and for our own answer call django_redis_locks.answers.answer"
        )
    if request is not None:
        answers.expected(request)
    return response
