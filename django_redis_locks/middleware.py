"""``LockMiddleware``: turns lock errors of views without ``@redis_lock`` into responses."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from . import answers
from .core.errors import LockBackendError, LockNotAcquired
from .decorators import on_conflict


class LockMiddleware(MiddlewareMixin):
    """Responds to ``LockNotAcquired`` and ``LockBackendError`` as a decorated view does, or with the ``ON_CONFLICT``
    handler of the settings. For synchronous and asynchronous servers.

    Other lock errors are programming errors or lost locks, and remain a 500 response."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Return the response to an exception of a view. Called by Django.

        Args:
            request: the request.
            exception: the exception of the view.

        Returns:
            The response, or None for an exception that isn't about a busy lock or a store that is down.
        """
        if isinstance(exception, LockNotAcquired):
            handler = on_conflict.handler_in_settings(exception)
            if handler is not None:
                return on_conflict.call_handler(handler, request, exception, exception.name or "")
        elif isinstance(exception, LockBackendError):
            answers.report_unavailable(exception)
        else:
            return None
        return answers.answer(request, exception)
