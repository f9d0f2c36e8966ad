"""`@cached`: what it takes, what its values are, and what the decorated thing can do."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import User
from django.core.cache import caches
from django.test.utils import isolate_apps
from django.utils.functional import cached_property
from django.utils.translation import override

from django_redis_locks import LockKeyError
from django_redis_locks.cache import LoadResult, XFetch, cached

calls: Counter[Any] = Counter()
"""What was called, how often."""


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    calls.clear()


@pytest.fixture(autouse=True, params=["redis", "locmem"])
def cache(request: pytest.FixtureRequest, settings: Any) -> Any:
    """On both roads."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        entry = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
    else:
        entry = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "test_cached"}
    settings.CACHES = {"default": entry, "other": {**entry, "KEY_PREFIX": "other"}}
    caches["default"].clear()
    yield caches["default"]
    caches["default"].clear()


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


# Calls


def test_a_value_is_loaded_once() -> None:
    assert [price(1), price(pk=1), price(1, "M"), price(size="M", pk=1)] == ["1M"] * 4
    assert price(2) == "2M"
    assert calls == {(1, "M"): 1, (2, "M"): 1}


async def once(call: Callable[..., Any], *args: Any) -> None:
    assert await call(*args) == await call(*args)


def test_a_coroutine_function_stays_one() -> None:
    async def story() -> None:
        assert [await aprice(1), await aprice(pk=1), await aprice(1, "M")] == ["1M"] * 3
        assert await aprice.aget_many([1, 2, (2, "L")]) == ["1M", "2M", "2L"]

    asyncio.run(story())
    assert calls == {(1, "M"): 1, (2, "M"): 1, (2, "L"): 1}
    for function in (aprice, Shop().atotal, Shop.atotal, Shop.anothing):
        assert inspect.iscoroutinefunction(function)
        assert iscoroutinefunction(function)
    for plain in (price, Shop().total, Shop.best):
        assert not inspect.iscoroutinefunction(plain)


def test_the_cache_has_the_plain_value(cache: Any) -> None:
    """[S 5.1] A raw value, for everybody who knows its key."""
    price(1)
    assert price.key(1) == "price:1:M"
    assert cache.get("price:1:M") == "1M"
    cache.set("price:2:M", "another")
    assert price(2) == "another"


def test_types_of_arguments_tell_values_apart() -> None:
    """[S 5.3] 1 isn't "1"; what is equal is, whatever it is called."""
    values: list[Any] = [1, "1", 1.0, True, "True", None, "None", "", "a:b", ("a", "b"), ["a", "b"]]
    assert [nameless(value) for value in values] == [nameless.uncached(value) for value in values]
    assert nameless("a", "b") != nameless("a:b")
    calls.clear()
    assert nameless(1, 2, b=3, c=4, d=5) == nameless(1, 2, d=5, c=4, b=3)
    assert calls["nameless"] == 1


def test_a_version_and_a_cache_of_its_own(cache: Any) -> None:
    @cached("thing:{pk}", ttl=60, cache="other", version=7)
    def thing(pk: int) -> int:
        return pk

    thing(1)
    assert caches["other"].get("thing:1", version=7) == 1
    assert cache.get("thing:1") is None
    thing.invalidate(1)
    assert caches["other"].get("thing:1", version=7) is None


def test_a_language_has_its_own_value() -> None:
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


def test_every_call_tells_how_it_went() -> None:
    @cached("told:{pk}", ttl=60, info=True)
    def told(pk: int) -> int:
        return pk

    first, second = told(1), told(1)
    assert isinstance(first, LoadResult)
    assert (first.value, first.source, second.value, second.source) == (1, "loaded", 1, "hit")


# What the decorated thing can do


def test_what_a_function_can_do(cache: Any) -> None:
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


def test_what_a_coroutine_function_can_do(cache: Any) -> None:
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


def test_a_plain_function_has_the_twins_too() -> None:
    async def story() -> None:
        assert await price.arefresh(1) == "1M"
        assert await price.aget_many([1, 3]) == ["1M", "3M"]
        await price.ainvalidate(1)

    asyncio.run(story())
    price(1)
    assert calls == {(1, "M"): 2, (3, "M"): 1}


def test_many_values_cost_one_call_each_and_only_what_is_missing() -> None:
    """[S17] In the order of the calls, twice the same is once the same."""
    price(1)
    assert price.get_many([2, 1, (1, "L"), 2, (3,)]) == ["2M", "1M", "1L", "2M", "3M"]
    assert calls == {(1, "M"): 1, (2, "M"): 1, (1, "L"): 1, (3, "M"): 1}
    assert price.get_many([]) == []


def test_many_values_may_be_loaded_at_once() -> None:
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


def test_many_values_may_be_awaited_at_once() -> None:
    async def load(missing: list[Any]) -> dict[Any, str]:
        return {call: f"many {call}" for call in missing}

    @cached("amany:{pk}", ttl=60, many=load)
    async def one(pk: int) -> str:
        return f"one {pk}"

    assert asyncio.run(one.aget_many([1, 2])) == ["many 1", "many 2"]


def test_one_failure_of_many_is_told_as_it_is() -> None:
    @cached("failing:{pk}", ttl=60)
    async def failing(pk: int) -> int:
        if pk == 2:
            raise ZeroDivisionError
        return pk

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing.aget_many([1, 2, 3]))


# Methods


def test_a_method_knows_its_object() -> None:
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


def test_an_asynchronous_method_knows_its_object() -> None:
    shop = Shop(1)

    async def story() -> None:
        assert await shop.atotal(2031) == await shop.atotal(2031) == "1 2031"
        await shop.atotal.ainvalidate(2031)
        assert await shop.atotal(2031) == "1 2031"
        assert await Market.anothing() == "Market"

    asyncio.run(story())
    assert calls["atotal"] == 2


def test_a_class_method_knows_the_class_that_it_is_called_on() -> None:
    assert [Shop.best(1), Shop().best(1), Market.best(1), Market().best(1)] == ["Shop 1"] * 2 + ["Market 1"] * 2
    assert calls["best"] == 2
    assert (Shop.best.key(1), Market().best.key(1)) == ("best:Shop:1", "best:Market:1")
    Market.best.invalidate(1)
    assert [Shop.best(1), Market.best(1)] == ["Shop 1", "Market 1"]
    assert calls["best"] == 3


def test_a_class_method_around_a_cached_one() -> None:
    """Python 3.13 no longer tells a descriptor below `classmethod` its class: calls work, and the rest says what to do."""
    assert [Shop.mean(1), Market().mean(1)] == ["Shop 1", "Market 1"]
    try:
        key = Market.mean.key(1)
    except TypeError as error:
        assert "@cached above @classmethod" in str(error)  # noqa: PT017 - either is right
    else:
        assert key == "mean:Market:1"


def test_a_static_method_knows_nothing() -> None:
    for static in (Shop.worst, Shop().worst, Shop.sum, Market().sum):
        assert static(1) == "1"
        assert static.refresh(1) == "1"
        assert static.key(1).endswith(":1")
    assert calls == {"worst": 3, "sum": 3}


def test_a_property_and_a_call_are_methods() -> None:
    shop = Shop(5)
    assert [shop.size, shop.size, shop(), shop()] == [5] * 4
    assert calls == {"size": 1, "called": 1}


@isolate_apps("django.contrib.auth")
def test_a_method_of_a_row_needs_no_template() -> None:
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


def test_a_method_of_anything_else_needs_one() -> None:
    class Report:
        @cached
        def total(self) -> int:
            return 1

        @cached
        @classmethod
        def of_all(cls) -> str:
            return cls.__name__

    with pytest.raises(LockKeyError, match="its Report doesn't say which one it is: give @cached a template"):
        Report().total()
    assert Report.of_all() == "Report"


# It looks like what it decorates


def test_it_looks_like_its_function() -> None:
    for found in (Shop.total, Shop().total):
        assert found.__name__ == "total"
        assert found.__qualname__ == "Shop.total"
        assert found.__module__ == __name__
        assert inspect.getdoc(found) == "Of a year."
    assert list(inspect.signature(Shop.total).parameters) == ["self", "year"]
    assert list(inspect.signature(Shop().total).parameters) == ["year"]
    assert list(inspect.signature(price).parameters) == ["pk", "size"]
    assert price.path == f"{__name__}:price"
    assert Shop().total.path == f"{__name__}:Shop.total"
    assert "price" in repr(price)
    assert "total" in repr(Shop().total)


def test_it_can_be_copied_and_compared() -> None:
    shop = Shop(1)
    assert copy.deepcopy(price) is price
    assert shop.total == shop.total
    assert hash(shop.total) == hash(shop.total)
    assert shop.total != Shop(1).total
    assert price.__reduce__() == "price"  # as functions are pickled: by where they are


def test_a_wrapper_around_it_keeps_what_it_can_do() -> None:
    @functools.wraps(price)
    def around(pk: int) -> str:
        return price(pk)

    assert around(1) == "1M"
    assert around.__wrapped__.key(1) == "price:1:M"  # type: ignore[attr-defined]


# Refused at decoration


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


@pytest.mark.parametrize(
    ("target", "message"),
    [
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
    ],
)
def test_what_it_cannot_cache(target: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        cached(target)
    with pytest.raises(TypeError, match=re.escape(message)):
        cached("thing", ttl=5)(target)


def test_a_name_that_is_no_key() -> None:
    """Two closures of one function would share their values."""
    secret = 5

    def closure() -> int:
        return secret

    with pytest.raises(TypeError, match="depends on secret, which isn't among its arguments: give @cached a template"):
        cached(closure)
    with pytest.raises(TypeError, match="no name of its own"):
        cached(lambda: 5)
    assert cached("closure", ttl=5)(closure)() == 5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"timeout": 5}, TypeError, "did you mean ttl="),
        ({"key": "x"}, TypeError, "comes first and has no name"),
        ({"ttl": "5"}, ValueError, "ttl is a number"),
        ({"stale": -1}, ValueError, "stale"),
        ({"early": 2}, ValueError, "early"),
        ({"early": XFetch(), "ttl": None}, ValueError, "early needs a ttl"),
        ({"refresh": "later"}, ValueError, "refresh"),
        ({"many": 5}, TypeError, "many is a function"),
        ({"many": aprice}, TypeError, "an async many needs an async function"),
        ({"refresh": "celery"}, TypeError, "a worker can't import"),
    ],
)
def test_an_option_is_checked_at_decoration(options: dict[str, Any], error: type[Exception], message: str) -> None:
    def local(pk: int) -> int:
        return pk

    with pytest.raises(error, match=message):
        cached("thing:{pk}", **options)(local)


@pytest.mark.parametrize(
    ("template", "message"),
    [("it:{user.pk}", "takes no argument 'user'"), ("it:{pk}{pk}", "nothing between"), ("it:{", "no key template")],
)
def test_a_template_is_checked_at_decoration(template: str, message: str) -> None:
    def local(pk: int) -> int:
        return pk

    with pytest.raises(TypeError, match=message):
        cached(template, ttl=5)(local)
