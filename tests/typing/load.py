"""Types of `get_or_load` and related functions, checked by `make types` with mypy and pyright. This file isn't run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import assert_type

from django.core.cache import caches

from django_redis_locks.cache import (
    LoadContext,
    LoadOptions,
    LoadResult,
    XFetch,
    aget_or_load,
    aget_or_load_many,
    ainvalidate,
    arefresh,
    cached,
    get_or_load,
    get_or_load_many,
    invalidate,
    refresh,
)


def sales() -> dict[str, int]:
    return {}


def rate(context: LoadContext) -> float:
    return 1.08


async def asales() -> dict[str, int]:
    return {}


async def arate(context: LoadContext) -> float:
    return 1.08


def prices(keys: list[str]) -> Mapping[str, int]:
    return {}


async def aprices(keys: list[str]) -> dict[str, int]:
    return {}


assert_type(get_or_load("k", sales, ttl=60, stale=timedelta(minutes=5), early=XFetch()), dict[str, int])
assert_type(get_or_load("k", rate, cache=caches["default"], using="payments", version=2), float)
assert_type(get_or_load("k", lambda: 1), int)
assert_type(get_or_load("k", sales, info=True), LoadResult[dict[str, int]])
assert_type(get_or_load("k", rate, info=True).value, float)
assert_type(refresh("k", rate, ttl=60), float)
assert_type(refresh("k", sales, info=True), LoadResult[dict[str, int]])
assert_type(get_or_load_many(["k"], prices, ttl=60), dict[str, int | None])
assert_type(get_or_load_many(["k"], prices, info=True), dict[str, LoadResult[int | None]])
assert_type(invalidate("a", "b", stale=5, replica_lag=timedelta(seconds=2)), None)

options: LoadOptions = {"ttl": 60, "stale": 300, "refresh": "thread"}
assert_type(get_or_load("k", sales, **options), dict[str, int])


@cached("price:{pk}", **options)
def price(pk: int) -> int:
    return pk


async def awaits() -> None:
    assert_type(await aget_or_load("k", asales, ttl=60), dict[str, int])
    assert_type(await aget_or_load("k", arate, ttl=60), float)
    assert_type(await aget_or_load("k", rate), float)
    assert_type(await aget_or_load("k", asales, info=True), LoadResult[dict[str, int]])
    assert_type(await aget_or_load("k", sales, info=True), LoadResult[dict[str, int]])
    assert_type(await arefresh("k", arate), float)
    assert_type(await arefresh("k", rate, info=True), LoadResult[float])
    assert_type(await aget_or_load_many(["k"], aprices), dict[str, int | None])
    assert_type(await aget_or_load_many(["k"], prices, info=True), dict[str, LoadResult[int | None]])
    assert_type(await ainvalidate("a"), None)


get_or_load("k", sales, ttll=60)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
get_or_load("k", sales, ttl="60")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
get_or_load("k", prices, ttl=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
refresh("k", sales, wait="long")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
get_or_load_many(["k"], sales)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
invalidate("a", settle=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
