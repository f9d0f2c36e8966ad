"""What `@redis_lock` refuses when it decorates, and what it leaves as it was."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from http import HTTPStatus
from math import inf, nan
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.functional import cached_property
from django.views import View

from django_redis_locks import LockNotAcquired, redis_lock
from tests.django.helpers import held_elsewhere


class Shop:
    def sell(self) -> None: ...


class OwnView(View):
    pass


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Rows:
    def __call__(self) -> Iterator[int]:
        yield 1


class CeleryTask:
    """Looks like a Celery task."""

    __name__ = "send_invoice"

    def __call__(self) -> None: ...

    def apply_async(self) -> None: ...

    def delay(self) -> None: ...


class DjangoTask:
    """Looks like a task of django.tasks."""

    def enqueue(self) -> None: ...

    def __call__(self) -> None: ...


REFUSED = [
    pytest.param(
        Shop,
        "decorate the class Shop: put it on a method, or for a view write @method_decorator(redis_lock",
        id="class",
    ),
    pytest.param(OwnView, '@method_decorator(redis_lock(...), name="dispatch")', id="view-class"),
    pytest.param(
        classmethod(lambda cls: None),
        "below @classmethod: write @classmethod first, then @redis_lock",
        id="classmethod",
    ),
    pytest.param(staticmethod(lambda: None), "below @staticmethod: write @staticmethod first", id="staticmethod"),
    pytest.param(
        property(lambda self: None), "can't decorate a property: decorate a method that it calls", id="property"
    ),
    pytest.param(functools.cached_property(lambda self: None), "can't decorate a property", id="cached-property"),
    pytest.param(cached_property(lambda self: None), "can't decorate a property", id="cached-property-of-django"),
    pytest.param(
        functools.partialmethod(Shop.sell),
        "a partialmethod: decorate the method that it is made of",
        id="partialmethod",
    ),
    pytest.param(Rows(), "the generator Rows: the lock would be free before", id="generator-object"),
    pytest.param(generator, "the generator generator: the lock would be free before the first item", id="generator"),
    pytest.param(async_generator, "the generator async_generator: the lock would be free before", id="async-generator"),
    pytest.param(
        functools.partial(generator), "the lock would be free before the first item", id="partial-of-generator"
    ),
    pytest.param(CeleryTask(), "goes below the task decorator", id="celery-task"),
    pytest.param(DjangoTask(), "goes below the task decorator", id="django-task"),
    pytest.param(5, "decorates functions, not 5; a key is given as key=...", id="int"),
    pytest.param(["order"], "decorates functions, not ['order']", id="list"),
]


class TestRefusals:
    @pytest.mark.parametrize("decorate", [redis_lock, redis_lock(), redis_lock("order"), redis_lock(key="a", expire=5)])
    @pytest.mark.parametrize(("target", "message"), REFUSED)
    def test_of_targets(self, decorate: Any, target: object, message: str) -> None:
        """[D44] [D46] What a lock around the call can't protect is a TypeError that says what to write instead."""
        with pytest.raises(TypeError, match=re.escape(message)):
            decorate(target)

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("order:{}", "every {} of a key template names an argument"),
            ("order:{0}", "every {} of a key template names an argument"),
            ("order:{pk:upper}", "knows {pk:hash} and {pk:lower}, not :upper"),
            ("order:{pk!r}", "knows {pk!n}, not !r"),
            ("order:{pk", "is no key template"),
            ("", "the key of a lock is empty"),
        ],
    )
    def test_of_templates(self, template: str, message: str) -> None:
        """A template that is none is refused before there is a function."""
        for make in (lambda: redis_lock(template), lambda: redis_lock(key=template)):
            with pytest.raises(TypeError, match=re.escape(message)):
                make()

    @pytest.mark.parametrize("template", ["order:{order}", "order:{self.pk}", "{request.user.pk}:{pk}"])
    def test_of_names(self, template: str) -> None:
        """One that names no argument, when there is one."""
        with pytest.raises(TypeError, match=r"takes no argument '(order|self|request)'"):
            redis_lock(template)(lambda pk: None)

    def test_of_names_in_methods(self) -> None:
        """Under method_decorator too, at the latest when the view is called."""
        with pytest.raises(TypeError, match="takes no argument 'order'"):

            class Wrong(View):
                @redis_lock("order:{order}")
                def get(self, request: HttpRequest) -> None: ...

    @pytest.mark.parametrize("key", [5, b"order", ["order"], ("order",), True, object()])
    def test_of_keys(self, key: Any) -> None:
        """A key is a text or a callable."""
        with pytest.raises(TypeError, match="the key of @redis_lock is a text or a callable"):
            redis_lock(key=key)

    @pytest.mark.parametrize("key", ["", None])
    def test_of_an_empty_key(self, key: Any) -> None:
        """An empty key is a mistake, None is no key at all."""
        if key is None:
            assert redis_lock(key=key)(lambda: "done")() == "done"
        else:
            with pytest.raises(TypeError, match="the key of a lock is empty"):
                redis_lock(key=key)

    @pytest.mark.parametrize("expire", [0, -1, nan, inf, True, "5", timedelta(0), 0.001])
    def test_of_leases(self, expire: Any) -> None:
        """[F2] A wrong lease is a ValueError at decoration."""
        with pytest.raises(ValueError, match="expire must be"):
            redis_lock("order", expire=expire)

    @pytest.mark.parametrize("wait", [-2, nan, inf, True, "5", timedelta(seconds=-1)])
    def test_of_waits(self, wait: Any) -> None:
        """[F2] So is a wrong wait."""
        with pytest.raises(ValueError, match="wait must be"):
            redis_lock("order", wait=wait)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"on_lost": "raise"}, 'on_lost is None, "cancel" or a callable'),
            ({"on_lost": 5}, 'on_lost is None, "cancel" or a callable'),
            ({"on_backend_error": "opened"}, 'on_backend_error is "closed" or "open"'),
            ({"on_backend_error": True}, 'on_backend_error is "closed" or "open"'),
        ],
    )
    def test_of_options_of_the_lock(self, options: dict[str, Any], message: str) -> None:
        """A wrong on_lost or on_backend_error is a ValueError at the first call, whether or not it would be needed."""
        with pytest.raises(ValueError, match=message):
            redis_lock("order", **options)(lambda: pytest.fail("it ran"))()

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            *(
                (
                    "status",
                    status,
                    f"status is the status of a refusal, 400 to 599 such as 409, 423 or 429, not {status!r}",
                )
                for status in (0, -409, 200, 302, 399, 600, True, "409", 409.0)
            ),
            *(
                (
                    "retry_after",
                    seconds,
                    f"retry_after is True, False or a whole number of seconds from 1 on, not {seconds!r}",
                )
                for seconds in (0, -1, 1.5, "5", timedelta(seconds=5))
            ),
            ("reentrant", 1, "reentrant is True or False, not 1"),
            ("auto_release", "no", "auto_release is True or False, not 'no'"),
        ],
    )
    def test_of_options(self, option: str, value: Any, message: str) -> None:
        """A wrong option is a ValueError at decoration that says what is right."""
        with pytest.raises(ValueError, match=re.escape(message)):
            redis_lock("order", **{option: value})

    @pytest.mark.parametrize("status", [400, 409, 423, 429, 503, 599, HTTPStatus.LOCKED])
    def test_of_statuses_that_refuse(self, status: int) -> None:
        """What is right passes."""
        assert redis_lock("order", status=status)(lambda: "done")() == "done"

    @pytest.mark.parametrize(
        ("option", "hint"),
        [
            ("timeout", "did you mean expire="),
            ("blocking_timeout", "did you mean wait="),
            ("method", "did you mean methods="),
            ("on_failure", "did you mean on_conflict="),
            ("failure_handler", "did you mean on_conflict="),
            ("colour", "there are key, expire"),
        ],
    )
    def test_of_what_isnt_there(self, option: str, hint: str) -> None:
        """An argument that it doesn't have is a TypeError with the word that is used here."""
        with pytest.raises(TypeError, match=f"@redis_lock has no argument '{option}'; {hint}"):
            redis_lock("order", **{option: 5})


class TestWhatComesBack:
    """A sync call that returns something to be awaited would free its lock before that runs."""

    @pytest.mark.parametrize("kind", ["coroutine", "future", "object"])
    def test_an_awaitable(self, kind: str) -> None:
        """[D43] The net under all shapes: an awaitable out of a synchronous call is refused, and nothing stays locked."""

        class Later:
            def __await__(self) -> Any:
                yield

        async def body() -> None: ...

        def make() -> Awaitable[None]:
            if kind == "coroutine":
                return body()
            return loop.create_future() if kind == "future" else Later()

        loop = asyncio.new_event_loop()
        try:
            work = redis_lock("order")(lambda: make())  # noqa: PLW0108 - it must not look like a coroutine function
            for _ in range(2):
                with pytest.raises(TypeError, match="returned an awaitable to a synchronous @redis_lock"):
                    work()
        finally:
            loop.close()

    def test_none_and_falsy(self) -> None:
        """Whatever else a call returns comes back."""
        for value in (None, 0, "", [], HttpResponse()):
            assert redis_lock("order")(lambda: value)() is value  # noqa: B023 - called at once


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    function.mark = "kept"  # type: ignore[attr-defined]
    return function


@marked
def plain(request: HttpRequest, pk: int, /, *, size: str = "M", **more: Any) -> HttpResponse:
    """Its own text."""
    raise NotImplementedError


@marked
async def coroutine(request: HttpRequest, pk: int, /, *, size: str = "M", **more: Any) -> HttpResponse:
    """Its own text."""
    raise NotImplementedError


@pytest.mark.parametrize("decorate", [redis_lock, redis_lock(), redis_lock("order"), redis_lock("o:{pk}", expire=5)])
@pytest.mark.parametrize("function", [plain, coroutine])
class TestWhatStays:
    def test_the_face_of_the_function(self, decorate: Any, function: Callable[..., Any]) -> None:
        """Name, text, signature, annotations and attributes are the function's own."""
        decorated = decorate(function)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "mark"):
            assert getattr(decorated, attribute) == getattr(function, attribute)
        assert inspect.signature(decorated) == inspect.signature(function)
        assert decorated.__wrapped__ is function

    def test_its_kind(self, decorate: Any, function: Callable[..., Any]) -> None:
        """A coroutine function stays one, for asyncio, inspect and Django; a function doesn't become one."""
        decorated = decorate(function)
        asynchronous = function is coroutine
        assert inspect.iscoroutinefunction(decorated) is asynchronous
        assert iscoroutinefunction(decorated) is asynchronous

    def test_the_function_itself(self, decorate: Any, function: Callable[..., Any]) -> None:
        """The function that was decorated isn't changed."""
        before = dict(vars(function))
        decorate(function)
        assert vars(function) == before


class TestOfViews:
    @pytest.mark.parametrize("decorate", [redis_lock, redis_lock("order")])
    def test_async_handlers(self, decorate: Any) -> None:
        """[D43] Django still sees that a decorated class-based view is async, or isn't."""

        class Async(View):
            async def get(self, request: HttpRequest) -> None: ...

        class Direct(View):
            @decorate
            async def get(self, request: HttpRequest) -> None: ...

        class Sync(View):
            @decorate
            def get(self, request: HttpRequest) -> None: ...

        assert Direct.view_is_async
        assert not Sync.view_is_async
        assert iscoroutinefunction(Direct.as_view())
        assert not iscoroutinefunction(Sync.as_view())
        assert iscoroutinefunction(decorate(Async.as_view()))
        assert iscoroutinefunction(method_decorator(decorate, name="dispatch")(Async).as_view())

    def test_decorating_twice(self) -> None:
        """[D45] One decorator may serve many functions, each with a lock or a key of its own."""
        decorate = redis_lock("order:{pk}")
        first, second = decorate(lambda pk: "first"), decorate(lambda pk, other=1: "second")
        with held_elsewhere("order:1"):
            for function in (first, second):
                with pytest.raises(LockNotAcquired):
                    function(1)
                assert function(2) in ("first", "second")
