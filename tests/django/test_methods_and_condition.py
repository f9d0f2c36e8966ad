"""Calls without the lock: by the request method (`methods=`), or by the arguments (`condition=`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import path
from django.views import View

from django_redis_locks import LockNotAcquired, current_grant, locks, redis_lock
from tests.django.decorated_shapes import AsyncPlain, Plain, async_view, body, class_view, decorated_class_view, view
from tests.django.helpers import held_elsewhere, result_of, send_request

CHANGES = ("POST", "PUT", "PATCH", "DELETE")
READS = ("GET", "HEAD", "OPTIONS", "TRACE")

changing = redis_lock("order", methods=set(CHANGES))


def locked_now() -> str:
    return f"locked {current_grant() is not None}"


async def alocked_now() -> str:
    return locked_now()


@pytest.fixture(autouse=True)
def answers() -> Iterator[None]:
    body.act, body.aact = locked_now, alocked_now
    yield
    body.clear()


class Rest(View):
    """Like Django REST framework: handlers get a request that wraps Django's."""

    put = changing(Plain.put)

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return self.put(SimpleNamespace(_request=request))


VIEWS: dict[str, Callable[..., Any]] = {
    "function": changing(view),
    "as-view": changing(Plain.as_view()),
    "dispatch": decorated_class_view(Plain, changing),
    "async-function": changing(async_view),
    "async-as-view": changing(AsyncPlain.as_view()),
    "async-dispatch": decorated_class_view(AsyncPlain, changing),
}
"""Views with several request methods."""

HANDLERS = {
    "method": class_view(View, get=(both := changing(Plain.post)), post=both),
    "async-method": class_view(View, get=(aboth := changing(AsyncPlain.post)), post=aboth),
}


def service(request: HttpRequest) -> HttpResponse:
    return HttpResponse("served")


def calls_service(request: HttpRequest) -> HttpResponse:
    """A view that passes its request to a decorated helper, which is no view."""
    try:
        return redis_lock("service")(service)(request)
    except LockNotAcquired:
        return HttpResponse("refused", status=418)


urlpatterns = [path(f"{name}/", view) for name, view in {**VIEWS, **HANDLERS, "rest": Rest.as_view()}.items()]
urlpatterns += [path("calls-service/", changing(calls_service))]


class TestMethods:
    @pytest.mark.parametrize("name", [*VIEWS])
    def test_request_with_another_method_runs_without_the_lock(self, name: str) -> None:
        """[D20] Also by dispatch and as_view, under WSGI and ASGI, while the lock is held."""
        asgi = name.startswith("async")
        requests = [(verb, asgi) for verb in (*READS, *CHANGES)] + [("GET", not asgi), ("POST", not asgi)]
        for verb, by_asgi in requests:
            expected = f"locked {verb in CHANGES}"
            if verb != "HEAD":
                assert send_request(f"/{name}/", verb.lower(), asgi=by_asgi).text == expected, verb
            with held_elsewhere("order"):
                response = send_request(f"/{name}/", verb.lower(), asgi=by_asgi)
            assert response.status_code == (409 if verb in CHANGES else 200), verb
            if verb not in (*CHANGES, "HEAD"):
                assert response.text == expected, verb

    def test_decorated_handler_of_several_verbs_locks_the_named_ones(self) -> None:
        with held_elsewhere("order"):
            for name, verb in (*((name, "POST") for name in HANDLERS), ("rest", "PUT")):
                assert send_request(f"/{name}/").text == "locked False", name
                assert send_request(f"/{name}/", verb.lower()).status_code == 409, name

    def test_helper_of_an_unlocked_request_raises(self) -> None:
        """A decorated function that the view calls with the request is a helper, and raises."""
        with held_elsewhere("service"):
            for verb in ("GET", "POST"):
                assert send_request("/calls-service/", verb.lower()).content == b"refused", verb

    def test_methods_may_be_any_collection(self, rf: RequestFactory) -> None:
        """In any case, and of WebDAV, too. Without the lock no key is built."""
        for verbs in (frozenset({"post"}), ["Post"], ("POST", "PROPFIND"), {"REPORT", "POST"}):
            locked = redis_lock("order:{request.POST[pk]}", methods=verbs)(view)
            assert locked(rf.post("/", {"pk": 5})).text == "locked True", verbs
            assert locked(rf.get("/")).text == "locked False", verbs

    def test_wrong_verb_raises_ValueError_at_decoration(self) -> None:
        """A misspelt method would never lock."""
        verbs: Any
        for verbs, message in (
            ("POST", 'is a set of verbs such as {"POST", "PUT"}, not \'POST\''),
            ([], "is a set of verbs"),
            ({"PSOT"}, "'PSOT' isn't an HTTP verb; did you mean 'POST'"),
            ({"get", "putt"}, "'PUTT' isn't an HTTP verb; did you mean 'PUT'"),
            ({""}, "'' isn't an HTTP verb"),
        ):
            with pytest.raises(ValueError, match=r"^methods") as raised:
                redis_lock("order", methods=verbs)
            assert message in str(raised.value)

    def test_call_without_a_request_raises_TypeError(self) -> None:
        """It has no request method. The function isn't called."""
        called: list[int] = []
        for function in (called.append, apay):
            with pytest.raises(TypeError, match=r"called without a request.*use condition="):
                result_of(changing(function), 5)
        assert called == []


def big(amount: int, *, urgent: bool = False) -> bool:
    return amount >= 100 or urgent


async def abig(amount: int, *, urgent: bool = False) -> bool:
    await asyncio.sleep(0)
    return amount >= 100 or urgent


def pay(amount: int, *, urgent: bool = False) -> bool:
    return current_grant() is not None


async def apay(amount: int, *, urgent: bool = False) -> bool:
    return current_grant() is not None


class TestConditions:
    def test_call_runs_without_the_lock_where_the_condition_is_false(self) -> None:
        """The condition gets the arguments as they were passed."""
        for function, condition in ((pay, big), (apay, big), (apay, abig)):
            decorated = redis_lock("pay", condition=condition)(function)
            assert result_of(decorated, 5) is False, condition
            assert result_of(decorated, 100) is True, condition
            assert result_of(decorated, amount=5, urgent=True) is True, condition
            with held_elsewhere("pay"):
                assert result_of(decorated, 5) is False, condition
                with pytest.raises(LockNotAcquired):
                    result_of(decorated, 100)

    def test_condition_is_true_or_false_as_in_if(self) -> None:
        for value, locked in ((1, True), ("x", True), (None, False), ([], False)):
            for function in (pay, apay):
                decorated = redis_lock("pay", condition=lambda amount: value)(function)  # noqa: B023 - called at once
                assert result_of(decorated, 5) is locked, value
        lock = redis_lock("account", condition=lambda self, amount: self.frozen or amount > 5)
        account = type("Account", (), {"frozen": False, "pay": lock(lambda self, amount: pay(amount))})()
        assert [account.pay(5), account.pay(6)] == [False, True]

    def test_exception_of_the_condition_is_raised_with_a_note(self) -> None:
        """Nothing is locked, and the function isn't called."""

        def wrong(amount: int) -> bool:
            raise LookupError(amount)

        for function in (pay, apay):
            with pytest.raises(LookupError) as raised:
                result_of(redis_lock("pay", name="payment", condition=wrong)(function), 5)
            (note,) = raised.value.__notes__
            assert note == "@redis_lock gave the arguments of a call to the condition of payment, which raised this"
            assert not locks.lock("pay").locked()

    def test_condition_that_is_async_or_no_callable_raises_TypeError(self) -> None:
        """[D43] An async condition of a plain function: at decoration if it is visible, otherwise at the call."""
        condition: Any
        for condition in (True, "big"):
            with pytest.raises(TypeError, match="the condition of @redis_lock is a callable, not "):
                redis_lock("pay", condition=condition)
        with pytest.raises(TypeError, match="an async condition needs an async function"):
            redis_lock("pay", condition=abig)(pay)
        with pytest.raises(TypeError, match="an async condition needs an async function"):
            redis_lock("pay", condition=lambda amount: abig(amount))(pay)(5)  # noqa: PLW0108 - looks synchronous
        assert not locks.lock("pay").locked()

    def test_methods_are_checked_before_the_condition(self, rf: RequestFactory) -> None:
        def condition(request: HttpRequest) -> bool:
            assert request.method == "POST"
            return "pk" in request.POST

        checked = redis_lock("order", methods={"POST"}, condition=condition)(view)
        assert checked(rf.get("/")).text == "locked False"
        assert checked(rf.post("/")).text == "locked False"
        assert checked(rf.post("/", {"pk": 1})).text == "locked True"
