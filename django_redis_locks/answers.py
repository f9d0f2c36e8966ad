"""What a client is told whose request isn't served for want of a lock. No answer names key or holder."""

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
"""Seconds until a client may ask again while the store is down."""

_TEXT, _HTML, _JSON = "text/plain", "text/html", ("application/json", "application/problem+json")

_REFUSED = "_redis_lock_refused"


def answer(request: HttpRequest, error: LockNotAcquired | LockBackendError) -> HttpResponse:
    """The answer that a decorated view gives by itself, for whoever catches these errors or handles conflicts.

    Args:
        request: who is answered; its ``Accept`` decides whether that is a page, problem details or a text.
        error: what was raised, or given to the handler.

    Returns:
        ``error.status`` (409, 429, or what the call site says) for a busy lock, 503 for a store that is down, with
        ``Retry-After`` and ``Cache-Control: no-store``. A page is the template ``redis_locks/<status>.html``, rendered
        when the view has returned, if there is one.
    """
    if isinstance(error, LockNotAcquired):
        expected(request)
        return _answer(request, error.status, detail_of(error), error.retry_header)
    return _answer(request, 503, detail_of(error), DOWN_RETRY_AFTER)


def unusable(request: HttpRequest, status: int) -> HttpResponse:
    """The answer to a request that lacks what the key of its lock needs."""
    return _answer(request, status, _unusable(), None)


def _unusable() -> str:
    return _("The request lacks something that it needs, or has it in a form that can't be used.")


def detail_of(error: LockNotAcquired | LockBackendError | LockKeyError) -> str:
    """What has happened, in a sentence for people."""
    if isinstance(error, LockKeyError):
        return _unusable()
    if isinstance(error, LockBackendError):
        return _("This is not available for the moment. Try again later.")
    if error.rate_limited:
        return _("This was done not long ago. Try again later.")
    return _("This is being worked on by another request. Try again in a moment.")


def outcome_unknown(error: LockBackendError) -> None:
    """Tell the log and the signal what nobody else will: a store that is down is answered with 503."""
    about = (error.key or "", error.name or "", error.alias or "")
    events.emit(events.BackendFailed(*about, "acquire, answered with 503", str(error)))


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
    """Problem details (RFC 9457) or a text."""
    if request.get_preferred_type([_TEXT, *_JSON]) in _JSON:
        problem = {"type": "about:blank", "title": responses.get(status, "Refused"), "status": status, "detail": detail}
        return JsonResponse(problem, status=status, content_type="application/problem+json")
    return HttpResponse(detail + "\n", status=status, content_type=f"{_TEXT}; charset=utf-8")


def _page(request: HttpRequest, status: int, detail: str, retry_after: int | None) -> HttpResponse | None:
    """The project's own, if it has one. Django renders it where it may ask the database, for an async view in a thread."""
    try:
        template = get_template(f"redis_locks/{status}.html")
    except TemplateDoesNotExist:
        return None
    context = {"status": status, "detail": detail, "retry_after": retry_after}
    return TemplateResponse(request, template, context, status=status)


# Django logs every 4xx as a WARNING of "django.request". A busy lock is normal, and has its line in our log already.


def expected(request: HttpRequest, refused: bool = True) -> None:
    """Whether a 4xx of this request is a busy lock's, so that Django needn't warn of it."""
    setattr(getattr(request, "_request", request), _REFUSED, refused)  # Django's own, of a framework's
    if refused:
        _log.addFilter(_worth_a_line)  # once, whatever has been configured meanwhile


def _worth_a_line(record: logging.LogRecord) -> bool:
    """A filter of the log "django.request", whose records have request and status_code."""
    return getattr(record, "status_code", 500) >= 500 or not getattr(getattr(record, "request", None), _REFUSED, False)


_log = logging.getLogger("django.request")
