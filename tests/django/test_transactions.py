"""The lock outlives the transaction: every shape of a view under ATOMIC_REQUESTS of two databases, and what isn't a view.
The transactions begin in the order in which Django begins them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from django_redis_locks import LockNotAcquired, current_grant, locks, redis_lock
from tests.django.helpers import in_thread
from tests.django.ledger import Ledger, get, keeping

ledger = Ledger()

BEGIN = ["BEGIN other", "BEGIN default"]
COMMIT = ["COMMIT default", "COMMIT other"]
ROLLBACK = ["ROLLBACK default", "ROLLBACK other"]


@pytest.fixture(autouse=True)
def atomic_requests(two_databases: object) -> Iterator[None]:
    global ledger
    for alias in ("default", "other"):
        connections.settings[alias]["ATOMIC_REQUESTS"] = True
    with keeping("default", "other") as ledger:
        yield


def body(key: str | None = None) -> HttpResponse:
    """What every view does: nobody else may have its lock now, and it says which transactions it is in."""
    inside = [alias for alias in ("default", "other") if connections[alias].in_atomic_block]
    ledger.note(" ".join(["body", *inside]))
    assert not any(connections[alias].savepoint_ids for alias in inside), "begun twice"
    if key is not None:
        assert in_thread(lambda: locks.lock(key).acquire(timeout=0)) is None
    return HttpResponse("done")


def fail() -> HttpResponse:
    body()
    raise LookupError("the view failed")


# Shapes


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
    ledger.note("back in the view")
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


class AsksHelper:
    """A middleware that calls a helper when the view is found already."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_: object) -> None:
        helper(request)


@redis_lock("fails")
def function_fails(request: HttpRequest) -> HttpResponse:
    return fail()


@redis_lock("retried")
def retried(request: HttpRequest) -> HttpResponse:
    return fail() if ledger.count("body default other") == 0 else body()


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


# Views


def is_done(name: str) -> None:
    response = get(f"/{name}/")
    assert (response.status_code, response.content) == (200, b"done")


def test_a_function() -> None:
    """[D1] Acquired before BEGIN, and released after COMMIT."""
    is_done("plain")
    ledger.reads("acquire plain", *BEGIN, "body default other", *COMMIT, "release plain")


def test_a_refused_request_begins_nothing() -> None:
    """[D1] Who waits for the lock, or is refused, occupies no transaction."""
    grant = in_thread(locks.lock("plain").acquire)
    assert get("/plain/").status_code == 409
    grant.release()
    ledger.reads("acquire plain", "release plain")


def test_stacked() -> None:
    """[D8] One transaction inside of both locks, which end in the other order."""
    is_done("stacked")
    locks_, rest = ["acquire outer", "acquire inner"], ["release inner", "release outer"]
    ledger.reads(*locks_, *BEGIN, "body default other", *COMMIT, *rest)


@pytest.mark.parametrize("name", ["opted-out-above", "opted-out-below"])
def test_opted_out_of_all(name: str) -> None:
    """[D7] Who opted out gets no transaction, above the lock or below."""
    is_done(name)
    ledger.reads("acquire optout", "body", "release optout")


@pytest.mark.parametrize("name", ["opted-out-of-one-above", "opted-out-of-one-below"])
def test_opted_out_of_one(name: str) -> None:
    """[D7] Each alias counts for itself."""
    is_done(name)
    ledger.reads("acquire optout", "BEGIN other", "body other", "COMMIT other", "release optout")


def test_opted_out_by_method_decorator() -> None:
    """[D7] The same above a decorated `dispatch`."""
    is_done("dispatch-opted-out-above")
    ledger.reads("acquire dispatch", "BEGIN other", "body other", "COMMIT other", "release dispatch")


def test_opted_out_by_method_decorator_below() -> None:
    """[D7] Below it, `method_decorator` puts the user's own set before ours: Django begins the other alias, around the
    lock, which outlives that too."""
    is_done("dispatch-opted-out-below")
    ledger.reads("BEGIN other", "acquire dispatch", "body other", "COMMIT other", "release dispatch")


@pytest.mark.parametrize("name", ["dispatch", "dispatch-direct"])
def test_dispatch(name: str) -> None:
    """[D1] Decorated directly or by `method_decorator`, which decorates anew for each request."""
    is_done(name)
    ledger.reads("acquire dispatch", *BEGIN, "body default other", *COMMIT, "release dispatch")


def test_dispatch_without_arguments() -> None:
    """[D45] `method_decorator(redis_lock)` has neither the same function nor the same plan for each request."""
    is_done("dispatch-bare")
    assert ledger[0].startswith("acquire ")
    assert ledger[1:-1] == [*BEGIN, "body default other", *COMMIT]
    assert ledger[-1].startswith("release ")


def test_dispatch_with_two_locks() -> None:
    """[D8] The same of two locks in one `method_decorator`."""
    is_done("dispatch-twice")
    taken = ["acquire first", "acquire second"]
    ledger.reads(*taken, *BEGIN, "body default other", *COMMIT, "release second", "release first")


@pytest.mark.parametrize("name", ["get", "get-direct"])
def test_get(name: str) -> None:
    """[D3] The transaction began before the lock; it is released after COMMIT all the same."""
    is_done(name)
    ledger.reads(*BEGIN, "acquire get", "body default other", *COMMIT, "release get")


def test_dispatch_and_get() -> None:
    """[D8] The lock of `get` is inside of the transaction that the lock of `dispatch` begins."""
    is_done("dispatch-and-get")
    inside = [*BEGIN, "acquire get", "body default other", *COMMIT]
    ledger.reads("acquire dispatch", *inside, "release get", "release dispatch")


def test_a_service() -> None:
    """[D2] A function that a view calls: it has its lock until COMMIT, though it is back long ago."""
    is_done("calls-service")
    inside = ["acquire service", "body default other", "back in the view"]
    ledger.reads(*BEGIN, *inside, *COMMIT, "release service")


def test_a_helper() -> None:
    """[D2] The same of one that is given the request."""
    is_done("calls-helper")
    ledger.reads(*BEGIN, "acquire helper", "body default other", *COMMIT, "release helper")


def test_a_helper_of_a_view_without_a_transaction() -> None:
    """[D2] No transaction comes as a surprise."""
    is_done("calls-helper-opted-out")
    ledger.reads("acquire helper", "body", "release helper")


def test_a_helper_of_a_locked_view() -> None:
    """[D8] The view's transaction is the helper's too."""
    is_done("locked-calls-helper")
    inside = [*BEGIN, "acquire helper", "body default other", *COMMIT]
    ledger.reads("acquire view", *inside, "release helper", "release view")


def test_a_helper_of_a_locked_view_without_a_transaction() -> None:
    """[D7] A helper begins none for a view that opted out."""
    is_done("locked-calls-helper-opted-out")
    ledger.reads("acquire view", "acquire helper", "body", "release helper", "release view")


def test_a_helper_among_methods() -> None:
    """[D8] One that `method_decorator` decorates anew for each call: it can't be told by its marker."""
    is_done("method-calls-helper")
    inside = ["acquire helper", "body default other"]
    ledger.reads("acquire dispatch", *BEGIN, *inside, *COMMIT, "release helper", "release dispatch")


def test_a_helper_of_a_middleware(settings: Any) -> None:
    """[D2] What is called before a locked view doesn't begin the view's transaction, nor take it away."""
    settings.MIDDLEWARE = [f"{__name__}.AsksHelper"]
    is_done("plain")
    before, begun = ["acquire helper", "body", "release helper"], ["acquire plain", *BEGIN]
    ledger.reads(*before, *begun, "body default other", *COMMIT, "release plain")


def test_a_function_fails() -> None:
    """[D4] An exception rolls back, and then the lock is released."""
    assert get("/function-fails/").status_code == 500
    ledger.reads("acquire fails", *BEGIN, "body default other", *ROLLBACK, "release fails")


def test_a_method_fails() -> None:
    """[D4] The same of a lock inside Django's transaction: nothing tells of a rollback, and yet."""
    assert get("/get-fails/").status_code == 500
    ledger.reads(*BEGIN, "acquire get", "body default other", *ROLLBACK, "release get")


def test_a_second_try() -> None:
    """[D1] A view that is called again, by a decorator that tries twice, has a transaction again."""
    is_done("twice")
    once, again = ["acquire retried", *BEGIN, "body default other"], ["release retried"]
    ledger.reads(*once, *ROLLBACK, *again, *once, *COMMIT, *again)


def test_as_view() -> None:
    """[D1] Around what `as_view()` returns."""
    is_done("as-view")
    ledger.reads("acquire as view", *BEGIN, "body default other", *COMMIT, "release as view")


def test_as_view_and_dispatch() -> None:
    """[D8] Around it, and inside."""
    is_done("as-view-of-dispatch")
    taken = ["acquire as view", "acquire dispatch"]
    ledger.reads(*taken, *BEGIN, "body default other", *COMMIT, "release dispatch", "release as view")


def test_a_handler_of_rest_framework_fails() -> None:
    """[D4] Its exception becomes an answer, and `set_rollback` a ROLLBACK."""
    assert get("/rest-get-fails/").status_code == 404
    ledger.reads(*BEGIN, "acquire rest", "body default other", *ROLLBACK, "release rest")


def test_dispatch_of_rest_framework() -> None:
    """[D1] `set_rollback` finds the transactions that we began."""
    assert get("/rest-dispatch-fails/").status_code == 404
    ledger.reads("acquire rest", *BEGIN, "body default other", *ROLLBACK, "release rest")


@pytest.mark.parametrize("name", ASYNC)
def test_asynchronous_views(name: str) -> None:
    """[D9] Django says that they can't be atomic, and we don't hide it."""
    with pytest.raises(RuntimeError, match="You cannot use ATOMIC_REQUESTS with async views"):
        Client().get(f"/{name}/")
    assert ledger == []


# Elsewhere


def test_request_factory() -> None:
    """[D2] What wasn't found by a URL begins nothing."""
    plain(RequestFactory().get("/"))
    ledger.reads("acquire plain", "body", "release plain")


def test_a_call() -> None:
    """[D2] A function that is called outside of any request begins nothing."""
    service()
    ledger.reads("acquire service", "body", "release service")


def test_another_thread_waits_for_commit() -> None:
    """[D2] Until COMMIT the lock is busy for everybody else."""
    with transaction.atomic():
        service()
        with pytest.raises(LockNotAcquired):
            in_thread(service)
    ledger.once("release service")


def test_transactions_elsewhere_are_not_opened() -> None:
    """[D11] To see whether a transaction is open no connection is opened."""
    connections.close_all()
    service()
    assert connections["default"].connection is None
    assert connections["other"].connection is None
