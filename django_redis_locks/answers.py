"""HTTP responses to requests that don't get their lock. No response contains the key or the holder."""

from __future__ import annotations

import logging
from http.client import responses

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from .core import events
from .core.errors import LockBackendError, LockKeyError, LockNotAcquired

DOWN_RETRY_AFTER = 5
"""``Retry-After`` while the store is down, in seconds."""

_TEXT, _HTML, _JSON = "text/plain", "text/html", ("application/json", "application/problem+json")

_REFUSED = "_redis_lock_refused"


def answer(request: HttpRequest, error: LockNotAcquired | LockBackendError) -> HttpResponse:
    """Return the response that a decorated view sends when its lock is busy, for code that handles the error itself.

    Args:
        request: the request, whose ``Accept`` header selects an HTML page, problem details or a text.
        error: the exception that was raised, or passed to the handler.

    Returns:
        A response with ``Retry-After`` and ``Cache-Control: no-store``. The status is ``error.status`` (409, 429, or
        the lock's ``status=``) for a busy lock, and 503 if the store is down. The HTML page is the template
        ``redis_locks/<status>.html``, if the project has one; it is rendered after the view has returned.

    Example::

        try:
            charge(order)
        except LockNotAcquired as error:
            return answer(request, error)
    """
    if isinstance(error, LockNotAcquired):
        expect_refusal(request)
        return _answer(request, error.status, detail_of(error), error.retry_header)
    return _answer(request, 503, detail_of(error), DOWN_RETRY_AFTER)


def unusable_request(request: HttpRequest, status: int) -> HttpResponse:
    """Return the response to a request that lacks a part of the key."""
    return _answer(request, status, _unusable_text(), None)


def _unusable_text() -> str:
    return _("The request lacks something that it needs, or has it in a form that can't be used.")


def detail_of(error: LockNotAcquired | LockBackendError | LockKeyError) -> str:
    """Return a sentence about the error for the user."""
    if isinstance(error, LockKeyError):
        return _unusable_text()
    if isinstance(error, LockBackendError):
        return _("This is not available for the moment. Try again later.")
    if error.rate_limited:
        return _("This was done not long ago. Try again later.")
    return _("This is being worked on by another request. Try again in a moment.")


def report_unavailable(error: LockBackendError) -> None:
    """Emit an event for a store that is down, because the exception isn't raised: the response is a 503."""
    context = (error.key or "", error.name or "", error.alias or "")
    events.emit(events.BackendFailed(*context, "acquire, answered with 503", str(error)))


def _answer(request: HttpRequest, status: int, detail: str, retry_after: int | None) -> HttpResponse:
    response: HttpResponse | None = None
    if request.get_preferred_type([_TEXT, _HTML, *_JSON]) == _HTML:
        response = _page(request, status, detail, retry_after)
    if response is None:
        response = _plain(request, status, detail)
    if retry_after is not None:
        response["Retry-After"] = str(retry_after)
    response["Cache-Control"] = "no-store"
    return response


def _plain(request: HttpRequest, status: int, detail: str) -> HttpResponse:
    """Return problem details (RFC 9457) or a text."""
    if request.get_preferred_type([_TEXT, *_JSON]) in _JSON:
        problem = {"type": "about:blank", "title": responses.get(status, "Refused"), "status": status, "detail": detail}
        return JsonResponse(problem, status=status, content_type="application/problem+json")
    return HttpResponse(detail + "\n", status=status, content_type=f"{_TEXT}; charset=utf-8")


def _page(request: HttpRequest, status: int, detail: str, retry_after: int | None) -> HttpResponse | None:
    """Return the project's HTML page, or None. Django renders it later, for an async view in a thread, where the
    template may use the database."""
    try:
        template = get_template(f"redis_locks/{status}.html")
    except TemplateDoesNotExist:
        return None
    context = {"status": status, "detail": detail, "retry_after": retry_after}
    return TemplateResponse(request, template, context, status=status)


# Django logs each 4xx response as a WARNING of "django.request". A busy lock is normal, and this package has logged it.


def expect_refusal(request: HttpRequest, refused: bool = True) -> None:
    """Mark a request whose 4xx response is due to a busy lock, so that Django doesn't log it."""
    setattr(getattr(request, "_request", request), _REFUSED, refused)  # _request: Django's request inside that of DRF
    if refused:
        _log.addFilter(_is_unexpected)  # each time, because the logging may be configured again; added only once


def _is_unexpected(record: logging.LogRecord) -> bool:
    """A filter for the log "django.request" that drops the records of marked requests."""
    return getattr(record, "status_code", 500) >= 500 or not getattr(getattr(record, "request", None), _REFUSED, False)


_log = logging.getLogger("django.request")
