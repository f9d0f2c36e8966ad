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
    """What every view does: it logs which transactions it is in; its lock is busy for other threads."""
    inside = [alias for alias in ("default", "other") if connections[alias].in_atomic_block]
    log.append(" ".join(["body", *inside]))
    assert not any(connections[alias].savepoint_ids for alias in inside), "begun twice"
    if key is not None:
        assert in_thread(lambda: locks.lock(key).acquire(timeout=0)) is None
    return HttpResponse("done")


def fail() -> HttpResponse:
    body()
    raise LookupError("the view failed")


def view(request: HttpRequest) -> HttpResponse:
    return body()


def failing(request: HttpRequest) -> HttpResponse:
    return fail()


@redis_lock("plain")
def plain(request: HttpRequest) -> HttpResponse:
    return body("plain")


def opted_out(view: Any) -> Any:
    """Neither database has a transaction for this view."""
    return transaction.non_atomic_requests(transaction.non_atomic_requests(using="other")(view))


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return body()


class Fails(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return fail()


def of(base: type[View], **members: object) -> Any:
    """A class with these members, as a view."""
    return type(f"Own{base.__name__}", (base,), members).as_view()


def dispatched(base: type[View], *decorators: Any, **members: object) -> Any:
    """A class whose `dispatch` is decorated by `method_decorator`, by the last of these first, as a view."""
    cls = type(f"Own{base.__name__}", (base,), members)
    for decorator in reversed(decorators):
        cls = method_decorator(decorator, name="dispatch")(cls)
    return cls.as_view()


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


class CallsHelper(View):
    @redis_lock("dispatch")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self.help(request)

    @method_decorator(redis_lock("helper"))
    def help(self, request: HttpRequest) -> HttpResponse:
        return body()


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
    answer, before which the transactions are marked for a rollback."""

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


# Asynchronous ones, which Django refuses under ATOMIC_REQUESTS


async def async_view(request: HttpRequest) -> HttpResponse:
    return body()


class AsyncPlain(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return body()


ASYNC = {
    "async-function": redis_lock("async")(async_view),
    "async-as-view": redis_lock("async")(AsyncPlain.as_view()),
    "async-dispatch": dispatched(AsyncPlain, redis_lock("async")),
    "async-dispatch-direct": of(AsyncPlain, dispatch=redis_lock("async")(View.dispatch)),
    "async-as-view-of-dispatch": redis_lock("outer")(dispatched(AsyncPlain, redis_lock("async"))),
}

VIEWS = {
    "plain": plain,
    "stacked": redis_lock("outer")(redis_lock("inner")(lambda request: body("outer"))),
    "opted-out-above": opted_out(redis_lock("optout")(view)),
    "opted-out-below": redis_lock("optout")(opted_out(lambda request: body())),
    "opted-out-of-one-above": transaction.non_atomic_requests(redis_lock("optout")(view)),
    "opted-out-of-one-below": redis_lock("optout")(transaction.non_atomic_requests(lambda request: body())),
    "dispatch": dispatched(Plain, redis_lock("dispatch")),
    "dispatch-bare": dispatched(Plain, redis_lock),
    "dispatch-twice": dispatched(Plain, [redis_lock("first"), redis_lock("second")]),
    "dispatch-direct": of(Plain, dispatch=redis_lock("dispatch")(View.dispatch)),
    "dispatch-opted-out-above": dispatched(Plain, transaction.non_atomic_requests, redis_lock("dispatch")),
    "dispatch-opted-out-below": dispatched(Plain, redis_lock("dispatch"), transaction.non_atomic_requests),
    "get": of(Plain, get=method_decorator(redis_lock("get"))(Plain.get)),
    "get-direct": of(Plain, get=redis_lock("get")(Plain.get)),
    "get-fails": of(Fails, get=redis_lock("get")(Fails.get)),
    "dispatch-and-get": dispatched(Plain, redis_lock("dispatch"), get=redis_lock("get")(Plain.get)),
    "as-view": redis_lock("as view")(Plain.as_view()),
    "as-view-of-dispatch": redis_lock("as view")(dispatched(Plain, redis_lock("dispatch"))),
    "calls-service": calls_service,
    "calls-helper": calls_helper,
    "calls-helper-opted-out": opted_out(lambda request: helper(request)),  # noqa: PLW0108 - a view of its own
    "locked-calls-helper": redis_lock("view")(calls_helper),
    "locked-calls-helper-opted-out": opted_out(redis_lock("view")(calls_helper)),
    "method-calls-helper": CallsHelper.as_view(),
    "function-fails": redis_lock("fails")(failing),
    "twice": twice,
    "rest-get-fails": of(Rest, get=redis_lock("rest")(Fails.get)),
    "rest-dispatch-fails": dispatched(Rest, redis_lock("rest"), get=Fails.get),
    **ASYNC,
}

urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
