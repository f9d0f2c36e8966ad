"""Finds out whether a decorated call is the view of its request: only a view turns a busy lock into a response."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from django.http import HttpRequest
from django.views import View

from ..answers import expect_refusal
from . import callables

DECORATED = "_redis_lock_view"
"""An attribute of all decorated functions. ``functools.wraps`` and ``as_view`` copy it to the view of the URL."""

_CLAIMED = "_redis_lock_view_body"


def drf_request_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The request of Django REST framework that the call serves, or None. Exceptions of such a call reach the
    framework's exception handler. It is one of the first two arguments, ``request=``, or that of the method's view."""
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
    """Whether the decorated call is the view of this request, and not another function that gets the request.

    A handler of a class-based view always is. A function is if it, or a wrapper of it, is the view of the URL.
    """
    if callables.view_of(target, args) is not None:
        return True
    if isinstance(args[0] if args else None, View) or isinstance(callables.bound_to(target), View):
        return False
    match = request.resolver_match
    if match is not None and _is_api_view_of(match.func, body):
        return True
    return getattr(request, _CLAIMED, body) is body and (match is None or hasattr(match.func, DECORATED))


def _is_api_view_of(function: Any, body: Any) -> bool:
    """Whether ``@api_view`` made this view from that function. Should a later version of the framework work otherwise,
    it still makes the response, but the project's ``on_conflict`` handler isn't called."""
    made = getattr(function, "cls", None)
    return (
        made is not None
        and made.__qualname__ == "WrappedAPIView"
        and made.__name__ == getattr(body, "__name__", None)
        and made.__module__ == getattr(body, "__module__", None)
    )


def claim_request(request: HttpRequest, body: Any) -> None:
    """Record this function as the view of the request, so that other functions that get the request aren't. A decorator
    above the view may call it repeatedly."""
    setattr(request, _CLAIMED, body)


def view_begins(request: HttpRequest) -> None:
    """Record that the view has its lock and begins: a 4xx is now its own response, which Django logs."""
    expect_refusal(request, False)
