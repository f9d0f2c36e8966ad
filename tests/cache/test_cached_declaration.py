"""What `@cached` refuses at decoration. Wrong templates have their test in tests/unit/cache/test_keys."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from django.utils.functional import cached_property

from django_redis_locks.cache import cached


async def aplain(pk: int) -> int:
    return pk


class Shop:
    @cached("worst:{year}")
    @staticmethod
    def worst(year: int) -> int:
        return year


def generator() -> Iterator[int]:
    yield 1


class Rows:
    def __call__(self) -> Iterator[int]:
        yield 1


REFUSED: list[tuple[Any, str]] = [
    (generator, "Return a list"),
    (Rows(), "Return a list"),
    (Shop, "can't decorate the class Shop"),
    (property(Shop.worst), "goes below @property"),
    (cached_property(Shop.worst), "goes below @property"),
    (functools.partialmethod(Shop.worst), "the method that it is made of"),
    (Mock(spec=["apply_async"]), "can't decorate the task"),
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
    ({"stale": -1}, ValueError, "stale"),
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
