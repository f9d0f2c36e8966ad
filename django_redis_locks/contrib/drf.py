"""Django REST framework: busy locks as answers of the framework's own."""

from __future__ import annotations

from typing import Any

from rest_framework import views

from .. import answers
from ..core.errors import LockBackendError, LockNotAcquired
from ..decorators import on_conflict
from ..decorators.drf_errors import Locked, LocksUnavailable, answered_error

__all__ = ["Locked", "LocksUnavailable", "exception_handler"]


def exception_handler(exc: Exception, context: dict[str, Any]) -> Any:
    """The framework's own handler, which knows ``LockNotAcquired`` and ``LockBackendError`` too: for services that raise
    them. Set it as ``EXCEPTION_HANDLER`` in ``REST_FRAMEWORK``, or call it from the one that you have. Where the settings have
    an ``ON_CONFLICT`` handler, that answers.

    Args:
        exc: what a view raised.
        context: what the framework says of it: view, request, arguments.

    Returns:
        The response, or None for an exception that it doesn't know.
    """
    request: Any = context.get("request")
    if isinstance(exc, LockNotAcquired):
        handler = None if isinstance(exc, Locked) or request is None else on_conflict.handler_in_settings(exc)
        if handler is not None:
            views.set_rollback()
            return on_conflict.call_handler(handler, request._request, exc, exc.name or "")
        exc = exc if isinstance(exc, Locked) else answered_error(exc)
        if request is not None:
            answers.expected(request._request)
    elif isinstance(exc, LockBackendError) and not isinstance(exc, LocksUnavailable):
        answers.outcome_unknown(exc)
        exc = answered_error(exc)
    response = views.exception_handler(exc, context)
    if response is not None and isinstance(exc, Locked | LocksUnavailable):
        response["Cache-Control"] = "no-store"
    return response
