"""`@cached` of functions: their values, and what the decorated function can do."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import Counter
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.core.cache import cache, caches
from django.utils.translation import override

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


def test_coroutine_function_stays_one() -> None:
    async def story() -> None:
        assert [await aprice(1), await aprice(pk=1), await aprice(1, "M")] == ["1M"] * 3
        assert await aprice.aget_many([1, 2, (2, "L")]) == ["1M", "2M", "2L"]

    asyncio.run(story())
    assert calls == {(1, "M"): 1, (2, "M"): 1, (2, "L"): 1}
    assert inspect.iscoroutinefunction(aprice)
    assert iscoroutinefunction(aprice)
    assert not inspect.iscoroutinefunction(price)


def test_cache_has_the_plain_value_under_the_key() -> None:
    """[S 5.1] A raw value, for everybody who knows its key."""
    price(1)
    assert price.key(1) == "price:1:M"
    assert cache.get("price:1:M") == "1M"
    cache.set("price:2:M", "another")
    assert price(2) == "another"


def test_arguments_of_two_types_have_two_values() -> None:
    """[S 5.3] 1 isn't "1"; what is equal is, whatever it is called."""
    values: list[Any] = [1, "1", 1.0, True, "True", None, "None", "", "a:b", ("a", "b"), ["a", "b"]]
    assert [nameless(value) for value in values] == [nameless.uncached(value) for value in values]
    assert nameless("a", "b") != nameless("a:b")
    calls.clear()
    assert nameless(1, 2, b=3, c=4, d=5) == nameless(1, 2, d=5, c=4, b=3)
    assert calls["nameless"] == 1


def test_version_and_cache_options_say_where_values_are() -> None:
    @cached("thing:{pk}", ttl=60, cache="other", version=7)
    def thing(pk: int) -> int:
        return pk

    thing(1)
    assert caches["other"].get("thing:1", version=7) == 1
    assert cache.get("thing:1") is None
    thing.invalidate(1)
    assert caches["other"].get("thing:1", version=7) is None


def test_vary_on_language_keeps_a_value_for_each_language() -> None:
    """[S49] The leader's language doesn't leak."""

    @cached("greeting", ttl=60, vary_on_language=True)
    def greeting() -> str:
        calls["greeting"] += 1
        return "hello"

    for _ in range(2):
        for language in ("en", "de"):
            with override(language):
                greeting()
    assert calls["greeting"] == 2


def test_info_option_returns_load_results() -> None:
    @cached("told:{pk}", ttl=60, info=True)
    def told(pk: int) -> int:
        return pk

    first, second = told(1), told(1)
    assert isinstance(first, LoadResult)
    assert (first.value, first.source, second.value, second.source) == (1, "loaded", 1, "hit")


def test_function_has_invalidate_refresh_and_uncached() -> None:
    price(1)
    price.invalidate(1)
    assert cache.get(price.key(1)) is None
    price(1)
    assert price.refresh(1) == "1M"
    assert price.uncached(1) == "1M"
    assert calls[1, "M"] == 4
    cache.set(price.key(1), "old")
    assert price(1) == "old"
    assert price.refresh(pk=1) == price(1) == "1M"


def test_coroutine_function_has_the_async_methods_only() -> None:
    async def story() -> None:
        await aprice(1)
        await aprice.ainvalidate(1)
        await aprice(1)
        assert await aprice.arefresh(1) == await aprice.uncached(1) == "1M"

    asyncio.run(story())
    assert calls[1, "M"] == 4
    with pytest.raises(TypeError, match=r"await its \.arefresh"):
        aprice.refresh(1)
    with pytest.raises(TypeError, match=r"await its \.aget_many"):
        aprice.get_many([1])


def test_plain_function_has_the_async_methods_too() -> None:
    async def story() -> None:
        assert await price.arefresh(1) == "1M"
        assert await price.aget_many([1, 3]) == ["1M", "3M"]
        await price.ainvalidate(1)

    asyncio.run(story())
    price(1)
    assert calls == {(1, "M"): 2, (3, "M"): 1}


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
        asked.append(missing)
        return {call: f"many {call}" for call in missing if call != 3}

    @cached("many:{pk}", ttl=60, many=load)
    def one(pk: int) -> str:
        return f"one {pk}"

    one(1)
    assert one.get_many([1, 2, 3, 4]) == ["one 1", "many 2", None, "many 4"]
    assert one.get_many([1, 2, 4]) == ["one 1", "many 2", "many 4"]
    assert [sorted(missing) for missing in asked] == [[2, 3, 4]]


def test_aget_many_loads_at_once_with_many() -> None:
    async def load(missing: list[Any]) -> dict[Any, str]:
        return {call: f"many {call}" for call in missing}

    @cached("amany:{pk}", ttl=60, many=load)
    async def one(pk: int) -> str:
        return f"one {pk}"

    assert asyncio.run(one.aget_many([1, 2])) == ["many 1", "many 2"]


def test_aget_many_raises_the_failure_of_one() -> None:
    @cached("failing:{pk}", ttl=60)
    async def failing(pk: int) -> int:
        if pk == 2:
            raise ZeroDivisionError
        return pk

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing.aget_many([1, 2, 3]))


def test_functools_wraps_keeps_access_to_the_decorated_function() -> None:
    @functools.wraps(price)
    def around(pk: int) -> str:
        return price(pk)

    assert around(1) == "1M"
    assert around.__wrapped__.key(1) == "price:1:M"  # type: ignore[attr-defined]
