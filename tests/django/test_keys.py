"""What a decorated call locks: templates over requests, `self` and models; callables; and the name without a key."""

from __future__ import annotations

import asyncio
import functools
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
from tests.django.helpers import held_elsewhere, in_thread


def key_now() -> str:
    grant = current_grant()
    assert grant is not None
    return grant.key


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


@method_decorator(redis_lock("class:{self.colour}:{self.kwargs[pk]}:{request.method}:{kwargs[pk]}"), name="dispatch")
class ByDispatch(View):
    colour = "red"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


class ByGet(View):
    colour = "red"

    @method_decorator(redis_lock("class:{self.colour}:{self.kwargs[pk]}:{pk}"))
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


@method_decorator(redis_lock("class:{self.colour}:{pk}"), name="get")
class ByName(View):
    colour = "red"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


class ByMethod(View):
    colour = "red"

    @redis_lock("class:{self.colour}:{self.request.GET[size]}:{pk}")
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


class ByAsyncMethod(View):
    colour = "red"

    @method_decorator(redis_lock("class:{self.colour}:{pk}"))
    async def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


class ByAsyncCallable(View):
    @staticmethod
    async def key_of(request: HttpRequest, pk: int) -> str:
        return f"class:{pk}"

    @method_decorator(redis_lock(key=key_of.__func__))  # type: ignore[attr-defined]
    async def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return answer()


urlpatterns = [
    path("by-url/<int:pk>/", by_url),
    path("by-any-url/<int:pk>/", by_any_url),
    path("by-header/", by_header),
    path("by-user/", by_user),
    path("by-user-async/", by_user_async),
    path("by-dispatch/<int:pk>/", ByDispatch.as_view()),
    path("by-dispatch-green/<int:pk>/", ByDispatch.as_view(colour="green")),
    path("by-get/<int:pk>/", ByGet.as_view()),
    path("by-name/<int:pk>/", ByName.as_view()),
    path("by-method/<int:pk>/", ByMethod.as_view()),
    path("by-async-method/<int:pk>/", ByAsyncMethod.as_view()),
    path("by-async-callable/<int:pk>/", ByAsyncCallable.as_view()),
    path("as-view/<int:pk>/", redis_lock("as-view:{kwargs[pk]}")(ByMethod.as_view())),
    path("as-view-of-dispatch/<int:pk>/", redis_lock("as-view:{pk}")(ByDispatch.as_view())),
]


class TestViews:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
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
        ],
    )
    def test_arguments_and_self(self, url: str, expected: str, client: Client) -> None:
        """URL arguments, `request.*` and `self.*` name themselves, on functions, methods and under method_decorator."""
        assert client.get(url).content.decode() == expected

    def test_headers(self, client: Client) -> None:
        """Headers and the query string can be named; what is missing is an error."""
        response = client.post("/by-header/?cart=7", headers={"Idempotency-Key": "k:1"})
        assert response.content == b"pay:k%3A1:post:7"
        with pytest.raises(LockKeyError, match=r"\{request.headers\[Idempotency-Key\]\} can't be found"):
            client.post("/by-header/?cart=7")
        with pytest.raises(LockKeyError, match=r"\{request.GET\[cart\]\} can't be found"):
            client.post("/by-header/", headers={"Idempotency-Key": "k:1"})

    def test_the_user(self, rf: RequestFactory) -> None:
        """[D22] A user's own lock; nobody's is refused instead of being everybody's."""
        request = rf.get("/by-user/")
        request.user = lazy(User(pk=7, username="jane"))
        assert by_user(request).content == b"user:7:/by-user/"
        request.user = lazy(AnonymousUser())
        with pytest.raises(LockKeyError, match="it is None"):
            by_user(request)

    @pytest.mark.parametrize("status", [302, 409])
    def test_below_the_login(self, status: int, rf: RequestFactory) -> None:
        """[D21] There a visitor without a login is sent away without the lock; above, he meets it, and could hold it."""
        locked = redis_lock("report")
        view = login_required(locked(answer)) if status == 302 else locked(login_required(answer))
        request = rf.post("/report/")
        request.user = AnonymousUser()
        with held_elsewhere("report"):
            assert view(request).status_code == status
        assert view(request).status_code == 302

    @pytest.mark.django_db(transaction=True)
    def test_the_user_of_an_async_view(self, settings: Any) -> None:
        """[D23] In an async view `request.user` asks the database synchronously; the key awaits `auser()` instead."""
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
    def test_self_and_defaults(self) -> None:
        """[D47] A method's template names `self` and its arguments, with their defaults."""
        assert Order(3).ship() == Order(3).ship("all") == Order(3).ship(part="all") == "order:3:all"
        assert Order.ship(Order(4), "a:b") == "order:4:a%3Ab"

    def test_class_and_static_methods(self) -> None:
        """Below @classmethod and @staticmethod it is a function like others."""
        assert Order.clean() == Order(1).clean() == "orders:Order"
        assert Order.close(2026) == Order(1).close(year=2026) == "orders:2026"


class TestCallables:
    def test_it_is_given_the_call(self) -> None:
        """A callable gets the arguments as they were passed, and its text is the key, unescaped."""
        calls = []

        def key_of(*args: Any, **kwargs: Any) -> str:
            calls.append((args, kwargs))
            return f"order:{args[0]}:{{x}}"

        assert redis_lock(key=key_of)(lambda a, b=1: key_now())(5, b=6) == "order:5:{x}"
        assert calls == [((5,), {"b": 6})]

    @pytest.mark.parametrize("options", [{}, {"expire": 5}, {"using": "default"}, {"reentrant": True}, {"name": "n"}])
    def test_a_callable_by_keyword_is_the_key(self, options: dict[str, Any]) -> None:
        """`key=callable` is the key, whatever else is given; only a positional callable is the function."""
        assert redis_lock(key=lambda: "mine", **options)(key_now)() == "mine"

    @pytest.mark.parametrize("options", [{"expire": 5}, {"using": "default"}, {"reentrant": True}, {"name": "n"}])
    def test_a_positional_callable_is_the_function(self, options: dict[str, Any]) -> None:
        """`redis_lock(function, …)` decorates it, with the options."""

        def work(x: int) -> str:
            return f"{x} {key_now()}"

        assert redis_lock(work, **options)(5).startswith("5 ")

    def test_a_positional_lambda_was_meant_as_the_key(self) -> None:
        """Decorated, it would take its lock while the module is imported, and give the view away for a text."""
        with pytest.raises(TypeError, match="key=lambda"):
            redis_lock(lambda request: "order")

    def test_a_positional_callable_with_a_key(self) -> None:
        """… and with `key=`."""

        def work(x: int) -> str:
            return key_now()

        assert redis_lock(work, key="order:{x}")(5) == "order:5"
        with pytest.raises(TypeError, match="two keys"):
            redis_lock("order", key="order")  # type: ignore[call-overload]

    @pytest.mark.parametrize("value", [None, "", 5, b"order", ["order"], User(pk=1, username="jane")])
    def test_anything_but_a_text_is_refused(self, value: object) -> None:
        """None, an empty text or another type is a LockKeyError that names the function and not the value."""

        @redis_lock(key=lambda: value, name="orders")
        def work() -> None:
            pytest.fail("it ran without a key")

        with pytest.raises(
            LockKeyError, match=r"the key callable of orders must return a text, not .*condition="
        ) as raised:
            work()
        assert (raised.value.name, raised.value.alias) == ("orders", "default")
        assert "jane" not in str(raised.value)
        assert " 5" not in str(raised.value)

    def test_async(self) -> None:
        """An async function's key may be made by an async callable, or a plain one."""

        async def akey(pk: int) -> str:
            return f"order:{pk}"

        async def work(pk: int) -> str:
            return key_now()

        assert asyncio.run(redis_lock(key=akey)(work)(5)) == "order:5"
        assert asyncio.run(redis_lock(key=lambda pk: f"order:{pk}")(work)(5)) == "order:5"

    @pytest.mark.parametrize("value", [None, "", 5])
    def test_async_nothing(self, value: object) -> None:
        """What an async callable returns is checked too."""

        async def akey() -> object:
            return value

        async def work() -> None:
            pytest.fail("it ran without a key")

        with pytest.raises(LockKeyError, match="must return a text"):
            asyncio.run(redis_lock(key=akey)(work)())

    def test_async_key_of_a_plain_function(self) -> None:
        """A synchronous function can't await its key: refused when it is decorated."""

        async def akey() -> str:
            return "order"

        with pytest.raises(TypeError, match="an async key callable needs an async function"):
            redis_lock(key=akey)(lambda: None)

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_its_own_exception_passes(self, asynchronous: bool) -> None:
        """[D24] What a callable raises is the caller's to see, with a note of where it comes from, and nothing is held."""

        def key_of(pk: int) -> str:
            raise LookupError(pk)

        async def awork(pk: int) -> None: ...

        decorate = redis_lock(key=key_of, name="orders")
        with pytest.raises(LookupError) as raised:
            asyncio.run(decorate(awork)(5)) if asynchronous else decorate(lambda pk: None)(5)
        assert raised.value.__notes__ == [
            "@redis_lock gave the arguments of a call to the key callable of orders, which raised this"
        ]
        assert current_grant() is None

    def test_arguments_it_doesnt_take(self) -> None:
        """A callable that isn't made for the call's arguments says so, and why it was given them."""
        with pytest.raises(TypeError, match="takes 0 positional arguments but 1 was given") as raised:
            redis_lock(key=lambda: "order")(lambda pk: None)(5)
        assert "gave the arguments of a call to the key callable" in raised.value.__notes__[0]


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
    def test_module_and_name(self) -> None:
        """[D49] Without a key it is one lock for all calls of this function: `module.qualname`, so a renamed one has another."""
        assert bare() == f"{__name__}.bare"

    @pytest.mark.parametrize("decorate", [redis_lock(), redis_lock(expire=5), redis_lock(key=None)])
    def test_called_without_a_key(self, decorate: Any) -> None:
        """`@redis_lock()` and `@redis_lock(expire=5)` mean the same."""
        here = f"{__name__}.TestWithoutAKey.test_called_without_a_key.<locals>.work"

        def work() -> str:
            return key_now()

        assert decorate(work)() == here

    def test_a_name_is_the_key_then(self) -> None:
        """With a name and no key the name is the key, braces and all."""
        assert redis_lock(name="a{b}")(key_now)() == "a{b}"

    def test_methods(self) -> None:
        """A method has its class in it, and all instances share it."""

        class Shop:
            @redis_lock
            def close(self) -> str:
                return key_now()

        assert Shop().close() == f"{__name__}.TestWithoutAKey.test_methods.<locals>.Shop.close"

    def test_method_decorator(self, rf: RequestFactory) -> None:
        """[D45] Under method_decorator it is the method, not the helper of the decorator."""
        decorated = method_decorator(redis_lock, name="get")(type("Own", (FirstView,), {}))
        assert decorated.as_view()(rf.get("/")).content.decode() == f"{__name__}.FirstView.get"

    def test_two_views_of_one_module(self, rf: RequestFactory) -> None:
        """`redis_lock(A.as_view())` and `redis_lock(B.as_view())` are two locks."""
        first, second = redis_lock(FirstView.as_view()), redis_lock(SecondView.as_view())
        assert first(rf.get("/")).content.decode() == f"{__name__}.FirstView"
        assert second(rf.get("/")).content.decode() == f"{__name__}.SecondView"

    def test_partials_and_callable_objects(self) -> None:
        """A partial is its function, an object with `__call__` its class."""

        class Work:
            def __call__(self) -> str:
                return key_now()

        prefix = f"{__name__}.TestWithoutAKey.test_partials_and_callable_objects.<locals>."

        def work(x: int) -> str:
            return key_now()

        assert redis_lock(functools.partial(work, 5))() == f"{prefix}work"
        assert redis_lock(Work())() == f"{prefix}Work"

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_a_wrong_key_says_whose_it_is(self, asynchronous: bool) -> None:
        """A LockKeyError has name and alias of the lock, whoever found the mistake."""

        async def awork(pk: object) -> None: ...

        def call(pk: object) -> None:
            if asynchronous:
                asyncio.run(redis_lock("order:{pk}")(awork)(pk))
            else:
                redis_lock("order:{pk}")(lambda pk: None)(pk)

        for value in (None, {}, object(), "\ud800"):
            with pytest.raises(LockKeyError) as raised:
                call(value)
            assert (raised.value.name, raised.value.alias) == ("order:{pk}", "default")

    def test_two_functions_are_two_locks(self) -> None:
        """A function that holds its own lock may call another one's."""

        @redis_lock
        def outer() -> tuple[str, str]:
            return key_now(), bare()

        first, second = outer()
        assert first != second == bare() == in_thread(bare)
