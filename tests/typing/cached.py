"""Types of `@cached`, checked by `make types` with mypy and pyright. This file isn't run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from django_redis_locks.cache import LoadResult, XFetch, cached


@cached("price:{pk}:{size}", ttl=300, stale=timedelta(minutes=10), early=XFetch(), refresh="thread")
def price(pk: int, *, size: str = "M") -> list[int]:
    return [pk]


@cached("aprice:{pk}", ttl=None, vary_on_language=True)
async def aprice(pk: int) -> list[int]:
    return [pk]


assert_type(price(1), list[int])
assert_type(price.uncached(pk=1), list[int])
assert_type(price.refresh(1), list[int])
assert_type(price.key(1, size="L"), str)
assert_type(price.invalidate(1, stale=True, replica_lag=2), None)
assert_type(price.get_many([1, 2]), list[list[int]])

price("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
price.refresh()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
price.uncached(1, colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def awaits() -> None:
    assert_type(await aprice(1), list[int])
    assert_type(await aprice.uncached(1), list[int])
    assert_type(await aprice.arefresh(1), list[int])
    assert_type(await aprice.aget_many([1]), list[list[int]])
    assert_type(await aprice.ainvalidate(1), None)
    await aprice("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await aprice.arefresh("1")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert_type(await ainformed(1), LoadResult[str])
    assert_type(await Shop().aname(1), str)


class Shop:
    @cached("total:{self}:{year}", ttl=60)
    def total(self, year: int) -> float:
        return 1.0

    @cached("name:{year}")
    async def aname(self, year: int) -> str:
        return ""

    @cached("best:{year}")
    @classmethod
    def best(cls, year: int) -> str:
        return ""

    @classmethod
    @cached("mean:{year}")
    def mean(cls, year: int) -> str:
        return ""

    @property
    @cached("size:{self}")
    def size(self) -> int:
        return 1


shop = Shop()
assert_type(shop.total(2031), float)
assert_type(shop.total.key(2031), str)
assert_type(shop.total.get_many([2031]), list[float])
assert_type(Shop.best(2031), str)
assert_type(shop.best.key(2031), str)
assert_type(Shop.mean(2031), str)
assert_type(shop.size, int)

# mypy considers the attribute of a class as bound
assert_type(Shop.total.key(shop, 2031), str)  # type: ignore[call-arg, arg-type]

shop.total("2031")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@cached("ainformed:{pk}", info=True)
async def ainformed(pk: int) -> str:
    return str(pk)


cached("price", ttl="5")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
cached("price", refresh="later")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
