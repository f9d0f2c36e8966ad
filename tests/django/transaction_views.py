"""Views and functions of every shape under ATOMIC_REQUESTS of two databases; the log of what they do is `log`."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from django_redis_locks import current_grant, locks, redis_lock
from tests.django.helpers import in_thread
from tests.django.transaction_log import TransactionLog

log = TransactionLog()

BODY = "body default other"


def body(key: str | None = None) -> HttpResponse:
    """What every view does: it logs which transactions it is in, and nobody else may have its lock now."""
    inside = [alias for alias in ("default", "other") if connections[alias].in_atomic_block]
    log.append(" ".join(["body", *inside]))
    assert not any(connections[alias].savepoint_ids for alias in inside), "begun twice"
    if key is not None:
        assert in_thread(lambda: locks.lock(key).acquire(timeout=0)) is None
    return HttpResponse("done")


def fail() -> HttpResponse:
    body()
    raise LookupError("the view failed")


@redis_lock("plain")
def plain(request: HttpRequest) -> HttpResponse:
    return body("plain")


@redis_lock("outer")
@redis_lock("inner")
def stacked(request: HttpRequest) -> HttpResponse:
    return body("outer")


@transaction.non_atomic_requests
@transaction.non_atomic_requests(using="other")
@redis_lock("optout")
def opted_out_above(request: HttpRequest) -> HttpResponse:
    return body()


@redis_lock("optout")
@transaction.non_atomic_requests
@transaction.non_atomic_requests(using="other")
def opted_out_below(request: HttpRequest) -> HttpResponse:
    return body()


@transaction.non_atomic_requests
@redis_lock("optout")
def opted_out_of_one_above(request: HttpRequest) -> HttpResponse:
    return body()


@redis_lock("optout")
@transaction.non_atomic_requests
def opted_out_of_one_below(request: HttpRequest) -> HttpResponse:
    return body()


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return body()


@method_decorator(redis_lock("dispatch"), name="dispatch")
class Dispatch(Plain):
    pass


@method_decorator(redis_lock, name="dispatch")
class DispatchBare(Plain):
    pass


@method_decorator([redis_lock("first"), redis_lock("second")], name="dispatch")
class DispatchTwice(Plain):
    pass


class DispatchDirect(Plain):
    @redis_lock("dispatch")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
@method_decorator(redis_lock("dispatch"), name="dispatch")
class DispatchOptedOutAbove(Plain):
    pass


@method_decorator(redis_lock("dispatch"), name="dispatch")
@method_decorator(transaction.non_atomic_requests, name="dispatch")
class DispatchOptedOutBelow(Plain):
    pass


class Get(View):
    @method_decorator(redis_lock("get"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return body()


class GetDirect(View):
    @redis_lock("get")
    def get(self, request: HttpRequest) -> HttpResponse:
        return body()


class GetFails(View):
    @redis_lock("get")
    def get(self, request: HttpRequest) -> HttpResponse:
        return fail()


@method_decorator(redis_lock("dispatch"), name="dispatch")
class DispatchAndGet(View):
    @redis_lock("get")
    def get(self, request: HttpRequest) -> HttpResponse:
        return body()


@redis_lock("service")
def service() -> HttpResponse:
    return body("service")


def calls_service(request: HttpRequest) -> HttpResponse:
    response = service()
    assert current_grant() is None
    log.append("back in the view")
    return response


@redis_lock("helper")
def helper(request: HttpRequest) -> HttpResponse:
    return body()


def calls_helper(request: HttpRequest) -> HttpResponse:
    return helper(request)


@transaction.non_atomic_requests
@transaction.non_atomic_requests(using="other")
def calls_helper_opted_out(request: HttpRequest) -> HttpResponse:
    return helper(request)


@redis_lock("view")
def locked_calls_helper(request: HttpRequest) -> HttpResponse:
    return helper(request)


@transaction.non_atomic_requests
@transaction.non_atomic_requests(using="other")
@redis_lock("view")
def locked_calls_helper_opted_out(request: HttpRequest) -> HttpResponse:
    return helper(request)


class CallsHelper(View):
    @redis_lock("dispatch")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self.help(request)

    @method_decorator(redis_lock("helper"))
    def help(self, request: HttpRequest) -> HttpResponse:
        return body()


@redis_lock("fails")
def function_fails(request: HttpRequest) -> HttpResponse:
    return fail()


@redis_lock("retried")
def retried(request: HttpRequest) -> HttpResponse:
    return fail() if BODY not in log else body()


def twice(request: HttpRequest) -> HttpResponse:
    """A decorator above, written out: it calls the view once more."""
    try:
        return retried(request)
    except LookupError:
        return retried(request)


twice.__dict__.update(retried.__dict__)


class Rest(View):
    """As a view of Django REST framework: its handlers get a request that wraps Django's, and what they raise is an
    answer, before which the transactions are told to roll back."""

    class Request:
        def __init__(self, request: HttpRequest) -> None:
            self._request = request
            self.method = request.method

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().dispatch(self.Request(request), *args, **kwargs)  # type: ignore[arg-type]
        except LookupError:
            for connection in connections.all():
                if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
                    connection.set_rollback(True)
            return HttpResponse("answered", status=404)


class RestGetFails(Rest):
    @redis_lock("rest")
    def get(self, request: Any) -> HttpResponse:
        return fail()


@method_decorator(redis_lock("rest"), name="dispatch")
class RestDispatchFails(Rest):
    def get(self, request: Any) -> HttpResponse:
        return fail()


# Asynchronous ones, which Django refuses under ATOMIC_REQUESTS


@redis_lock("async")
async def async_function(request: HttpRequest) -> HttpResponse:
    return body()


class AsyncPlain(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return body()


@method_decorator(redis_lock("async"), name="dispatch")
class AsyncDispatch(AsyncPlain):
    pass


class AsyncDispatchDirect(AsyncPlain):
    @redis_lock("async")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


ASYNC = {
    "async-function": async_function,
    "async-as-view": redis_lock("async")(AsyncPlain.as_view()),
    "async-dispatch": AsyncDispatch.as_view(),
    "async-dispatch-direct": AsyncDispatchDirect.as_view(),
    "async-as-view-of-dispatch": redis_lock("outer")(AsyncDispatch.as_view()),
}

VIEWS = {
    "plain": plain,
    "stacked": stacked,
    "opted-out-above": opted_out_above,
    "opted-out-below": opted_out_below,
    "opted-out-of-one-above": opted_out_of_one_above,
    "opted-out-of-one-below": opted_out_of_one_below,
    "dispatch": Dispatch.as_view(),
    "dispatch-bare": DispatchBare.as_view(),
    "dispatch-twice": DispatchTwice.as_view(),
    "dispatch-direct": DispatchDirect.as_view(),
    "dispatch-opted-out-above": DispatchOptedOutAbove.as_view(),
    "dispatch-opted-out-below": DispatchOptedOutBelow.as_view(),
    "get": Get.as_view(),
    "get-direct": GetDirect.as_view(),
    "get-fails": GetFails.as_view(),
    "dispatch-and-get": DispatchAndGet.as_view(),
    "as-view": redis_lock("as view")(Plain.as_view()),
    "as-view-of-dispatch": redis_lock("as view")(Dispatch.as_view()),
    "calls-service": calls_service,
    "calls-helper": calls_helper,
    "calls-helper-opted-out": calls_helper_opted_out,
    "locked-calls-helper": locked_calls_helper,
    "locked-calls-helper-opted-out": locked_calls_helper_opted_out,
    "method-calls-helper": CallsHelper.as_view(),
    "function-fails": function_fails,
    "twice": twice,
    "rest-get-fails": RestGetFails.as_view(),
    "rest-dispatch-fails": RestDispatchFails.as_view(),
    **ASYNC,
}

urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
