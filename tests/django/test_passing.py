"""Which calls need the lock: `methods=` asks the verb of the request, `condition=` the arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_redis_locks import LockNotAcquired, current_grant, locks, redis_lock
from tests.django.helpers import held_elsewhere, in_thread

CHANGES = ("POST", "PUT", "PATCH", "DELETE")
READS = ("GET", "HEAD", "OPTIONS", "TRACE")

changing = redis_lock("order", methods=set(CHANGES))


def locked_now() -> HttpResponse:
    return HttpResponse(f"locked {current_grant() is not None}")


@changing
def function(request: HttpRequest) -> HttpResponse:
    return locked_now()


@changing
async def afunction(request: HttpRequest) -> HttpResponse:
    return locked_now()


class Plain(View):
    def answer(self, request: HttpRequest) -> HttpResponse:
        return locked_now()

    get = head = options = trace = post = put = patch = delete = answer


class AsyncPlain(View):
    async def answer(self, request: HttpRequest) -> HttpResponse:
        return locked_now()

    get = head = options = trace = post = put = patch = delete = answer


class Direct(Plain):
    @changing
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


class AsyncDirect(AsyncPlain):
    @changing
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request, *args, **kwargs)


class Method(View):
    @changing
    def post(self, request: HttpRequest) -> HttpResponse:
        return locked_now()

    get = post


class AsyncMethod(View):
    @changing
    async def post(self, request: HttpRequest) -> HttpResponse:
        return locked_now()

    get = post


class Rest(View):
    """Django REST framework hands its handlers a request of its own."""

    class Request:
        def __init__(self, request: HttpRequest) -> None:
            self._request = request

    @changing
    def put(self, request: Any) -> HttpResponse:
        return locked_now()

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return self.put(self.Request(request))


VIEWS: dict[str, Callable[..., Any]] = {
    "function": function,
    "as-view": changing(Plain.as_view()),
    "dispatch": method_decorator(changing, name="dispatch")(type("Dispatch", (Plain,), {})).as_view(),
    "dispatch-direct": Direct.as_view(),
    "async-function": afunction,
    "async-as-view": changing(AsyncPlain.as_view()),
    "async-dispatch": method_decorator(changing, name="dispatch")(type("AsyncDispatch", (AsyncPlain,), {})).as_view(),
    "async-dispatch-direct": AsyncDirect.as_view(),
}
"""Views for which the verb isn't known before there is a request."""

HANDLERS = {"method": Method.as_view(), "async-method": AsyncMethod.as_view()}


def service(request: HttpRequest) -> HttpResponse:
    return HttpResponse("served")


def calls_service(request: HttpRequest) -> HttpResponse:
    """A view that hands its request to a decorated helper, and expects no answer from it."""
    try:
        return redis_lock("service")(service)(request)
    except LockNotAcquired:
        return HttpResponse("refused", status=418)


async def acalls_service(request: HttpRequest) -> HttpResponse:
    return await asyncio.to_thread(calls_service, request)


urlpatterns = [path(f"{name}/", view) for name, view in {**VIEWS, **HANDLERS, "rest": Rest.as_view()}.items()]
urlpatterns += [
    path("calls-service/", changing(calls_service)),
    path("acalls-service/", changing(acalls_service)),
    path("stacked/", redis_lock("outer", methods=["POST"])(changing(Plain.as_view()))),
]


def ask(name: str, verb: str, asgi: bool = False) -> Any:
    async def aask() -> Any:
        return await AsyncClient().generic(verb, f"/{name}/")

    return asyncio.run(aask()) if asgi else Client().generic(verb, f"/{name}/")


class TestMethods:
    @pytest.mark.parametrize("asgi", [False, True])
    @pytest.mark.parametrize("verb", [*READS, *CHANGES])
    @pytest.mark.parametrize("name", [*VIEWS])
    def test_of_every_view(self, name: str, verb: str, asgi: bool) -> None:
        """[D20] Requests with other verbs pass without the lock, whoever holds it, also through dispatch and as_view."""
        expected = f"locked {verb in CHANGES}"
        if verb != "HEAD":
            assert ask(name, verb, asgi).text == expected
        with held_elsewhere("order"):
            response = ask(name, verb, asgi)
        assert response.status_code == (409 if verb in CHANGES else 200)
        if verb not in (*CHANGES, "HEAD"):
            assert response.text == expected

    @pytest.mark.parametrize("name", HANDLERS)
    def test_of_handlers(self, name: str) -> None:
        """One decorated method may serve several verbs."""
        with held_elsewhere("order"):
            assert ask(name, "GET").text == "locked False"
            assert ask(name, "POST").status_code == 409

    def test_of_a_rest_request(self) -> None:
        """A request of Django REST framework has a verb too."""
        with held_elsewhere("order"):
            assert ask("rest", "GET").text == "locked False"
            assert ask("rest", "PUT").status_code == 409

    @pytest.mark.parametrize("name", ["calls-service", "acalls-service"])
    def test_a_helper_in_an_unlocked_request(self, name: str) -> None:
        """The view's body runs, locked or not: what it calls with the request is a helper and raises."""
        with held_elsewhere("service"):
            for verb in ("GET", "POST"):
                assert ask(name, verb).content == b"refused"

    def test_stacked(self) -> None:
        """Each of two decorators has verbs of its own, and both answer."""
        for key, refused in (("outer", {"POST"}), ("order", {"POST", "PUT"})):
            with held_elsewhere(key):
                for verb in ("GET", "POST", "PUT"):
                    assert ask("stacked", verb).status_code == (409 if verb in refused else 200)

    @pytest.mark.parametrize(
        "verbs", [{"POST"}, frozenset({"post"}), ["Post"], ("POST", "PROPFIND"), {"REPORT", "POST"}]
    )
    def test_spellings(self, verbs: Any, rf: RequestFactory) -> None:
        """Any collection, in capitals or not; verbs of WebDAV are verbs."""
        view = redis_lock("order", methods=verbs)(function.__wrapped__)  # type: ignore[attr-defined]
        assert view(rf.post("/")).text == "locked True"
        assert view(rf.get("/")).text == "locked False"

    @pytest.mark.parametrize(
        ("verbs", "message"),
        [
            ("POST", 'is a set of verbs such as {"POST", "PUT"}, not \'POST\''),
            ([], "is a set of verbs"),
            ({5}, "is a set of verbs"),
            ({"POST": True}, "is a set of verbs"),
            ({"PSOT"}, "'PSOT' is no verb of HTTP; did you mean 'POST'"),
            ({"get", "putt"}, "'PUTT' is no verb of HTTP; did you mean 'PUT'"),
            ({"POST, PUT"}, "'POST, PUT' is no verb of HTTP"),
            ({""}, "'' is no verb of HTTP"),
        ],
    )
    def test_no_verbs(self, verbs: Any, message: str) -> None:
        """A misspelt verb would never lock: ValueError at decoration."""
        with pytest.raises(ValueError, match=r"^methods") as raised:
            redis_lock("order", methods=verbs)
        assert message in str(raised.value)

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_without_a_request(self, asynchronous: bool) -> None:
        """A call without a request has no verb: a TypeError, and the call isn't made."""

        async def awork(pk: int) -> None:
            pytest.fail("it ran")

        def work(pk: int) -> None:
            pytest.fail("it ran")

        with pytest.raises(TypeError, match=r"called without a request.*there is condition="):
            outcome(changing(awork if asynchronous else work), 5)

    def test_a_key_that_only_locked_requests_have(self, rf: RequestFactory) -> None:
        """The key of a call that needs no lock isn't made."""
        view = redis_lock("order:{request.POST[pk]}", methods={"POST"})(lambda request: locked_now())
        assert view(rf.get("/")).text == "locked False"
        assert view(rf.post("/", {"pk": 5})).text == "locked True"


def big(amount: int, *, urgent: bool = False) -> bool:
    return amount >= 100 or urgent


async def abig(amount: int, *, urgent: bool = False) -> bool:
    await asyncio.sleep(0)
    return amount >= 100 or urgent


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = function(*args, **kwargs)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def pay(amount: int, *, urgent: bool = False) -> bool:
    return current_grant() is not None


async def apay(amount: int, *, urgent: bool = False) -> bool:
    return current_grant() is not None


BOTH = pytest.mark.parametrize("function", [pay, apay])


class TestConditions:
    @pytest.mark.parametrize(("function", "condition"), [(pay, big), (apay, big), (apay, abig)])
    def test_who_passes(self, function: Callable[..., Any], condition: Callable[..., Any]) -> None:
        """It is given the arguments as they were passed; where it is false the call runs without the lock."""
        decorated = redis_lock("pay", condition=condition)(function)
        assert outcome(decorated, 5) is False
        assert outcome(decorated, 100) is True
        assert outcome(decorated, amount=5, urgent=True) is True
        with held_elsewhere("pay"):
            assert outcome(decorated, 5) is False
            with pytest.raises(LockNotAcquired):
                outcome(decorated, 100)

    @BOTH
    @pytest.mark.parametrize(("value", "locked"), [(1, True), ("x", True), (0, False), (None, False), ([], False)])
    def test_truth(self, function: Callable[..., Any], value: object, locked: bool) -> None:
        """True and false as in `if`."""
        assert outcome(redis_lock("pay", condition=lambda amount: value)(function), 5) is locked

    def test_of_a_method(self) -> None:
        """A method's condition is given `self`."""

        class Account:
            frozen = True

            @redis_lock("account", condition=lambda self: not self.frozen)
            def close(self) -> bool:
                return current_grant() is not None

        account = Account()
        assert account.close() is False
        account.frozen = False
        assert account.close() is True

    @BOTH
    def test_what_it_raises(self, function: Callable[..., Any]) -> None:
        """Its exception is the caller's, with a note of where it comes from; neither lock nor call."""

        def wrong(amount: int) -> bool:
            raise LookupError(amount)

        with pytest.raises(LookupError) as raised:
            outcome(redis_lock("pay", name="payment", condition=wrong)(function), 5)
        (note,) = raised.value.__notes__
        assert note == "@redis_lock gave the arguments of a call to the condition of payment, which raised this"
        assert not locks.lock("pay").locked()

    def test_async_for_a_plain_function(self) -> None:
        """[D43] What can't be awaited is refused when it is decorated, or when it turns up."""
        with pytest.raises(TypeError, match="an async condition needs an async function"):
            redis_lock("pay", condition=abig)(pay)
        with pytest.raises(TypeError, match="an async condition needs an async function"):
            redis_lock("pay", condition=lambda amount: abig(amount))(pay)(5)  # noqa: PLW0108 - looks synchronous
        assert not locks.lock("pay").locked()

    def test_async_under_dispatch(self) -> None:
        """`dispatch` of a view with async handlers may await it, under method_decorator too."""

        async def signed(request: HttpRequest) -> bool:
            return "signed" in request.GET

        lock = redis_lock("order", condition=signed)
        view = method_decorator(lock, name="dispatch")(type("Signed", (AsyncPlain,), {})).as_view()
        for url, locked in (("/", False), ("/?signed", True)):
            response: Any = asyncio.run(view(RequestFactory().get(url)))
            assert response.text == f"locked {locked}"

    def test_the_user_of_an_async_view(self, rf: RequestFactory) -> None:
        """[D23] It may name `request.user` in an async view, which asks the database synchronously otherwise."""
        from django.core.exceptions import SynchronousOnlyOperation

        class Staff:
            is_staff = True

        async def auser() -> Staff:
            return Staff()

        def ask_database() -> Staff:
            raise SynchronousOnlyOperation

        request: Any = rf.get("/")
        request.user, request.auser = SimpleLazyObject(ask_database), auser
        view = redis_lock("order", condition=lambda request: request.user.is_staff)(afunction.__wrapped__)  # type: ignore[attr-defined]
        assert asyncio.run(view(request)).text == "locked True"

    @pytest.mark.parametrize("condition", [True, False, "big", 5])
    def test_no_condition(self, condition: Any) -> None:
        """Anything but a callable is a TypeError."""
        with pytest.raises(TypeError, match="the condition of @redis_lock is a callable, not "):
            redis_lock("pay", condition=condition)

    def test_after_methods(self, rf: RequestFactory) -> None:
        """Both must hold, and the verb is asked first."""

        def condition(request: HttpRequest) -> bool:
            assert request.method == "POST"
            return "pk" in request.POST

        view = redis_lock("order", methods={"POST"}, condition=condition)(lambda request: locked_now())
        assert view(rf.get("/")).text == "locked False"
        assert view(rf.post("/")).text == "locked False"
        assert view(rf.post("/", {"pk": 1})).text == "locked True"

    def test_a_call_inside_itself(self) -> None:
        """A call without the lock may be made by its holder, and holds nothing up."""

        @redis_lock("pay", condition=lambda amount: amount > 0)
        def work(amount: int) -> bool:
            return work(-amount) if amount > 0 else current_grant() is not None

        assert work(5) is True  # the outer grant is seen
        with held_elsewhere("pay"):
            assert in_thread(lambda: work(-5)) is False
