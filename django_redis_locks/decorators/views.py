"""Is this call the view that answers the request? Then a refusal is an HTTP answer; elsewhere it is an exception."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from django.http import HttpRequest
from django.views import View

from ..answers import expected
from . import callables

DECORATED = "_redis_lock_view"
"""On every decorated function. ``functools.wraps`` and ``as_view`` carry it to whatever the URL leads to."""

_CLAIMED = "_redis_lock_view_body"


def drf_request_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The request of Django REST framework that the call serves, or None: one of its first two arguments, or that of the view
    whose method it is. Where it is at hand, what is raised comes to the framework's handler of exceptions."""
    module = sys.modules.get("rest_framework.request")
    if module is not None:
        owner = callables.bound_to(target) or (args[0] if args else None)
        of_view = owner.request if isinstance(owner, View) and hasattr(owner, "request") else None
        for value in (*args[:2], kwargs.get("request"), of_view):
            if isinstance(value, module.Request):
                return value
    return None


def request_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> HttpRequest | None:
    """The request among the first two arguments, or None."""
    for value in (*args[:2], kwargs.get("request")):
        if isinstance(value, HttpRequest):
            return value
        inner = getattr(value, "_request", None)  # a Django REST framework request
        if isinstance(inner, HttpRequest):
            return inner
    return None


def innermost_function(target: Any) -> Any:
    """The function below all decorators: what tells a view from its helpers, and its second try from neither."""
    return inspect.unwrap(callables.function_of(target))


def is_view_of(request: HttpRequest, target: Any, args: tuple[Any, ...], body: Any) -> bool:
    """Whether the decorated call answers this request, and isn't a helper that was handed it. The handlers of
    class-based views always do; a function does if it, or what wraps it, is what the URL leads to."""
    if callables.view_of(target, args) is not None:
        return True
    if isinstance(args[0] if args else None, View) or isinstance(callables.bound_to(target), View):
        return False
    match = request.resolver_match
    if match is not None and _is_api_view_of(match.func, body):
        return True
    return getattr(request, _CLAIMED, body) is body and (match is None or hasattr(match.func, DECORATED))


def _is_api_view_of(function: Any, body: Any) -> bool:
    """Whether that is what ``@api_view`` made of it: a view class with its name, around it. Should that look different one
    day, the framework answers all the same; only a handler of the project's wouldn't be asked."""
    made = getattr(function, "cls", None)
    return (
        made is not None
        and made.__qualname__ == "WrappedAPIView"
        and made.__name__ == getattr(body, "__name__", None)
        and made.__module__ == getattr(body, "__module__", None)
    )


def claim_request(request: HttpRequest, body: Any) -> None:
    """From now on, what else is handed the request is a helper: called by the view's key, its body, or its template when
    all is over. Only the view itself answers again, if a decorator above it tries once more."""
    setattr(request, _CLAIMED, body)


def view_begins(request: HttpRequest) -> None:
    """The view's body begins. What it answers is its own."""
    expected(request, False)
