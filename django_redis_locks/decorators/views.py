"""Is this call the view that answers the request? Then a refusal is an HTTP answer; elsewhere it is an exception."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.views import View

from . import callables

MARK = "_redis_lock_view"
"""On every decorated function. ``functools.wraps`` and ``as_view`` carry it to whatever the URL leads to."""

_ENTERED = "_redis_lock_entered"


def request_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> HttpRequest | None:
    """The request among the first two arguments, or None."""
    for value in (*args[:2], kwargs.get("request")):
        if isinstance(value, HttpRequest):
            return value
        inner = getattr(value, "_request", None)  # a Django REST framework request
        if isinstance(inner, HttpRequest):
            return inner
    return None


def answers(request: HttpRequest | None, target: Any, args: tuple[Any, ...]) -> bool:
    """Whether the decorated call answers this request, and isn't a helper that was handed it. The handlers of
    class-based views always do; a function does if it, or what wraps it, is what the URL leads to."""
    if request is None:
        return False
    if callables.view_of(target, args) is not None:
        return True
    if isinstance(args[0] if args else None, View) or isinstance(callables.bound_to(target), View):
        return False
    match = request.resolver_match
    return not getattr(request, _ENTERED, False) and (match is None or hasattr(match.func, MARK))


def enter(request: HttpRequest) -> None:
    """From now on the view's body runs: what it calls are helpers."""
    setattr(request, _ENTERED, True)
