"""Locks of views under ATOMIC_REQUESTS of two databases: acquired before BEGIN, and released after COMMIT; for each
kind of view, and for helpers. The transactions begin in Django's order."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.utils.deprecation import MiddlewareMixin
from django.views import View

from django_redis_locks import current_grant, locks, redis_lock
from tests.django.decorated_shapes import class_view
from tests.django.helpers import held_elsewhere, in_thread
from tests.django.transaction_log import TransactionLog, record_log

pytestmark = pytest.mark.databases("sqlite")

log = TransactionLog()

BODY = "body default other"
WORDS = {
    "[": ["BEGIN other", "BEGIN default"],
    "]": ["COMMIT default", "COMMIT other"],
    "]!": ["ROLLBACK default", "ROLLBACK other"],
    "(": ["BEGIN other"],
    ")": ["COMMIT other"],
    "body": [BODY],
    "half": ["body other"],
    "bare": ["body"],
    "back": ["back in the view"],
}


def entries(scenario: str) -> list[str]:
    """The log entries of a short form: "+a [ body ] -a" is a lock around both transactions."""
    locks = {"+": "acquire", "-": "release"}
    return [line for word in scenario.split() for line in WORDS.get(word) or [f"{locks[word[0]]} {word[1:]}"]]


@pytest.fixture(autouse=True)
def atomic_requests(two_databases: object) -> Iterator[None]:
    for alias in ("default", "other"):
        connections.settings[alias]["ATOMIC_REQUESTS"] = True
    with record_log("default", "other", log=log):
        yield


def view(request: HttpRequest | None = None, key: str | None = None) -> HttpResponse:
    """Logs its transactions, and asserts that its lock is busy for other threads."""
    inside = [alias for alias in ("default", "other") if connections[alias].in_atomic_block]
    log.append(" ".join(["body", *inside]))
    assert not any(connections[alias].savepoint_ids for alias in inside), "begun twice"
    if key is not None:
        assert in_thread(lambda: locks.lock(key).acquire(timeout=0)) is None
    return HttpResponse("done")


def failing(request: HttpRequest) -> HttpResponse:
    view()
    raise LookupError("the view failed")


def opted_out(view: Any) -> Any:
    """Without a transaction on both databases."""
    return non_atomic_requests(non_atomic_requests(using="other")(view))


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return view()


class Fails(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return failing(request)


def dispatched(base: type[View], *decorators: Any, **members: object) -> Any:
    """A class-based view with `dispatch` decorated by `method_decorator`; the last decorator is the innermost."""
    cls = type(f"Own{base.__name__}", (base,), members)
    for decorator in reversed(decorators):
        cls = method_decorator(decorator, name="dispatch")(cls)
    return cls.as_view()


plain = redis_lock("plain")(lambda request: view(key="plain"))


@redis_lock("service")
def service() -> HttpResponse:
    return view(key="service")


def calls_service(request: HttpRequest) -> HttpResponse:
    response = service()
    assert current_grant() is None
    log.append("back in the view")
    return response


@redis_lock("helper")
def helper(request: HttpRequest) -> HttpResponse:
    return view()


def calls_helper(request: HttpRequest) -> HttpResponse:
    return helper(request)


@redis_lock("retried")
def retried(request: HttpRequest) -> HttpResponse:
    return failing(request) if BODY not in log else view()


def twice(request: HttpRequest) -> HttpResponse:
    """Calls the view a second time, as an outer decorator may."""
    try:
        return retried(request)
    except LookupError:
        return retried(request)


twice.__dict__.update(retried.__dict__)


class Rest(View):
    """Like a view of Django REST framework: handlers get a request that wraps Django's, and exceptions become responses
    after the transactions were marked for rollback."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        wrapped: Any = SimpleNamespace(_request=request, method=request.method)
        try:
            return super().dispatch(wrapped, *args, **kwargs)
        except LookupError:
            for connection in connections.all():
                if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
                    connection.set_rollback(True)
            return HttpResponse("answered", status=404)


changing = redis_lock("order", methods={"POST"})

SHAPES: dict[str, tuple[Any, str]] = {
    # [D1] acquired before BEGIN, released after COMMIT
    "plain": (plain, "+plain [ body ] -plain"),
    "dispatch": (dispatched(Plain, redis_lock("dispatch")), "+dispatch [ body ] -dispatch"),
    "dispatch-direct": (class_view(Plain, dispatch=redis_lock("direct")(View.dispatch)), "+direct [ body ] -direct"),
    "as-view": (redis_lock("as-view")(Plain.as_view()), "+as-view [ body ] -as-view"),
    # [D8] one transaction inside of both locks, which are released in reverse order
    "stacked": (redis_lock("a")(redis_lock("b")(lambda request: view(key="a"))), "+a +b [ body ] -b -a"),
    "as-view-of-dispatch": (redis_lock("a")(dispatched(Plain, redis_lock("b"))), "+a +b [ body ] -b -a"),
    # [D7] a non_atomic_requests view has no transaction, above the lock or below; per alias
    "opted-out-above": (opted_out(redis_lock("a")(view)), "+a bare -a"),
    "opted-out-below": (redis_lock("a")(opted_out(lambda request: view())), "+a bare -a"),
    "opted-out-of-one": (redis_lock("a")(non_atomic_requests(lambda request: view())), "+a ( half ) -a"),
    "dispatch-opted-out-above": (dispatched(Plain, non_atomic_requests, redis_lock("a")), "+a ( half ) -a"),
    # with `method_decorator` the user's set of aliases wins: Django begins `other` around the lock
    "dispatch-opted-out-below": (dispatched(Plain, redis_lock("a"), non_atomic_requests), "( +a half ) -a"),
    # [D3] a transaction that began before the lock ends before it
    "get": (class_view(Plain, get=method_decorator(redis_lock("get"))(Plain.get)), "[ +get body ] -get"),
    # [D2] a function that a view calls holds its lock until COMMIT
    "calls-service": (calls_service, "[ +service body back ] -service"),
    "calls-helper": (calls_helper, "[ +helper body ] -helper"),
    # [D8] a helper uses the transaction of the view, and [D7] begins none for a non-atomic view
    "locked-calls-helper": (redis_lock("a")(calls_helper), "+a [ +helper body ] -helper -a"),
    "locked-calls-helper-opted-out": (opted_out(redis_lock("a")(calls_helper)), "+a +helper bare -helper -a"),
    # [D1] a view that a decorator calls twice has two transactions
    "twice": (twice, "+retried [ body ]! -retried +retried [ body ] -retried"),
    # [D1] [D20] a request without the lock has the transactions, too
    "methods": (changing(lambda request: view()), "[ body ]"),
    "methods-dispatch": (dispatched(Plain, changing), "[ body ]"),
    "condition": (redis_lock("order", condition=lambda request: False)(lambda request: view()), "[ body ]"),
}
FAILURES: dict[str, tuple[Any, int, str]] = {
    # [D4] an exception rolls back, and then the lock is released
    "function-fails": (redis_lock("a")(failing), 500, "+a [ body ]! -a"),
    # the same for a lock inside Django's transaction, without a callback at rollback
    "get-fails": (class_view(Fails, get=redis_lock("get")(Fails.get)), 500, "[ +get body ]! -get"),
    # an exception that REST framework handles: `set_rollback` finds the transactions
    "rest-get-fails": (class_view(Rest, get=redis_lock("get")(Fails.get)), 404, "[ +get body ]! -get"),
    "rest-dispatch-fails": (dispatched(Rest, redis_lock("a"), get=Fails.get), 404, "+a [ body ]! -a"),
}


class AsyncPlain(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return view()


ASYNC = {
    "async-as-view": redis_lock("async")(AsyncPlain.as_view()),
    "async-dispatch": dispatched(AsyncPlain, redis_lock("async")),
}
VIEWS = {
    **{name: view for name, (view, *_) in (SHAPES | FAILURES).items()},
    **ASYNC,
    "dispatch-bare": dispatched(Plain, redis_lock),
    "cool-down": redis_lock("order", expire=20, auto_release=False)(lambda request: view()),
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


def get(name: str) -> Any:
    """Send a request. Exceptions become a 500, as on a server."""
    return Client(raise_request_exception=False).get(f"/{name}/")


def is_done(name: str) -> None:
    response = get(name)
    assert (response.status_code, response.content) == (200, b"done")


@pytest.mark.parametrize("name", SHAPES)
def test_lock_of_a_view_is_held_until_its_transactions_are_committed(name: str) -> None:
    """[D1] [D2] [D3] [D7] [D8]"""
    with held_elsewhere("order"):
        log.clear()
        is_done(name)
        log.assert_equals(*entries(SHAPES[name][1]))


@pytest.mark.parametrize("name", FAILURES)
def test_lock_of_a_view_that_raises_is_held_until_the_rollback(name: str) -> None:
    """[D1] [D4]"""
    assert get(name).status_code == FAILURES[name][1]
    log.assert_equals(*entries(FAILURES[name][2]))


@pytest.mark.databases("postgresql", "mariadb")
def test_lock_outlives_transactions_on_a_server() -> None:
    """[D1] [D2] [D3] [D4]"""
    for name in ("plain", "get", "calls-service", "function-fails", "get-fails"):
        assert get(name).status_code == (500 if name in FAILURES else 200)
        log.assert_equals(*entries((SHAPES | FAILURES)[name][-1]))
        log.clear()


def test_refused_request_begins_no_transaction() -> None:
    """[D1] Nor does a request that waits for the lock."""
    with held_elsewhere("plain"):
        assert get("plain").status_code == 409
    log.assert_equals("acquire plain", "release plain")


def test_cool_down_and_bare_decorator_begin_one_transaction() -> None:
    """[D1] [D45] `method_decorator(redis_lock)` makes a new decorated function for each request."""
    is_done("dispatch-bare")
    assert [entry.split()[0] for entry in (log[0], log[-1])] == ["acquire", "release"]
    assert log[1:-1] == entries("[ body ]")
    log.clear()
    is_done("cool-down")
    log.assert_equals(*entries("+order [ body ]"))
    locks.lock("order").force_release()


class CallsHelper(MiddlewareMixin):
    """Calls a decorated helper after the view was resolved."""

    def process_view(self, request: HttpRequest, *_: object) -> None:
        helper(request)


def test_helper_called_by_middleware_does_not_change_the_views_transaction(settings: Any) -> None:
    """[D2] The helper runs without a transaction, and releases its lock at its end."""
    settings.MIDDLEWARE = [f"{__name__}.CallsHelper"]
    is_done("plain")
    log.assert_equals(*entries("+helper bare -helper +plain [ body ] -plain"))


def test_async_view_under_ATOMIC_REQUESTS_is_refused_by_django() -> None:
    """[D9] Django's error isn't hidden by the lock."""
    for name in ASYNC:
        with pytest.raises(RuntimeError, match="You cannot use ATOMIC_REQUESTS with async views"):
            Client().get(f"/{name}/")
        assert log == []


def test_call_outside_of_a_request_begins_no_transaction() -> None:
    """[D2] [D11] Of a view without a URL, or a function. Checking for transactions opens no connection."""
    plain(RequestFactory().get("/"))
    log.assert_equals(*entries("+plain bare -plain"))
    log.clear()
    service()
    log.assert_equals(*entries("+service bare -service"))
    connections.close_all()
    service()
    assert connections["default"].connection is None
    assert connections["other"].connection is None
