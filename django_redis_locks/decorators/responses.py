"""HTTP answers of a view whose lock isn't to be had. They name neither key nor holder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from ..core.errors import LockError, LockNotAcquired

LONGEST_RETRY_AFTER = 60
"""Seconds. A lease may be long; its holder is seldom."""


def conflict(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    """409: somebody else is at it. ``Retry-After`` is what is left of his lease, between 1 and 60 seconds."""
    seconds = min(max(1, math.ceil(refused.retry_after)), LONGEST_RETRY_AFTER)
    return _answer(request, 409, _("This is being worked on by another request. Try again in a moment."), seconds)


def unavailable(request: HttpRequest, failure: LockError) -> HttpResponse:
    """503: the store of the locks is down, so nothing may run."""
    return _answer(request, 503, _("This is not available for the moment. Try again later."), 5)


def _answer(request: HttpRequest, status: int, detail: str, retry_after: int) -> HttpResponse:
    if request.get_preferred_type(["text/plain", "application/json", "application/problem+json"]) in (
        "application/json",
        "application/problem+json",
    ):
        title = {409: "Conflict", 503: "Service Unavailable"}[status]
        problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        response: HttpResponse = JsonResponse(problem, status=status, content_type="application/problem+json")
    else:
        response = HttpResponse(detail + "\n", status=status, content_type="text/plain; charset=utf-8")
    response["Retry-After"] = str(retry_after)
    response["Cache-Control"] = "no-store"
    return response
