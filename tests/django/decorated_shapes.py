"""Decorated views, functions and methods of every shape; the test sets what their bodies do."""

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
    """What every shape calls: `act`, or `aact` if it is async; `runs` counts the calls."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.runs = 0
        self.act: Callable[[], object] = lambda: None
        self.aact: Callable[[], Awaitable[object]] = functools.partial(asyncio.sleep, 0)

    def call(self, *_: object) -> str:
        self.runs += 1
        self.act()
        return "done"

    async def acall(self, *_: object) -> str:
        self.runs += 1
        await self.aact()
        return "done"


body = Body()


def respond(*_: object) -> HttpResponse:
    return HttpResponse(body.call())


async def arespond(*_: object) -> HttpResponse:
    return HttpResponse(await body.acall())


# Views


@redis_lock("view")
def function_view(request: HttpRequest) -> HttpResponse:
    return respond()


@redis_lock
def bare_view(request: HttpRequest) -> HttpResponse:
    return respond()


@redis_lock("outer")
@redis_lock("inner")
def stacked_view(request: HttpRequest) -> HttpResponse:
    return respond()


@redis_lock("free outer")
@redis_lock("view")
def stacked_inner_busy(request: HttpRequest) -> HttpResponse:
    return respond()


@csrf_exempt
@redis_lock("between")
@never_cache
@require_http_methods(["GET"])
def between_others(request: HttpRequest) -> HttpResponse:
    return respond()


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return respond()


@method_decorator(redis_lock("dispatch"), name="dispatch")
class Dispatch(Plain):
    pass


class DispatchDirect(Plain):
    @redis_lock("dispatch direct")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


class Get(View):
    @method_decorator(redis_lock("get"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return respond()


@method_decorator(redis_lock("get by name"), name="get")
class GetByName(Plain):
    pass


class GetDirect(View):
    @redis_lock("get direct")
    def get(self, request: HttpRequest) -> HttpResponse:
        return respond()


@method_decorator(redis_lock("dispatch of both"), name="dispatch")
class DispatchAndGet(View):
    @redis_lock("get of both")
    def get(self, request: HttpRequest) -> HttpResponse:
        return respond()


class GetOfParent(GetDirect):
    def get(self, request: HttpRequest) -> HttpResponse:
        return super().get(request)


class Action(View):
    """As a view set of Django REST framework calls its actions."""

    action = "pay"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.pay(request)

    @redis_lock("action")
    def pay(self, request: HttpRequest) -> HttpResponse:
        return respond()


SYNC_VIEWS = {
    "function": function_view,
    "bare": bare_view,
    "stacked": stacked_view,
    "between-others": between_others,
    "as-view": redis_lock("as view")(Plain.as_view()),
    "as-view-bare": redis_lock(Plain.as_view()),
    "as-view-of-get": redis_lock("as view of get")(Get.as_view()),
    "as-view-of-dispatch": redis_lock("as view of dispatch")(Dispatch.as_view()),
    "dispatch": Dispatch.as_view(),
    "dispatch-direct": DispatchDirect.as_view(),
    "get": Get.as_view(),
    "get-by-name": GetByName.as_view(),
    "get-direct": GetDirect.as_view(),
    "dispatch-and-get": DispatchAndGet.as_view(),
    "get-of-parent": GetOfParent.as_view(),
    "action": Action.as_view(),
}


# Async views


@redis_lock("async view")
async def async_view(request: HttpRequest) -> HttpResponse:
    return await arespond()


@redis_lock
async def async_bare_view(request: HttpRequest) -> HttpResponse:
    return await arespond()


@redis_lock("async outer")
@redis_lock("async inner")
async def async_stacked_view(request: HttpRequest) -> HttpResponse:
    return await arespond()


@csrf_exempt
@redis_lock("async between")
@never_cache
@require_http_methods(["GET"])
async def async_between_others(request: HttpRequest) -> HttpResponse:
    return await arespond()


class AsyncPlain(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await arespond()


@method_decorator(redis_lock("async dispatch"), name="dispatch")
class AsyncDispatch(AsyncPlain):
    pass


class AsyncDispatchDirect(AsyncPlain):
    @redis_lock("async dispatch direct")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


class AsyncGet(View):
    @method_decorator(redis_lock("async get"))
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await arespond()


class AsyncGetDirect(View):
    @redis_lock("async get direct")
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await arespond()


@method_decorator(redis_lock("async dispatch of both"), name="dispatch")
class AsyncDispatchAndGet(View):
    @redis_lock("async get of both")
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await arespond()


ASYNC_VIEWS = {
    "async-function": async_view,
    "async-bare": async_bare_view,
    "async-stacked": async_stacked_view,
    "async-between-others": async_between_others,
    "async-as-view": redis_lock("async as view")(AsyncPlain.as_view()),
    "async-dispatch": AsyncDispatch.as_view(),
    "async-dispatch-direct": AsyncDispatchDirect.as_view(),
    "async-get": AsyncGet.as_view(),
    "async-get-direct": AsyncGetDirect.as_view(),
    "async-dispatch-and-get": AsyncDispatchAndGet.as_view(),
}


@redis_lock("waiting", wait=10)
def waiting_view(request: HttpRequest) -> HttpResponse:
    return respond()


@redis_lock("waiting", wait=10)
async def async_waiting_view(request: HttpRequest) -> HttpResponse:
    return await arespond()


urlpatterns = [path(f"{name}/", view) for name, view in {**SYNC_VIEWS, **ASYNC_VIEWS}.items()]
urlpatterns += [
    path("waiting/", waiting_view),
    path("async-waiting/", async_waiting_view),
    path("stacked-inner-busy/", stacked_inner_busy),
]


# Functions and methods


class Shop:
    @redis_lock("method")
    def method(self) -> str:
        return body.call()

    @classmethod
    @redis_lock("classmethod")
    def class_method(cls) -> str:
        return body.call()

    @staticmethod
    @redis_lock("staticmethod")
    def static_method() -> str:
        return body.call()

    @redis_lock
    def bare(self) -> str:
        return body.call()

    @redis_lock("call")
    def __call__(self) -> str:
        return body.call()

    @redis_lock("async method")
    async def amethod(self) -> str:
        return await body.acall()

    @classmethod
    @redis_lock("async classmethod")
    async def aclass_method(cls) -> str:
        return await body.acall()

    @staticmethod
    @redis_lock("async staticmethod")
    async def astatic_method() -> str:
        return await body.acall()

    @redis_lock
    async def abare(self) -> str:
        return await body.acall()


def bare() -> object:
    """A function of its own."""
    return body.call()


CALLS: dict[str, Callable[[], str]] = {
    "function": redis_lock("function")(body.call),
    "bare-function": redis_lock(bare),
    "method": lambda: Shop().method(),
    "classmethod": Shop.class_method,
    "classmethod-of-instance": lambda: Shop().class_method(),
    "staticmethod": Shop.static_method,
    "bare-method": lambda: Shop().bare(),
    "call": Shop(),
    "partial": redis_lock("partial")(functools.partial(body.call, 1)),
    "object": redis_lock("object")(Shop()),
    "bound-method": redis_lock("bound")(Shop().bare),
    "stacked": redis_lock("outer call")(redis_lock("inner call")(body.call)),
    "reentrant": redis_lock("re-entrant", reentrant=True)(body.call),
    "renewed": redis_lock("renewed", expire=5, renew=True)(body.call),
}

ASYNC_CALLS: dict[str, Callable[[], Awaitable[str]]] = {
    "function": redis_lock("async function")(body.acall),
    "bare-function": redis_lock(body.acall),
    "method": lambda: Shop().amethod(),
    "classmethod": Shop.aclass_method,
    "staticmethod": Shop.astatic_method,
    "bare-method": lambda: Shop().abare(),
    "partial": redis_lock("async partial")(functools.partial(body.acall, 1)),
    "stacked": redis_lock("async outer call")(redis_lock("async inner call")(body.acall)),
    "reentrant": redis_lock("async re-entrant", reentrant=True)(body.acall),
}
