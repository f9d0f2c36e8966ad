"""The response of all views with a busy lock. `ON_CONFLICT` in the settings names it; `views.py` doesn't refer to
it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from django_redis_locks import LockNotAcquired, answers

from .views import page, wants_json


def answer(request: HttpRequest, refused: LockNotAcquired) -> HttpResponse:
    """The shop's page for browsers; for other clients the default response of the decorator, problem details."""
    usual = answers.answer(request, refused)
    if wants_json(request):
        return usual
    response = page(request, "Another buyer is paying for this one. Try again in a moment.", refused.status)
    response["Retry-After"] = usual["Retry-After"]
    return response
