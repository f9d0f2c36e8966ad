"""`@cached` of functions: their values, what the decorated function can do, and what is refused at decoration."""

from __future__ import annotations

import asyncio
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.cache import cache, caches
from django.utils.functional import cached_property
from django.utils.translation import get_language, override

from django_redis_locks.cache import LoadResult, cached

calls: Counter[Any] = Counter()
"""How often each function was called."""


@pytest.fixture(autouse=True)
def nothing_called(redis_cache: None) -> None:
    calls.clear()


@cached("price:{pk}:{size}", ttl=60)
def price(pk: int, size: str = "M") -> str:
    calls[pk, size] += 1
    return f"{pk}{size}"


@cached("aprice:{pk}:{size}", ttl=60)
async def aprice(pk: int, size: str = "M") -> str:
    calls[pk, size] += 1
    return f"{pk}{size}"


@cached(ttl=60)
def nameless(a: Any, *rest: Any, b: Any = 1, **more: Any) -> str:
    calls["nameless"] += 1
    return repr((a, rest, b, more))


def test_call_is_cached_by_its_arguments() -> None:
    assert [price(1), price(pk=1), price(1, "M"), price(size="M", pk=1)] == ["1M"] * 4
    assert price(2) == "2M"
    assert calls == {(1, "M"): 1, (2, "M"): 1}


def test_arguments_of_two_types_have_two_values() -> None:
    """[S 5.3] 1 isn't "1"; what is equal is, whatever it is called."""
    values: list[Any] = [1, "1", 1.0, True, "True", None, "None", "", "a:b", ("a", "b"), ["a", "b"]]
    assert [nameless(value) for value in values] == [nameless.uncached(value) for value in values]
    assert nameless("a", "b") != nameless("a:b")
    calls.clear()
    assert nameless(1, 2, b=3, c=4, d=5) == nameless(1, 2, d=5, c=4, b=3)
    assert calls["nameless"] == 1


def test_get_many_calls_the_function_for_what_is_missing() -> None:
    """[S17] In the order of the calls, twice the same is once the same."""
    price(1)
    assert price.get_many([2, 1, (1, "L"), 2, (3,)]) == ["2M", "1M", "1L", "2M", "3M"]
    assert calls == {(1, "M"): 1, (2, "M"): 1, (1, "L"): 1, (3, "M"): 1}
    assert price.get_many([]) == []


def test_get_many_loads_at_once_with_many() -> None:
    """[S17] What `many` leaves out is None."""
    asked: list[Any] = []

    def load(missing: list[Any]) -> dict[Any, str]:
        asked.append(sorted(missing))
        return {call: f"many {call}" for call in missing if call != 3}

    async def aload(missing: list[Any]) -> dict[Any, str]:
        return load(missing)

    async def aone(pk: int) -> str:
        return f"one {pk}"

    one = cached("many:{pk}", ttl=60, many=load)(lambda pk: f"one {pk}")
    one(1)
    for _ in range(2):
        assert one.get_many([1, 2, 3, 4]) == ["one 1", "many 2", None, "many 4"]
    assert asyncio.run(cached("amany:{pk}", ttl=60, many=aload)(aone).aget_many([1, 2])) == ["many 1", "many 2"]
    assert asked == [[2, 3, 4], [1, 2]]


def test_aget_many_raises_the_failure_of_one() -> None:
    @cached("failing:{pk}", ttl=60)
    async def failing(pk: int) -> int:
        if pk == 2:
            raise ZeroDivisionError
        return pk

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing.aget_many([1, 2, 3]))


def test_cache_has_the_plain_value_under_the_key() -> None:
    """[S 5.1] A raw value, for everybody who knows its key."""
    price(1)
    assert price.key(1) == "price:1:M"
    assert cache.get("price:1:M") == "1M"
    cache.set("price:2:M", "another")
    assert price(2) == "another"


def test_function_has_invalidate_refresh_and_uncached() -> None:
    price(1)
    price.invalidate(1)
    assert cache.get(price.key(1)) is None
    price(1)
    assert price.refresh(1) == price.uncached(1) == "1M"
    assert calls[1, "M"] == 4
    cache.set(price.key(1), "old")
    assert price(1) == "old"
    assert price.refresh(pk=1) == price(1) == "1M"


def test_async_methods_are_those_of_every_function_and_the_only_ones_of_a_coroutine_function() -> None:
    async def story() -> None:
        assert [await aprice(1), await aprice(pk=1), await aprice(1, "M")] == ["1M"] * 3
        await aprice.ainvalidate(1)
        await aprice(1)
        assert await aprice.arefresh(1) == await aprice.uncached(1) == await price.arefresh(1) == "1M"
        for function in (aprice, price):
            assert await function.aget_many([1, 2, (2, "L")]) == ["1M", "2M", "2L"]
        await price.ainvalidate(1)

    asyncio.run(story())
    assert calls == {(1, "M"): 5, (2, "M"): 2, (2, "L"): 2}
    assert cache.get(price.key(1)) is None
    with pytest.raises(TypeError, match=r"await its \.arefresh"):
        aprice.refresh(1)
    with pytest.raises(TypeError, match=r"await its \.aget_many"):
        aprice.get_many([1])


def test_options_say_where_values_are_what_they_vary_on_and_what_is_returned() -> None:
    """[S49] The leader's language doesn't leak."""

    @cached("greeting:{pk}", ttl=60, cache="other", version=7, vary_on_language=True, info=True)
    def greeting(pk: int) -> str:
        return str(get_language())

    for source in ("loaded", "hit"):
        for language in ("en", "de"):
            with override(language):
                found = greeting(1)
                assert isinstance(found, LoadResult)
                assert (found.value, found.source) == (language, source)
                assert caches["other"].get(greeting.key(1), version=7) == language
    with override("en"):
        greeting.invalidate(1)
        assert caches["other"].get(greeting.key(1), version=7) is None


# Wrong templates have their test in tests/unit/cache/test_keys


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
