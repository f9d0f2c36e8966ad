"""Django REST framework: an exception handler that turns a busy lock into a response of the framework."""

from __future__ import annotations

from typing import Any

from rest_framework import views

from .. import answers
from ..core.errors import LockBackendError, LockNotAcquired
from ..decorators import on_conflict
from ..decorators.drf_errors import Locked, LocksUnavailable, answered_error

__all__ = ["Locked", "LocksUnavailable", "exception_handler"]


def exception_handler(exc: Exception, context: dict[str, Any]) -> Any:
    """The framework's exception handler, extended by ``LockNotAcquired`` and ``LockBackendError``.

    Set it as ``EXCEPTION_HANDLER`` in ``REST_FRAMEWORK``, or call it from the project's own. An ``ON_CONFLICT`` handler
    in the settings takes precedence for ``LockNotAcquired``.

    Args:
        exc: the exception of a view.
        context: the dict that the framework passes to exception handlers, with the view and the request.

    Returns:
        The response, or None for other exceptions.
    """
    request: Any = context.get("request")
    if isinstance(exc, LockNotAcquired):
        handler = None if isinstance(exc, Locked) or request is None else on_conflict.handler_in_settings(exc)
        if handler is not None:
            views.set_rollback()
            return on_conflict.call_handler(handler, request._request, exc, exc.name or "")
        exc = exc if isinstance(exc, Locked) else answered_error(exc)
        if request is not None:
            answers.expect_refusal(request._request)
    elif isinstance(exc, LockBackendError) and not isinstance(exc, LocksUnavailable):
        answers.report_unavailable(exc)
        exc = answered_error(exc)
    response = views.exception_handler(exc, context)
    if response is not None and isinstance(exc, Locked | LocksUnavailable):
        response["Cache-Control"] = "no-store"
    return response
