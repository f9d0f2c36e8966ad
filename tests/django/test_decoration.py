"""Errors of `@redis_lock` at decoration, and the attributes that a decorated function keeps."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.views import View

from django_redis_locks import locks, redis_lock


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


NOT_FUNCTIONS: list[tuple[object, str]] = [
    (Shop, "decorate the class Shop: put it on a method, or for a view write @method_decorator(redis_lock"),
    (OwnView, '@method_decorator(redis_lock(...), name="dispatch")'),
    (classmethod(lambda cls: None), "below @classmethod: write @classmethod first, then @redis_lock"),
    (staticmethod(lambda: None), "below @staticmethod: write @staticmethod first"),
    (property(lambda self: None), "can't decorate a property: decorate a method that it calls"),
    (cached_property(lambda self: None), "can't decorate a property"),
    (functools.partialmethod(Shop.sell), "a partialmethod: decorate the method that it is made of"),
    (Rows(), "the generator Rows: the lock would be free before"),
    (generator, "the generator generator: the lock would be free before the first item"),
    (async_generator, "the generator async_generator: the lock would be free before"),
    (CeleryTask(), "goes below the task decorator"),
    (5, "decorates functions, not 5; a key is given as key=..."),
]
DECORATORS: list[Any] = [redis_lock, redis_lock(), redis_lock("order"), redis_lock(key="o:{pk}", expire=5)]


class TestRefusals:
    def test_decorating_anything_but_a_function_raises_TypeError(self) -> None:
        """[D44] [D46] A lock around the call couldn't protect it. The message says what to write instead."""
        for target, message in NOT_FUNCTIONS:
            for decorate in DECORATORS:
                with pytest.raises(TypeError, match=re.escape(message)):
                    decorate(target)

    def test_wrong_key_raises_TypeError(self) -> None:
        """The syntax of a template is checked without the function, its arguments with the function."""
        for template, message in (
            ("order:{}", "every {} of a key template names an argument"),
            ("order:{pk:upper}", "allows {pk:hash} and {pk:lower}, not :upper"),
            ("", "the key of a lock is empty"),
        ):
            for give in (lambda: redis_lock(template), lambda: redis_lock(key=template)):  # noqa: B023 - called at once
                with pytest.raises(TypeError, match=re.escape(message)):
                    give()
        for template in ("order:{order}", "order:{self.pk}", "{request.user.pk}:{pk}"):
            with pytest.raises(TypeError, match=r"takes no argument '(order|self|request)'"):
                redis_lock(template)(lambda pk: None)
        key: Any
        for key in (5, b"order", ["order", 5], {"order"}, True, object()):
            with pytest.raises(TypeError, match="the key of @redis_lock is a str, a list of them, or a callable"):
                redis_lock(key=key)

    def test_wrong_value_of_an_option_raises_ValueError(self) -> None:
        """[F2] [D5] At decoration. The message lists the allowed values."""
        status, retry_after = "400 to 599 such as 409, 423 or 429", "True, False or a whole number of seconds from 1 on"
        for option, values, message in (
            ("expire", (0, -1, inf, True, "5"), "expire must be"),
            ("max_hold", (0, -2, inf, True, "5"), "max_hold must be"),
            ("wait", (-2, nan, True, "5"), "wait must be"),
            ("status", (200, 399, 600, True, "409", 409.0), f"status is the status of a refusal, {status}, not "),
            ("retry_after", (0, -1, 1.5, "5", timedelta(seconds=5)), f"retry_after is {retry_after}, not "),
            ("reentrant", (1,), "reentrant is True or False, not 1"),
            ("auto_release", ("no",), "auto_release is True or False, not 'no'"),
            ("on_lost", ("raise", 5), 'on_lost is None, "cancel" or a callable'),
            ("on_lost", ("cancel",), "cancels a task, and needs an async function"),
            ("on_backend_error", ("opened", True, ["open"]), "on_backend_error is one of 'closed', 'open'"),
            ("using", ("", None, ["default"]), "using is an alias of REDIS_LOCKS, not"),
        ):
            for value in values:
                with pytest.raises(ValueError, match=re.escape(message)):
                    redis_lock("order", **{option: value})(lambda: pytest.fail("it ran"))

    def test_unknown_option_raises_TypeError_with_a_suggestion(self) -> None:
        """For the decorator and for a lock: `timeout` is the lease in redis-py, and a wait here."""
        for option, hint in (
            ("timeout", "did you mean 'expire'"),
            ("blocking_timeout", "did you mean 'wait'"),
            ("method", "did you mean 'methods'"),
            ("failure_handler", "did you mean 'on_conflict'"),
            ("colour", "there are key, kind, limit, expire"),
        ):
            with pytest.raises(TypeError, match=f"@redis_lock has no argument '{option}'; {hint}"):
                redis_lock("order", **{option: 5})
        for make in (locks.lock, locks.rlock, locks["default"].lock):
            for option, hint in (("timeout", "expire"), ("ttl", "expire"), ("waits", "wait")):
                with pytest.raises(TypeError, match=f"no argument '{option}'; did you mean '{hint}'"):
                    make("a", **{option: 5})


def test_synchronous_call_that_returns_an_awaitable_raises_TypeError() -> None:
    """[D43] The lock would be released before the awaitable runs. Nothing stays locked."""

    class Later:
        def __await__(self) -> Any:
            yield

    async def body() -> None: ...

    for make in (body, Later):
        work = redis_lock("order")(lambda: make())  # noqa: B023, PLW0108 - called at once; a lambda hides the function
        for _ in range(2):
            with pytest.raises(TypeError, match="returned an awaitable to a synchronous @redis_lock"):
                work()


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    function.mark = "kept"  # type: ignore[attr-defined]
    return function


@marked
def plain(request: HttpRequest, pk: int, /, *, size: str = "M", **more: Any) -> HttpResponse:
    """Its own docstring."""
    raise NotImplementedError


@marked
async def coroutine(request: HttpRequest, pk: int, /, *, size: str = "M", **more: Any) -> HttpResponse:
    """Its own docstring."""
    raise NotImplementedError


@pytest.mark.parametrize("function", [plain, coroutine])
def test_decorated_function_has_the_metadata_of_the_function(function: Callable[..., Any]) -> None:
    """Name, docstring, signature, annotations, attributes and kind (coroutine or not). The function itself isn't
    changed."""
    before = dict(vars(function))
    for decorate in DECORATORS:
        decorated = decorate(function)
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "mark"):
            assert getattr(decorated, attribute) == getattr(function, attribute)
        assert inspect.signature(decorated) == inspect.signature(function)
        assert decorated.__wrapped__ is function
        assert inspect.iscoroutinefunction(decorated) is iscoroutinefunction(decorated) is (function is coroutine)
        assert vars(function) == before
