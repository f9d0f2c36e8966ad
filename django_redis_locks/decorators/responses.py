"""HTTP answers of a view whose lock isn't to be had. They name neither key nor holder."""

from __future__ import annotations

import math
from http.client import responses
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _

from ..core.callterms import UNSAID, CallTerms

if TYPE_CHECKING:
    from ..core.errors import LockError, LockNotAcquired

LONGEST_RETRY_AFTER = 60
"""Seconds. A lease may be long; its holder is seldom."""


def conflict(request: HttpRequest, refused: LockNotAcquired, calls: CallTerms = UNSAID) -> HttpResponse:
    """409: somebody else is at it. ``Retry-After`` is what is left of his lease, between 1 and 60 seconds.

    429 where the lock isn't given back: it was done not long ago. Then nobody ends the lease earlier."""
    left = max(1, math.ceil(refused.retry_after))
    if calls.cools:
        status, detail = 429, _("This was done not long ago. Try again later.")
    else:
        status, detail = 409, _("This is being worked on by another request. Try again in a moment.")
        left = min(left, LONGEST_RETRY_AFTER)
    retry_after = calls.retry_after
    if retry_after is None or retry_after is True:
        retry_after = left
    return _answer(request, calls.status or status, detail, retry_after or None)


def unavailable(request: HttpRequest, failure: LockError) -> HttpResponse:
    """503: the store of the locks is down, so nothing may run."""
    return _answer(request, 503, _("This is not available for the moment. Try again later."), 5)


def _answer(request: HttpRequest, status: int, detail: str, retry_after: int | None) -> HttpResponse:
    if request.get_preferred_type(["text/plain", "application/json", "application/problem+json"]) in (
        "application/json",
        "application/problem+json",
    ):
        title = responses.get(status, "Refused")
        problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        response: HttpResponse = JsonResponse(problem, status=status, content_type="application/problem+json")
    else:
        response = HttpResponse(detail + "\n", status=status, content_type="text/plain; charset=utf-8")
    if retry_after is not None:
        response["Retry-After"] = str(retry_after)
    response["Cache-Control"] = "no-store"
    return response
