"""What `@cached` refuses at decoration. Wrong templates have their test in tests/unit/cache/test_keys."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.utils.functional import cached_property

from django_redis_locks.cache import XFetch, cached


def plain(pk: int) -> int:
    return pk


async def aplain(pk: int) -> int:
    return pk


class Shop:
    @cached("worst:{year}")
    @staticmethod
    def worst(year: int) -> int:
        return year


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Rows:
    def __call__(self) -> Iterator[int]:
        yield 1


class Task:
    def __call__(self) -> None: ...

    def apply_async(self) -> None: ...


REFUSED: list[tuple[Any, str]] = [
    (generator, "Return a list"),
    (async_generator, "Return a list"),
    (Rows(), "Return a list"),
    (staticmethod(generator), "Return a list"),
    (Shop, "can't decorate the class Shop"),
    (property(Shop.worst), "goes below @property"),
    (cached_property(Shop.worst), "goes below @property"),
    (functools.cached_property(Shop.worst), "goes below @property"),
    (functools.partialmethod(Shop.worst), "the method that it is made of"),
    (Task(), "can't decorate the task Task"),
    (5, "decorates functions, not 5"),
]


def test_target_that_is_no_function_is_refused() -> None:
    for target, message in REFUSED:
        for decorator in (cached, cached("thing", ttl=5)):
            with pytest.raises(TypeError, match=re.escape(message)):
                decorator(target)


def test_function_without_a_name_of_its_own_needs_a_template() -> None:
    """Two closures of one function would share their values."""
    secret = 5

    def closure() -> int:
        return secret

    with pytest.raises(TypeError, match="depends on secret, which isn't among its arguments: give @cached a template"):
        cached(closure)
    with pytest.raises(TypeError, match="no name of its own"):
        cached(lambda: 5)
    assert cached("closure", ttl=5)(closure)() == 5


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"timeout": 5}, TypeError, "did you mean ttl="),
    ({"key": "x"}, TypeError, "comes first and has no name"),
    ({"ttl": "5"}, ValueError, "ttl is a number"),
    ({"stale": -1}, ValueError, "stale"),
    ({"early": 2}, ValueError, "early"),
    ({"early": XFetch(), "ttl": None}, ValueError, "early needs a ttl"),
    ({"refresh": "later"}, ValueError, "refresh"),
    ({"many": 5}, TypeError, "many is a function"),
    ({"many": aplain}, TypeError, "an async many needs an async function"),
    ({"refresh": "celery"}, TypeError, "a worker can't import"),
]


def test_option_that_is_wrong_is_refused_at_decoration() -> None:
    def local(pk: int) -> int:
        return pk

    for options, error, message in WRONG:
        with pytest.raises(error, match=message):
            cached("thing:{pk}", **options)(local)


def test_template_that_is_wrong_is_refused_at_decoration() -> None:
    for template, message in (("it:{user.pk}", "takes no argument 'user'"), ("it:{", "no key template")):
        with pytest.raises(TypeError, match=message):
            cached(template, ttl=5)(plain)
