"""Decorated views, functions and methods of every kind. They all call ``body``; the test sets what it does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from django_redis_locks import redis_lock


class Body:
    """The body of all of them: calls `act`, or `aact` if async. `runs` counts the calls."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.runs = 0
        self.act: Callable[[], str | None] = lambda: None
        self.aact: Callable[[], Awaitable[str | None]] = functools.partial(asyncio.sleep, 0)

    def call(self, *_: object) -> str:
        self.runs += 1
        return self.act() or "done"

    async def acall(self, *_: object) -> str:
        self.runs += 1
        return await self.aact() or "done"


body = Body()


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(body.call())


async def async_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(await body.acall())


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return view(request)

    head = options = trace = post = put = patch = delete = get


class AsyncPlain(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await async_view(request)

    head = options = trace = post = put = patch = delete = get


def class_view(base: type[View], **members: object) -> Any:
    """A class with these members, as a view."""
    return type(f"Own{base.__name__}", (base,), members).as_view()


def decorated_class_view(base: type[View], lock: Any, **members: object) -> Any:
    """A class that `method_decorator` decorates, as a view."""
    lock = redis_lock(lock) if isinstance(lock, str) else lock
    return method_decorator(lock, name="dispatch")(type(f"Own{base.__name__}", (base,), members)).as_view()


SYNC_VIEWS = {
    "function": redis_lock("view")(view),
    "bare": redis_lock(view),
    "stacked": redis_lock("outer")(redis_lock("inner")(view)),
    "between-others": csrf_exempt(redis_lock("between")(never_cache(require_http_methods(["GET"])(view)))),
    "as-view": redis_lock("as view")(Plain.as_view()),
    "dispatch": decorated_class_view(Plain, "dispatch"),
    "dispatch-direct": class_view(Plain, dispatch=redis_lock("dispatch direct")(View.dispatch)),
    "get": class_view(Plain, get=method_decorator(redis_lock("get"))(Plain.get)),
    "get-direct": class_view(Plain, get=redis_lock("get direct")(Plain.get)),
    "dispatch-and-get": decorated_class_view(Plain, "dispatch of both", get=redis_lock("get of both")(Plain.get)),
}
ASYNC_VIEWS = {
    "async-function": redis_lock("async view")(async_view),
    "async-bare": redis_lock(async_view),
    "async-stacked": redis_lock("async outer")(redis_lock("async inner")(async_view)),
    "async-between-others": csrf_exempt(
        redis_lock("async between")(never_cache(require_http_methods(["GET"])(async_view)))
    ),
    "async-as-view": redis_lock("async as view")(AsyncPlain.as_view()),
    "async-dispatch": decorated_class_view(AsyncPlain, "async dispatch"),
    "async-dispatch-direct": class_view(AsyncPlain, dispatch=redis_lock("async dispatch direct")(View.dispatch)),
    "async-get": class_view(AsyncPlain, get=method_decorator(redis_lock("async get"))(AsyncPlain.get)),
    "async-get-direct": class_view(AsyncPlain, get=redis_lock("async get direct")(AsyncPlain.get)),
}

urlpatterns = [path(f"{name}/", view) for name, view in {**SYNC_VIEWS, **ASYNC_VIEWS}.items()]
urlpatterns += [path("stacked-inner-busy/", redis_lock("free outer")(redis_lock("view")(view)))]


# Functions and methods; tests/django/test_keys.py has the other callables


class Shop:
    method = redis_lock("method")(body.call)
    amethod = redis_lock("async method")(body.acall)


CALLS: dict[str, Callable[[], str]] = {
    "function": redis_lock("function")(body.call),
    "bare-function": redis_lock(body.call),
    "method": Shop().method,
    "stacked": redis_lock("outer call")(redis_lock("inner call")(body.call)),
    "reentrant": redis_lock("re-entrant", reentrant=True)(body.call),
    "renewed": redis_lock("renewed", expire=5, renew=True)(body.call),
}

ASYNC_CALLS: dict[str, Callable[[], Awaitable[str]]] = {
    "function": redis_lock("async function")(body.acall),
    "bare-function": redis_lock(body.acall),
    "method": Shop().amethod,
    "stacked": redis_lock("async outer call")(redis_lock("async inner call")(body.acall)),
    "reentrant": redis_lock("async re-entrant", reentrant=True)(body.acall),
}
