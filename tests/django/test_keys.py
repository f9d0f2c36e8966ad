"""Keys of decorated calls: templates, callables and defaults; and decorated callables with other decorators."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser, User
from django.core.management import BaseCommand, call_command
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_redis_locks import LockKeyError, LockNotAcquired, current_grant, redis_lock
from tests.django.helpers import held_elsewhere

try:
    from django.tasks import default_task_backend, task
except ImportError:  # Django 5.2
    task = None


def key_now() -> str:
    return current_grant().key


async def akey_now(pk: object) -> str:
    return key_now()


def answer(*_: object, **__: object) -> HttpResponse:
    return HttpResponse(key_now())


def answer_one(request: HttpRequest) -> HttpResponse:
    return answer()


async def aanswer(request: HttpRequest) -> HttpResponse:
    return answer()


def lazy(value: Any) -> Any:
    return SimpleLazyObject(lambda: value)


# Keys from a request


@redis_lock("order:{pk}")
def by_url(request: HttpRequest, pk: int) -> HttpResponse:
    return answer()


@redis_lock("pay:{request.headers[Idempotency-Key]}:{request.method:lower}:{request.GET[cart]}")
def by_header(request: HttpRequest) -> HttpResponse:
    return answer()


@redis_lock("user:{request.user.pk}:{request.path}")
def by_user(request: HttpRequest) -> HttpResponse:
    return answer()


@redis_lock("user:{request.user}")
async def by_user_async(request: HttpRequest) -> HttpResponse:
    return answer()


class Red(View):
    colour = "red"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


class AsyncRed(View):
    colour = "red"

    async def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


async def key_of(request: HttpRequest, pk: int) -> str:
    return f"class:{pk}"


def with_get(get: Callable[..., Any]) -> Any:
    return type("WithGet", (Red,), {"get": get})


by_dispatch = method_decorator(
    redis_lock("class:{self.colour}:{self.kwargs[pk]}:{request.method}:{kwargs[pk]}"), name="dispatch"
)(type("Decorated", (Red,), {}))
by_get = with_get(method_decorator(redis_lock("class:{self.colour}:{self.kwargs[pk]}:{pk}"))(Red.get))
by_method = with_get(redis_lock("class:{self.colour}:{self.request.GET[size]}:{pk}")(Red.get))
by_async_callable = with_get(method_decorator(redis_lock(key=key_of))(AsyncRed.get))

urlpatterns = [
    path("by-url/<int:pk>/", by_url),
    path("by-header/", by_header),
    path("by-user/", by_user),
    path("by-user-async/", by_user_async),
    path("by-dispatch/<int:pk>/", by_dispatch.as_view(colour="green")),
    path("by-get/<int:pk>/", by_get.as_view()),
    path("by-method/<int:pk>/", by_method.as_view()),
    path("by-async-callable/<int:pk>/", by_async_callable.as_view()),
    path("as-view/<int:pk>/", redis_lock("as-view:{kwargs[pk]}")(by_method.as_view())),
    path("as-view-of-dispatch/<int:pk>/", redis_lock("as-view:{pk}")(by_dispatch.as_view())),
]


class TestViews:
    def test_key_of_a_view_uses_url_arguments_request_and_self(self, client: Client) -> None:
        """On functions, methods and under method_decorator."""
        for url, expected in (
            ("/by-url/5/", "order:5"),
            ("/by-dispatch/5/", "class:green:5:GET:5"),
            ("/by-get/5/", "class:red:5:5"),
            ("/by-method/5/?size=1%3A2", "class:red:1%3A2:5"),
            ("/by-async-callable/5/", "class:5"),
            ("/as-view/5/?size=M", "class:red:M:5"),
            ("/as-view-of-dispatch/5/", "class:red:5:GET:5"),
        ):
            assert client.get(url).content.decode() == expected, url

    def test_key_of_a_view_uses_headers_and_query(self, client: Client) -> None:
        """A missing one is the client's error."""
        response = client.post("/by-header/?cart=7", headers={"Idempotency-Key": "k:1"})
        assert response.content == b"pay:k%3A1:post:7"
        for url, headers in (("/by-header/?cart=7", {}), ("/by-header/", {"Idempotency-Key": "k:1"})):
            assert client.post(url, headers=headers).status_code == 400

    def test_request_without_a_value_of_the_key_is_400(
        self, rf: RequestFactory, caplog: pytest.LogCaptureFixture, memory_locks: Any
    ) -> None:
        """[D6] Or the status of `on_key_error`; otherwise clients could cause a 500. Other errors raise."""
        key = "pay:{request.GET[cart]}"
        for url in ("/", "/?cart="):
            response = redis_lock(key)(answer_one)(rf.get(url, headers={"accept": "application/json"}))
            assert (response.status_code, response["Cache-Control"]) == (400, "no-store")
            assert b"lacks something that it needs" in response.content
            assert "Lock pay:{request.GET[cart]}: a request is answered with 400" in caplog.records[-1].getMessage()
        (surrogate := rf.get("/")).GET = {"cart": "\ud800"}
        assert asyncio.run(redis_lock(key)(aanswer)(surrogate)).status_code == 400
        memory_locks(LOCKS={key: {"ON_KEY_ERROR": 404}})
        for options, status in (({"on_key_error": 422}, 422), ({}, 404)):
            assert redis_lock(key, **options)(answer_one)(rf.get("/")).status_code == status
        assert redis_lock("pay:{_r.GET[cart]}")(lambda _r: None)(rf.get("/")).status_code == 400
        for call in (
            lambda: redis_lock("user:{request.usr.pk}")(answer_one)(rf.get("/")),
            lambda: redis_lock(key, on_key_error="raise")(answer_one)(rf.get("/")),
            lambda: redis_lock("order:{pk}")(lambda request, pk: None)(rf.get("/"), pk=None),
            lambda: redis_lock("basket:{basket[cart]}")(lambda basket: None)({}),
        ):
            with pytest.raises(LockKeyError):
                call()
        for wrong in ("answer", 302, 500, True):
            with pytest.raises(ValueError, match="on_key_error is 'raise' or a status from 400 to 499"):
                redis_lock(key, on_key_error=wrong)

    def test_anonymous_user_in_a_key_raises(self, rf: RequestFactory) -> None:
        """[D22] Instead of one lock for all visitors. The message says what to write."""
        request = rf.get("/by-user/")
        request.user = lazy(User(pk=7, username="jane"))
        assert by_user(request).content == b"user:7:/by-user/"
        request.user = lazy(AnonymousUser())
        assert by_user(request).status_code == 400
        template = "user:{request.user.pk}:{request.path}"
        with pytest.raises(LockKeyError, match=r"it is None.*@login_required above @redis_lock") as raised:
            redis_lock(template, on_key_error="raise")(answer_one)(request)
        assert (raised.value.name, raised.value.alias) == ("user:{request.user.pk}:{request.path}", "default")

    @pytest.mark.parametrize("status", [302, 409])
    def test_anonymous_request_acquires_the_lock_only_above_login_required(
        self, status: int, rf: RequestFactory
    ) -> None:
        """[D21] There an anonymous visitor could hold it."""
        locked = redis_lock("report")
        view = login_required(locked(answer)) if status == 302 else locked(login_required(answer))
        request = rf.post("/report/")
        request.user = AnonymousUser()
        with held_elsewhere("report"):
            assert view(request).status_code == status
        assert view(request).status_code == 302

    @pytest.mark.django_db(transaction=True)
    def test_key_of_an_async_view_awaits_the_user(self, settings: Any) -> None:
        """[D23] `request.user` would query the database synchronously."""
        settings.MIDDLEWARE = [
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ]
        settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
        user = User.objects.create(username="jane")
        client = AsyncClient()
        client.force_login(user)
        response = asyncio.run(client.get("/by-user-async/"))
        assert response.content.decode() == f"user:auth.user.{user.pk}"


class TestCallables:
    def test_key_callable_gets_the_arguments_and_its_result_is_not_escaped(self) -> None:
        calls = []

        def key_of(*args: Any, **kwargs: Any) -> str:
            calls.append((args, kwargs))
            return f"order:{args[0]}:{{x}}"

        assert redis_lock(key=key_of)(lambda a, b=1: key_now())(5, b=6) == "order:5:{x}"
        assert calls == [((5,), {"b": 6})]

    def test_callable_as_keyword_is_the_key_and_as_first_argument_the_function(self) -> None:
        """With any other options."""

        def work(x: int) -> str:
            return f"{x} {key_now()}"

        options: dict[str, Any]
        for options in ({}, {"expire": 5}, {"using": "default"}, {"name": "n"}):
            assert redis_lock(key=lambda: "mine", **options)(key_now)() == "mine"
            assert redis_lock(work, **options)(5).startswith("5 ")
        assert redis_lock(work, key="order:{x}")(5) == "5 order:5"
        with pytest.raises(TypeError, match="two keys"):
            redis_lock("order", key="order")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="key=lambda"):
            redis_lock(lambda request: "order")

    def test_key_callable_that_returns_no_text_raises_LockKeyError(self) -> None:
        """The message has the name of the function, not the value."""

        @redis_lock(key=lambda: value, name="orders")
        def work() -> None:
            pytest.fail("it ran without a key")

        match = r"the key callable of orders must return a str, or a list of them, not .*condition="
        for value in (None, "", 5, b"order", ["order", None], User(pk=1, username="jane")):  # noqa: B007 - the key callable returns it
            with pytest.raises(LockKeyError, match=match) as raised:
                work()
            assert (raised.value.name, raised.value.alias) == ("orders", "default")
            assert "jane" not in str(raised.value)
            assert " 5" not in str(raised.value)

    def test_key_callable_of_an_async_function_may_be_async(self) -> None:
        """Its result is checked like that of a plain one."""

        async def akey(pk: object) -> object:
            return pk

        for key in (akey, lambda pk: pk):
            assert asyncio.run(redis_lock(key=key)(akey_now)("order:5")) == "order:5"
            with pytest.raises(LockKeyError, match="must return a str"):
                asyncio.run(redis_lock(key=key)(akey_now)(5))
        with pytest.raises(TypeError, match="an async key callable needs an async function"):
            redis_lock(key=akey)(lambda pk: None)

    def test_exception_of_a_key_callable_is_raised_with_a_note(self) -> None:
        """[D24] Also if it doesn't accept the arguments. Nothing is locked."""

        def wrong(pk: int) -> str:
            raise LookupError(pk)

        for key, kind, message in (
            (wrong, LookupError, "5"),
            (lambda: "order", TypeError, "takes 0 positional arguments"),
        ):
            decorate = redis_lock(key=key, name="orders")
            for call in (decorate(lambda pk: None), lambda pk: asyncio.run(decorate(akey_now)(pk))):  # noqa: B023
                with pytest.raises(kind, match=message) as raised:
                    call(5)
                assert raised.value.__notes__ == [
                    "@redis_lock gave the arguments of a call to the key callable of orders, which raised this"
                ]
                assert current_grant() is None


@redis_lock
def bare() -> str:
    return key_now()


class FirstView(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer()


class SecondView(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return answer()


class TestWithoutAKey:
    def test_default_key_is_the_name_or_module_and_qualified_name(self) -> None:
        """[D49] One lock for all calls of the function. A name may have braces."""
        assert bare() == f"{__name__}.bare"
        assert redis_lock(name="a{b}")(key_now)() == "a{b}"
        for decorate in (redis_lock(), redis_lock(expire=5), redis_lock(key=None)):
            assert decorate(key_now)() == f"{__name__}.key_now"

    def test_default_key_of_a_view_names_its_method_or_class(self, rf: RequestFactory) -> None:
        """[D45] Not the wrapper that `method_decorator` makes."""
        decorated = method_decorator(redis_lock, name="get")(type("Own", (FirstView,), {}))
        for view, key in (
            (decorated.as_view(), "FirstView.get"),
            (redis_lock(FirstView.as_view()), "FirstView"),
            (redis_lock(SecondView.as_view()), "SecondView"),
        ):
            assert view(rf.get("/")).content.decode() == f"{__name__}.{key}"

    def test_default_key_of_a_partial_names_its_function_and_of_an_object_its_class(self) -> None:
        """All instances share it."""

        class Shop:
            @redis_lock
            def close(self) -> str:
                return key_now()

            def __call__(self) -> str:
                return key_now()

        prefix = f"{__name__}.{Shop.__qualname__}"
        assert redis_lock(functools.partial(answer, 5))().content.decode() == f"{__name__}.answer"
        assert redis_lock(Shop())() == prefix
        assert Shop().close() == f"{prefix}.close"


# Callables beside other decorators


@redis_lock("by name")
def by_name() -> str:
    """At the top of a module."""
    return key_now()


@redis_lock("by name")
async def aby_name() -> str:
    return key_now()


class Order:
    def __init__(self, pk: int) -> None:
        self.pk = pk

    @redis_lock("order:{self.pk}:{part}")
    def ship(self, part: str = "all") -> str:
        return key_now()

    ship_half = functools.partialmethod(ship, part="half")

    @redis_lock("order:{self.pk}")
    async def aship(self) -> str:
        return key_now()

    @classmethod
    @redis_lock("orders:{cls.__name__}")
    def clean(cls) -> str:
        return key_now()

    @staticmethod
    @redis_lock("orders:{year}")
    def close(year: int) -> str:
        return key_now()

    @functools.cached_property
    @redis_lock("total:{self.pk}")
    def total(self) -> str:
        return key_now()

    @property
    @redis_lock("price:{self.pk}")
    def price(self) -> str:
        return key_now()


class Special(Order):
    def ship(self, part: str = "all") -> str:
        return "special " + super().ship(part)


class Work:
    @redis_lock("call:{x}")
    def __call__(self, x: int) -> str:
        return key_now()


class AsyncWork:
    """An object with an async call, which `asyncio.iscoroutinefunction` doesn't detect."""

    async def __call__(self, x: int) -> str:
        return key_now()


def test_decorated_function_is_bound_as_a_method() -> None:
    """[D47] By an instance, the class, or super(); below property, cached_property, classmethod, staticmethod and
    partialmethod. Not if it is set on an instance."""
    order: Any = Order(5)
    assert order.ship.__self__ is order
    assert order.ship() == Order.ship(order) == order.ship(part="all") == "order:5:all"
    assert Order.ship(order, "a:b") == "order:5:a%3Ab"
    assert Order.clean() == order.clean() == "orders:Order"
    assert Order.close(2026) == order.close(year=2026) == "orders:2026"
    assert Special(5).ship("a") == "special order:5:a"
    assert asyncio.run(order.aship()) == "order:5"
    assert (order.total, order.price, order.ship_half()) == ("total:5", "price:5", "order:5:half")
    order.work = by_name
    assert order.work() == "by name"
    bound = Order(7).ship.__wrapped__.__get__(Order(7))  # type: ignore[attr-defined]
    assert redis_lock("bound:{self.pk}:{part}")(bound)("x") == "bound:7:x"


def test_object_or_its_call_method_may_be_decorated() -> None:
    """An object with an async call becomes a coroutine function. Builtins work, too."""
    assert Work()(5) == "call:5"
    decorated = redis_lock("object:{x}")(AsyncWork())
    assert inspect.iscoroutinefunction(decorated)
    assert asyncio.run(decorated(5)) == "object:5"
    partial = redis_lock("object:{x}")(functools.partial(AsyncWork(), 6))
    assert asyncio.run(partial()) == "object:6"
    assert redis_lock("sorted:{reverse}")(sorted)([2, 1]) == [1, 2]  # type: ignore[arg-type]


def test_decorated_function_pickles_and_copies_by_name() -> None:
    """For process pools. A bound method is pickled with its object."""
    for function in (by_name, aby_name, Order.ship, Order.aship):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
    assert pickle.loads(pickle.dumps(Order(5).ship))("x") == "order:5:x"


class Command(BaseCommand):
    """A management command: its options are `**options`."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("year", type=int)
        parser.add_argument("--shop", default="main")

    @redis_lock("close:{year}:{options[shop]}")
    def handle(self, *args: Any, **options: Any) -> str:
        return key_now()


def test_arguments_of_a_command_are_in_the_key() -> None:
    assert call_command(Command(), 2031) == "close:2031:main"
    assert call_command(Command(), "2031", "--shop", "a:b") == "close:2031:a%3Ab"
    with held_elsewhere("close:2031:main"):
        assert call_command(Command(), 2032) == "close:2032:main"


if task is not None:

    @task
    @redis_lock("report:{year}")
    def build_report(year: int) -> str:
        return key_now()

    @task(takes_context=True)
    @redis_lock("report:{context.attempt}:{year}")
    def build_with_context(context: Any, year: int) -> str:
        return key_now()

    @task
    @redis_lock("report:{year}")
    async def abuild_report(year: int) -> str:
        return key_now()


@pytest.mark.skipif(task is None, reason="django.tasks came with Django 6.0")
class TestTasks:
    @pytest.fixture(autouse=True)
    def immediate_tasks(self, settings: Any) -> None:
        settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}

    def test_lock_below_task_is_held_while_the_task_runs(self) -> None:
        """[D46] Also with context, and async."""
        assert build_report.enqueue(2031).return_value == "report:2031"
        assert build_with_context.enqueue(year=2031).return_value == "report:1:2031"
        assert abuild_report.enqueue(2031).return_value == "report:2031"

    def test_task_whose_lock_is_busy_fails_with_LockNotAcquired(self) -> None:
        with held_elsewhere("report:2031"):
            result = build_report.enqueue(2031)
        assert result.errors[0].exception_class is LockNotAcquired
        assert default_task_backend.alias == "default"

    @pytest.mark.parametrize("decorate", [redis_lock, redis_lock("report:{year}")])
    def test_lock_above_task_raises_TypeError(self, decorate: Any) -> None:
        """[D46] The decorated object would hide `enqueue`."""
        with pytest.raises(TypeError, match="@redis_lock goes below the task decorator of"):
            decorate(build_report)
