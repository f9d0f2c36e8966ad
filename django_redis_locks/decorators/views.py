"""Whether a decorated call is the view of the request. A view answers a busy lock; other functions raise it."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from django.http import HttpRequest
from django.views import View

from ..answers import expect_refusal
from . import callables

DECORATED = "_redis_lock_view"
"""The attribute of every decorated function. ``functools.wraps`` and ``as_view`` copy it to the view of the URL."""

_CLAIMED = "_redis_lock_view_body"


def drf_request_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The request of Django REST framework that the call serves, or None: among the first two arguments, ``request=``,
    or that of the method's view. With such a request, exceptions reach the framework's exception handler."""
    module = sys.modules.get("rest_framework.request")
    if module is not None:
        owner = callables.bound_to(target) or (args[0] if args else None)
        of_view = owner.request if isinstance(owner, View) and hasattr(owner, "request") else None
        for value in (*args[:2], kwargs.get("request"), of_view):
            if isinstance(value, module.Request):
                return value
    return None


def request_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> HttpRequest | None:
    """The request among the first two arguments, or ``request=``, or None."""
    for value in (*args[:2], kwargs.get("request")):
        if isinstance(value, HttpRequest):
            return value
        inner = getattr(value, "_request", None)  # a Django REST framework request
        if isinstance(inner, HttpRequest):
            return inner
    return None


def innermost_function(target: Any) -> Any:
    """The function below all decorators. It identifies a view, also if that is called repeatedly."""
    return inspect.unwrap(callables.function_of(target))


def is_view_of(request: HttpRequest, target: Any, args: tuple[Any, ...], body: Any) -> bool:
    """Whether the decorated call is the view of this request, not a helper that got it as an argument. A handler of a
    class-based view always is; a function is if it, or its wrapper, is the view of the URL."""
    if callables.view_of(target, args) is not None:
        return True
    if isinstance(args[0] if args else None, View) or isinstance(callables.bound_to(target), View):
        return False
    match = request.resolver_match
    if match is not None and _is_api_view_of(match.func, body):
        return True
    return getattr(request, _CLAIMED, body) is body and (match is None or hasattr(match.func, DECORATED))


def _is_api_view_of(function: Any, body: Any) -> bool:
    """Whether ``@api_view`` made this view from that function. If a later version of the framework makes it otherwise,
    the framework still answers, but no handler of the project is called."""
    made = getattr(function, "cls", None)
    return (
        made is not None
        and made.__qualname__ == "WrappedAPIView"
        and made.__name__ == getattr(body, "__name__", None)
        and made.__module__ == getattr(body, "__module__", None)
    )


def claim_request(request: HttpRequest, body: Any) -> None:
    """Mark this function as the view of the request. Other functions that get the request are helpers then; the view
    itself may be called repeatedly, by a decorator above it."""
    setattr(request, _CLAIMED, body)


def view_begins(request: HttpRequest) -> None:
    """The view has its lock and begins: a 4xx is its own response, and Django logs it."""
    expect_refusal(request, False)
