"""What a decorated call locks: templates over requests, `self` and models; callables; and the name without a key."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_redis_locks import LockKeyError, current_grant, redis_lock
from tests.django.helpers import held_elsewhere


def key_now() -> str:
    return current_grant().key


async def akey_now(pk: object) -> str:
    return key_now()


def answer(*_: object, **__: object) -> HttpResponse:
    return HttpResponse(key_now())


def lazy(value: Any) -> Any:
    return SimpleLazyObject(lambda: value)


# Over a request


@redis_lock("order:{pk}")
def by_url(request: HttpRequest, pk: int) -> HttpResponse:
    return answer()


@redis_lock("order:{pk}")
def by_any_url(request: HttpRequest, **kwargs: Any) -> HttpResponse:
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


def decorated(name: str, key: str) -> Any:
    return method_decorator(redis_lock(key), name=name)(type("Decorated", (Red,), {}))


def with_get(get: Callable[..., Any]) -> Any:
    return type("WithGet", (Red,), {"get": get})


by_dispatch = decorated("dispatch", "class:{self.colour}:{self.kwargs[pk]}:{request.method}:{kwargs[pk]}")
by_get = with_get(method_decorator(redis_lock("class:{self.colour}:{self.kwargs[pk]}:{pk}"))(Red.get))
by_name = decorated("get", "class:{self.colour}:{pk}")
by_method = with_get(redis_lock("class:{self.colour}:{self.request.GET[size]}:{pk}")(Red.get))
by_async_method = with_get(method_decorator(redis_lock("class:{self.colour}:{pk}"))(AsyncRed.get))
by_async_callable = with_get(method_decorator(redis_lock(key=key_of))(AsyncRed.get))

urlpatterns = [
    path("by-url/<int:pk>/", by_url),
    path("by-any-url/<int:pk>/", by_any_url),
    path("by-header/", by_header),
    path("by-user/", by_user),
    path("by-user-async/", by_user_async),
    path("by-dispatch/<int:pk>/", by_dispatch.as_view()),
    path("by-dispatch-green/<int:pk>/", by_dispatch.as_view(colour="green")),
    path("by-get/<int:pk>/", by_get.as_view()),
    path("by-name/<int:pk>/", by_name.as_view()),
    path("by-method/<int:pk>/", by_method.as_view()),
    path("by-async-method/<int:pk>/", by_async_method.as_view()),
    path("by-async-callable/<int:pk>/", by_async_callable.as_view()),
    path("as-view/<int:pk>/", redis_lock("as-view:{kwargs[pk]}")(by_method.as_view())),
    path("as-view-of-dispatch/<int:pk>/", redis_lock("as-view:{pk}")(by_dispatch.as_view())),
]


class TestViews:
    def test_url_arguments_request_and_self_are_named(self, client: Client) -> None:
        """On functions, methods and under method_decorator."""
        for url, expected in (
            ("/by-url/5/", "order:5"),
            ("/by-any-url/5/", "order:5"),
            ("/by-dispatch/5/", "class:red:5:GET:5"),
            ("/by-dispatch-green/5/", "class:green:5:GET:5"),
            ("/by-get/5/", "class:red:5:5"),
            ("/by-name/5/", "class:red:5"),
            ("/by-method/5/?size=1%3A2", "class:red:1%3A2:5"),
            ("/by-async-method/5/", "class:red:5"),
            ("/by-async-callable/5/", "class:5"),
            ("/as-view/5/?size=M", "class:red:M:5"),
            ("/as-view-of-dispatch/5/", "class:red:5:GET:5"),
        ):
            assert client.get(url).content.decode() == expected, url

    def test_headers_and_query_can_be_named(self, client: Client) -> None:
        """What is missing raises."""
        response = client.post("/by-header/?cart=7", headers={"Idempotency-Key": "k:1"})
        assert response.content == b"pay:k%3A1:post:7"
        with pytest.raises(LockKeyError, match=r"\{request.headers\[Idempotency-Key\]\} can't be found"):
            client.post("/by-header/?cart=7")
        with pytest.raises(LockKeyError, match=r"\{request.GET\[cart\]\} can't be found"):
            client.post("/by-header/", headers={"Idempotency-Key": "k:1"})

    def test_anonymous_user_in_a_key_raises(self, rf: RequestFactory) -> None:
        """[D22] It isn't one lock for all visitors; the message names the way out."""
        request = rf.get("/by-user/")
        request.user = lazy(User(pk=7, username="jane"))
        assert by_user(request).content == b"user:7:/by-user/"
        request.user = lazy(AnonymousUser())
        with pytest.raises(LockKeyError, match=r"it is None.*@login_required above @redis_lock") as raised:
            by_user(request)
        assert (raised.value.name, raised.value.alias) == ("user:{request.user.pk}:{request.path}", "default")

    @pytest.mark.parametrize("status", [302, 409])
    def test_visitor_without_a_login_meets_the_lock_only_if_it_is_above(self, status: int, rf: RequestFactory) -> None:
        """[D21] There a visitor could hold it."""
        locked = redis_lock("report")
        view = login_required(locked(answer)) if status == 302 else locked(login_required(answer))
        request = rf.post("/report/")
        request.user = AnonymousUser()
        with held_elsewhere("report"):
            assert view(request).status_code == status
        assert view(request).status_code == 302

    @pytest.mark.django_db(transaction=True)
    def test_key_of_an_async_view_awaits_the_user(self, settings: Any) -> None:
        """[D23] `request.user` asks the database synchronously."""
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


class Order:
    def __init__(self, pk: int) -> None:
        self.pk = pk

    @redis_lock("order:{self.pk}:{part}")
    def ship(self, part: str = "all") -> str:
        return key_now()

    @classmethod
    @redis_lock("orders:{cls.__name__}")
    def clean(cls) -> str:
        return key_now()

    @staticmethod
    @redis_lock("orders:{year}")
    def close(year: int) -> str:
        return key_now()


class TestMethods:
    def test_template_of_a_method_names_self_cls_and_defaults(self) -> None:
        """[D47] Below classmethod and staticmethod it is that of a function."""
        assert Order(3).ship() == Order(3).ship("all") == Order(3).ship(part="all") == "order:3:all"
        assert Order.ship(Order(4), "a:b") == "order:4:a%3Ab"
        assert Order.clean() == Order(1).clean() == "orders:Order"
        assert Order.close(2026) == Order(1).close(year=2026) == "orders:2026"


class TestCallables:
    def test_callable_is_given_the_arguments_and_its_text_is_unescaped(self) -> None:
        calls = []

        def key_of(*args: Any, **kwargs: Any) -> str:
            calls.append((args, kwargs))
            return f"order:{args[0]}:{{x}}"

        assert redis_lock(key=key_of)(lambda a, b=1: key_now())(5, b=6) == "order:5:{x}"
        assert calls == [((5,), {"b": 6})]

    def test_callable_by_keyword_is_the_key_and_a_positional_one_the_function(self) -> None:
        """Whatever else is given."""

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

    def test_result_that_is_no_text_raises_LockKeyError(self) -> None:
        """The message names the function and not the value."""

        @redis_lock(key=lambda: value, name="orders")
        def work() -> None:
            pytest.fail("it ran without a key")

        match = r"the key callable of orders must return a text, not .*condition="
        for value in (None, "", 5, b"order", ["order"], User(pk=1, username="jane")):  # noqa: B007 - the key callable returns it
            with pytest.raises(LockKeyError, match=match) as raised:
                work()
            assert (raised.value.name, raised.value.alias) == ("orders", "default")
            assert "jane" not in str(raised.value)
            assert " 5" not in str(raised.value)

    def test_key_of_an_async_function_may_be_made_by_an_async_callable(self) -> None:
        """Or a plain one. Its result is a text."""

        async def akey(pk: object) -> object:
            return pk

        for value in ("order:5", None, "", 5):
            for key in (akey, lambda pk: pk):
                with nullcontext() if value == "order:5" else pytest.raises(LockKeyError, match="must return a text"):
                    assert asyncio.run(redis_lock(key=key)(akey_now)(value)) == value == "order:5"
        with pytest.raises(TypeError, match="an async key callable needs an async function"):
            redis_lock(key=akey)(lambda pk: None)

    def test_exception_of_a_callable_is_raised_with_a_note(self) -> None:
        """[D24] Also of one that takes other arguments. And nothing is held."""

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
    def test_key_is_name_or_module_and_qualified_name(self) -> None:
        """[D49] One lock for all calls of the function; a renamed one has another. A name may have braces."""
        assert bare() == f"{__name__}.bare"
        assert redis_lock(name="a{b}")(key_now)() == "a{b}"
        for decorate in (redis_lock(), redis_lock(expire=5), redis_lock(key=None)):
            assert decorate(key_now)() == f"{__name__}.key_now"

    def test_key_of_a_view_is_that_of_its_method_or_class(self, rf: RequestFactory) -> None:
        """[D45] Not the helper of the decorator."""
        decorated = method_decorator(redis_lock, name="get")(type("Own", (FirstView,), {}))
        for view, key in (
            (decorated.as_view(), "FirstView.get"),
            (redis_lock(FirstView.as_view()), "FirstView"),
            (redis_lock(SecondView.as_view()), "SecondView"),
        ):
            assert view(rf.get("/")).content.decode() == f"{__name__}.{key}"

    def test_key_of_a_partial_is_its_function_and_of_an_object_or_method_its_class(self) -> None:
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
