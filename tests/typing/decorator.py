"""Types of `@redis_lock`, checked by `make types` with mypy and pyright. This file isn't run.

A line with `type: ignore` and `pyright: ignore` must be an error for both; otherwise the comment is reported as unused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import assert_type

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import method_decorator
from django.views import View

from django_redis_locks import Grant, LockNotAcquired, redis_lock

# Signature and type are kept


@redis_lock
def bare(pk: int, *, size: str = "M") -> list[int]:
    return [pk]


@redis_lock(key="order:{pk}", expire=5, wait=timedelta(seconds=3))
def by_options(pk: int, *, size: str = "M") -> list[int]:
    return [pk]


@redis_lock("order:{pk}")
async def coroutine(pk: int) -> list[int]:
    return [pk]


assert_type(bare(1, size="L"), list[int])
assert_type(by_options(pk=1), list[int])

bare("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
by_options(1, colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def awaits() -> None:
    assert_type(await coroutine(1), list[int])
    assert_type(await order.aship("a"), int)
    await coroutine()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# Methods


class Order:
    @redis_lock("order:{self}")
    def ship(self, part: str) -> int:
        return len(part)

    @redis_lock
    async def aship(self, part: str) -> int:
        return len(part)

    @classmethod
    @redis_lock("orders:{cls.__name__}")
    def clean(cls, year: int) -> str:
        return str(year)

    @property
    @redis_lock
    def total(self) -> float:
        return 1.0


order = Order()
assert_type(order.ship("a"), int)
assert_type(Order.ship(order, "a"), int)
assert_type(Order.clean(2031), str)
assert_type(order.total, float)

order.ship(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Order.clean("2031")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Views and partials


@redis_lock(key="checkout:{pk}", methods={"POST"}, status=423, retry_after=False)
def view(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@method_decorator(redis_lock("order"), name="dispatch")
class OrderView(View):
    @redis_lock("order", auto_release=False, expire=5)
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


assert_type(view(HttpRequest(), 5), HttpResponse)
assert_type(OrderView().get(HttpRequest()), HttpResponse)
assert_type(redis_lock("half")(functools.partial(bare, 1)), functools.partial[list[int]])
assert_type(redis_lock(bare, key="order:{pk}")(1), list[int])

lock = redis_lock("order:{pk}")


@lock
def first(pk: int) -> int:
    return pk


assert_type(first(1), int)
assert_type(redis_lock()(first)(1), int)


# Options


def by_arguments(pk: int) -> str:
    return str(pk)


def is_big(pk: int) -> bool:
    return pk > 100


def page_somebody(grant: Grant) -> None: ...


decorators: list[Callable[[Callable[[int], int]], Callable[[int], int]]] = [
    redis_lock(key=by_arguments, condition=is_big),
    redis_lock(key=["account:{src}", "account:{dst}"], kind="fair"),
    redis_lock(key="export", kind="semaphore", limit=2),
    redis_lock(key=by_arguments, reentrant=True, name="order", using="payments"),
    redis_lock("order", expire=0.5, wait=-1, renew=True, on_lost=page_somebody, on_backend_error="open"),
    redis_lock("order", methods=["POST"], on_lost="cancel"),
    redis_lock("order", methods=("POST", "PUT"), retry_after=30),
    redis_lock("order", methods=frozenset({"POST"}), expire=None, wait=None),
]

redis_lock("order", expire="5")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
redis_lock("order", methods="POST")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
redis_lock("order", condition=True)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
redis_lock("order", on_lost="raise")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
redis_lock("order", timeout=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
redis_lock(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# on_conflict


def on_busy(request: HttpRequest, refused: LockNotAcquired) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"/busy/?{refused.name}")


def on_nothing() -> HttpResponse:
    return HttpResponse()


def on_something(request: HttpRequest, refused: LockNotAcquired) -> str:
    return ""


assert_type(redis_lock("order", on_conflict=on_busy)(view)(HttpRequest(), 5), HttpResponse)
assert_type(redis_lock("order", on_conflict="raise")(first)(1), int)
assert_type(redis_lock("order", on_conflict="shop.conflicts.answer")(first)(1), int)
redis_lock("order", on_conflict=on_nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
redis_lock("order", on_conflict=on_something)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
redis_lock("order", on_conflict=False)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# A call that is skipped returns None


@redis_lock("order:{pk}", on_conflict="skip", expire=5)
def skipped(pk: int, *, size: str = "M") -> list[int]:
    return [pk]


class Nightly:
    @redis_lock("nightly", on_conflict="skip")
    def run(self, day: str) -> int:
        return len(day)


assert_type(skipped(1, size="L"), list[int] | None)
assert_type(Nightly().run("monday"), int | None)
assert_type(redis_lock(bare, key="order:{pk}", on_conflict="skip")(1), list[int] | None)
assert_type(redis_lock(key=by_arguments, on_conflict="skip")(first)(1), int | None)

skipped("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Nightly().run(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
redis_lock("order", on_conflict="skip", colour="red")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def awaits_skipped() -> None:
    assert_type(await redis_lock(coroutine, on_conflict="skip")(1), list[int] | None)
