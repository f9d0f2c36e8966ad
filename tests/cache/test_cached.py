"""`@cached` of functions and methods: values, the API of the decorated function, and errors at decoration."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import User
from django.core.cache import cache, caches
from django.test.utils import isolate_apps
from django.utils.functional import cached_property
from django.utils.translation import get_language, override

from django_redis_locks import LockKeyError
from django_redis_locks.cache import LoadResult, cached, current_load, get_or_load_many
from tests.cache.backends import LOCMEM

calls: Counter[Any] = Counter()
"""The calls of each function."""


@pytest.fixture(autouse=True)
def no_calls(redis_cache: None) -> None:
    calls.clear()


@cached("price:{pk}:{size}", ttl=60)
def price(pk: int, size: str = "M") -> str:
    calls[pk, size] += 1
    return f"{pk}{size}"


@cached("aprice:{pk}:{size}", ttl=60)
async def aprice(pk: int, size: str = "M") -> str:
    calls[pk, size] += 1
    return f"{pk}{size}"


def test_get_many_calls_the_function_for_each_missing_value() -> None:
    """[S17] The results are in the order of the calls; equal calls are loaded once."""
    price(1)
    assert price.get_many([2, 1, (1, "L"), 2, (3,)]) == ["2M", "1M", "1L", "2M", "3M"]
    assert calls == {(1, "M"): 1, (2, "M"): 1, (1, "L"): 1, (3, "M"): 1}
    assert price.get_many([]) == []


def test_functions_as_options_decide_for_each_value() -> None:
    """Also in a batch."""

    @cached("quote:{seconds}", ttl=lambda seconds: seconds, store_if=lambda seconds: seconds != 5, jitter=0, info=True)
    def quote(seconds: int) -> int:
        return seconds

    assert [quote(30).fresh_for, *(found.fresh_for for found in quote.get_many([40, 5]))] == [30, 40, None]
    assert [quote(seconds).source for seconds in (30, 40, 5)] == ["hit", "hit", "loaded"]


def test_current_load_is_that_of_the_value_which_the_function_loads() -> None:
    """Also in a batch, inside another load, and for coroutines, which run side by side. There is none without the
    cache, and in loaders of many keys."""

    def keep(pk: int) -> str:
        load = current_load()
        assert load is not None
        load.ttl = pk
        return load.key

    @cached("kept:{pk}", ttl=600, jitter=0, info=True)
    def kept(pk: int) -> str:
        return keep(pk) if pk < 20 else f"{kept(pk - 10).value} {keep(pk)}"

    @cached("akept:{pk}", ttl=600, jitter=0, info=True)
    async def akept(pk: int) -> str:
        await asyncio.sleep(0)
        return keep(pk)

    async def acall() -> list[Any]:
        return [await akept(9), *await akept.aget_many([8, 7, 9])]

    found = [kept(9), *kept.get_many([8, 25, 9, 7])]
    assert [each.fresh_for for each in found] == [9, 8, 25, pytest.approx(9, abs=5), 7]
    assert [each.value for each in found] == ["kept:9", "kept:8", "kept:15 kept:25", "kept:9", "kept:7"]
    assert [(each.value, each.fresh_for) for each in asyncio.run(acall())[:3]] == [
        *(("akept:9", 9), ("akept:8", 8), ("akept:7", 7))
    ]
    assert current_load() is None
    assert get_or_load_many(["a", "b"], lambda keys: dict.fromkeys(keys, current_load())) == {"a": None, "b": None}
    assert get_or_load_many(["c"], lambda keys: dict.fromkeys(keys, current_load())) == {"c": None}
    with pytest.raises(AssertionError):
        kept.uncached(1)


def test_counters_of_a_function_count_its_values_by_source(settings: Any) -> None:
    """Also of batches, and of hits of a local-memory cache. Those that raise aren't counted."""

    async def acall() -> None:
        assert [await aprice(1), await aprice(1), *await aprice.aget_many([1, 2])] == ["1M", "1M", "1M", "2M"]

    for caches_ in (settings.CACHES, {"default": {"BACKEND": LOCMEM}}):
        settings.CACHES = caches_
        before, abefore = price.counters(), aprice.counters()
        assert before["waited"] == 0
        assert [price(1), price(1), *price.get_many([1, 2]), price.refresh(1)] == ["1M", "1M", "1M", "2M", "1M"]
        with pytest.raises(TypeError):
            price()  # type: ignore[call-arg]
        asyncio.run(acall())
        assert price.counters() - before == {"hit": 2, "loaded": 3}
        assert aprice.counters() - abefore == {"hit": 2, "loaded": 2}


def test_get_many_with_the_option_many_loads_all_in_one_call() -> None:
    """[S17] Values that `many` doesn't return are None."""
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


def test_aget_many_raises_the_exception_of_one_load() -> None:
    @cached("failing:{pk}", ttl=60)
    async def failing(pk: int) -> int:
        if pk == 2:
            raise ZeroDivisionError
        return pk

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing.aget_many([1, 2, 3]))


def test_call_is_cached_by_its_arguments() -> None:
    """The cache contains the plain value, by a key that other code can build."""
    assert [price(1), price(pk=1), price(1, "M"), price(size="M", pk=1), price(2)] == ["1M"] * 4 + ["2M"]
    assert calls == {(1, "M"): 1, (2, "M"): 1}
    assert price.key(1) == "price:1:M"
    assert cache.get("price:1:M") == "1M"


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


def test_function_has_sync_and_async_methods_and_a_coroutine_function_only_async_ones() -> None:
    async def scenario() -> None:
        assert [await aprice(1), await aprice(pk=1), await aprice(1, "M")] == ["1M"] * 3
        await aprice.ainvalidate(1)
        await aprice(1)
        assert await aprice.arefresh(1) == await aprice.uncached(1) == await price.arefresh(1) == "1M"
        for function in (aprice, price):
            assert await function.aget_many([1, 2, (2, "L")]) == ["1M", "2M", "2L"]
        await price.ainvalidate(1)

    asyncio.run(scenario())
    assert calls == {(1, "M"): 5, (2, "M"): 2, (2, "L"): 2}
    assert cache.get(price.key(1)) is None
    with pytest.raises(TypeError, match=r"await its \.arefresh"):
        aprice.refresh(1)
    with pytest.raises(TypeError, match=r"await its \.aget_many"):
        aprice.get_many([1])


def test_values_are_separate_by_cache_and_language() -> None:
    """[S49] A caller doesn't get a value that another one loads in another language."""

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


def generator() -> Iterator[int]:
    yield 1


class Rows:
    def __call__(self) -> Iterator[int]:
        yield 1


REFUSED: list[tuple[Any, str]] = [
    (generator, "Return a list"),
    (Rows(), "Return a list"),
    (Counter, "can't decorate the class Counter"),
    (property(price), "goes below @property"),
    (cached_property(price), "goes below @property"),
    (functools.partialmethod(price), "the method that it is made of"),
    (Mock(spec=["apply_async"]), "can't decorate the task"),
    (5, "decorates functions, not 5"),
]


def test_decorating_anything_but_a_function_raises() -> None:
    for target, message in REFUSED:
        for decorator in (cached, cached("thing", ttl=5)):
            with pytest.raises(TypeError, match=re.escape(message)):
                decorator(target)


def test_function_without_a_name_of_its_own_needs_a_template() -> None:
    """Two closures of one function would share values."""
    secret = 5

    def closure() -> int:
        return secret

    with pytest.raises(TypeError, match="depends on secret, which isn't among its arguments: give @cached a template"):
        cached(closure)
    with pytest.raises(TypeError, match="no unique name"):
        cached(lambda: 5)
    assert cached("closure", ttl=5)(closure)() == 5


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"timeout": 5}, TypeError, "did you mean 'ttl'"),
    ({"key": "x"}, TypeError, "comes first and has no name"),
    ({"stale": -1}, ValueError, "stale"),
    ({"many": 5}, TypeError, "many is a function"),
    ({"many": aplain}, TypeError, "an async many needs an async function"),
    ({"refresh": "celery"}, TypeError, "a worker can't import"),
]


def test_wrong_option_raises_at_decoration() -> None:
    def local(pk: int) -> int:
        return pk

    for options, error, message in WRONG:
        with pytest.raises(error, match=message):
            cached("thing:{pk}", **options)(local)


# Methods, class methods, static methods, properties and calls


class Shop:
    def __init__(self, pk: int = 1) -> None:
        self.pk = pk

    @cached("total:{self.pk}:{year}", ttl=60)
    def total(self, year: int) -> str:
        """Of a year."""
        calls["total"] += 1
        return f"{self.pk} {year}"

    @cached("atotal:{self.pk}:{year}", ttl=60)
    async def atotal(self, year: int) -> str:
        calls["atotal"] += 1
        return f"{self.pk} {year}"

    @cached("best:{cls.__name__}:{year}", ttl=60)
    @classmethod
    def best(cls, year: int) -> str:
        calls["best"] += 1
        return f"{cls.__name__} {year}"

    @classmethod
    @cached("mean:{cls.__name__}:{year}", ttl=60)
    def mean(cls, year: int) -> str:
        calls["mean"] += 1
        return f"{cls.__name__} {year}"

    @cached("worst:{year}", ttl=60)
    @staticmethod
    def worst(year: int) -> str:
        calls["worst"] += 1
        return f"{year}"

    @staticmethod
    @cached("sum:{year}", ttl=60)
    def sum(year: int) -> str:
        calls["sum"] += 1
        return f"{year}"

    @property
    @cached("size:{self.pk}", ttl=60)
    def size(self) -> int:
        calls["size"] += 1
        return self.pk

    @cached("called:{self.pk}", ttl=60)
    def __call__(self) -> int:
        calls["called"] += 1
        return self.pk

    @cached("nothing", ttl=60)
    @classmethod
    async def anothing(cls) -> str:
        return cls.__name__


class Market(Shop):
    pass


def test_method_has_values_for_each_object() -> None:
    shop, other = Shop(1), Shop(2)
    assert [shop.total(2031), shop.total(year=2031), Shop.total(shop, 2031)] == ["1 2031"] * 3
    assert other.total(2031) == "2 2031"
    assert calls["total"] == 2
    assert shop.total.key(2031) == Shop.total.key(shop, 2031) == "total:1:2031"
    shop.total.invalidate(2031)
    assert [shop.total(2031), other.total(2031)] == ["1 2031", "2 2031"]
    assert calls["total"] == 3
    assert shop.total.refresh(2031) == shop.total.uncached(2031) == "1 2031"
    assert shop.total.get_many([2031, 2032]) == ["1 2031", "1 2032"]
    assert Shop.total.get_many([(shop, 2031), (other, 2031)]) == ["1 2031", "2 2031"]
    assert calls["total"] == 6


def test_class_method_has_values_for_each_class() -> None:
    assert [Shop.best(1), Shop().best(1), Market.best(1), Market().best(1)] == ["Shop 1"] * 2 + ["Market 1"] * 2
    assert calls["best"] == 2
    assert (Shop.best.key(1), Market().best.key(1)) == ("best:Shop:1", "best:Market:1")
    Market.best.invalidate(1)
    assert [Shop.best(1), Market.best(1)] == ["Shop 1", "Market 1"]
    assert calls["best"] == 3


def test_classmethod_above_cached_works_or_raises_with_advice() -> None:
    """Python 3.13 doesn't pass the class to a descriptor below `classmethod`: calls work, other methods raise with
    advice."""
    assert [Shop.mean(1), Market().mean(1)] == ["Shop 1", "Market 1"]
    try:
        key = Market.mean.key(1)
    except TypeError as error:
        assert "@cached above @classmethod" in str(error)  # noqa: PT017 - depends on the version
    else:
        assert key == "mean:Market:1"


def test_static_method_is_cached_as_a_function() -> None:
    for static in (Shop.worst, Shop().worst, Shop.sum, Market().sum):
        assert static(1) == "1"
        assert static.refresh(1) == "1"
        assert static.key(1).endswith(":1")
    assert calls == {"worst": 3, "sum": 3}


def test_property_and_call_are_cached_as_methods() -> None:
    shop = Shop(5)
    assert [shop.size, shop.size, shop(), shop()] == [5] * 4
    assert calls == {"size": 1, "called": 1}


@isolate_apps("django.contrib.auth")
def test_method_of_a_saved_row_needs_no_template() -> None:
    class Customer(User):
        class Meta:
            proxy = True
            app_label = "auth"

        @cached(ttl=60)
        def total(self, year: int) -> int:
            calls["total"] += 1
            return year

    assert [Customer(pk=1).total(5), Customer(pk=1).total(5), Customer(pk=2).total(5)] == [5] * 3
    assert calls["total"] == 2
    with pytest.raises(LockKeyError, match="isn't saved"):
        Customer().total(5)


def test_method_of_another_object_needs_a_template() -> None:
    class Report:
        @cached
        def total(self) -> int:
            return 1

        @cached
        @classmethod
        def of_all(cls) -> str:
            return cls.__name__

    with pytest.raises(LockKeyError, match="a Report has no key of its own: give @cached a template"):
        Report().total()
    assert Report.of_all() == "Report"


def test_decorated_function_has_name_doc_and_signature_and_can_be_copied() -> None:
    shop = Shop(1)
    for found in (Shop.total, shop.total):
        assert (found.__name__, found.__qualname__, found.__module__) == ("total", "Shop.total", __name__)
        assert inspect.getdoc(found) == "Of a year."
        assert found.path == f"{__name__}:Shop.total"
        assert "total" in repr(found)
    assert list(inspect.signature(Shop.total).parameters) == ["self", "year"]
    assert list(inspect.signature(shop.total).parameters) == ["year"]
    assert shop.total == shop.total
    assert hash(shop.total) == hash(shop.total)
    assert shop.total != Shop(1).total
    assert copy.deepcopy(Shop.worst) is Shop.worst
    assert Shop.worst.__reduce__() == "Shop.worst"  # pickled by reference, like a function


def test_coroutine_method_is_still_one_and_has_values_for_each_object() -> None:
    shop = Shop(1)

    async def scenario() -> None:
        assert await shop.atotal(2031) == await shop.atotal(2031) == "1 2031"
        await shop.atotal.ainvalidate(2031)
        assert await shop.atotal(2031) == "1 2031"
        assert await Market.anothing() == "Market"

    asyncio.run(scenario())
    assert calls["atotal"] == 2
    for function in (shop.atotal, Shop.atotal, Shop.anothing):
        assert inspect.iscoroutinefunction(function)
        assert iscoroutinefunction(function)
    for plain in (shop.total, Shop.best):
        assert not inspect.iscoroutinefunction(plain)
