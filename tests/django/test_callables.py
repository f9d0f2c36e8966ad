"""Callables that can be decorated, beside other decorators: methods, objects, partials, commands, tasks."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
from typing import Any

import pytest
from django.core.management import BaseCommand, call_command

from django_redis_locks import LockNotAcquired, current_grant, redis_lock
from tests.django.helpers import held_elsewhere

try:
    from django.tasks import default_task_backend, task
except ImportError:  # Django 5.2
    task = None


def key_now() -> str:
    return current_grant().key


@redis_lock("by name")
def by_name() -> str:
    """At the top of a module."""
    return key_now()


@redis_lock("by name")
async def aby_name() -> str:
    return key_now()


class Order:
    def __init__(self, pk: int) -> None:
        self.pk = pk

    @redis_lock("order:{self.pk}:{part}")
    def ship(self, part: str = "all") -> str:
        return key_now()

    ship_half = functools.partialmethod(ship, part="half")

    @redis_lock("order:{self.pk}")
    async def aship(self) -> str:
        return key_now()

    @functools.cached_property
    @redis_lock("total:{self.pk}")
    def total(self) -> str:
        return key_now()

    @property
    @redis_lock("price:{self.pk}")
    def price(self) -> str:
        return key_now()


class Special(Order):
    def ship(self, part: str = "all") -> str:
        return "special " + super().ship(part)


class Work:
    @redis_lock("call:{x}")
    def __call__(self, x: int) -> str:
        return key_now()


class AsyncWork:
    """asyncio doesn't know that a call of it is to be awaited."""

    async def __call__(self, x: int) -> str:
        return key_now()


def test_decorated_function_is_bound_as_a_method() -> None:
    """Of an instance, of the class, of a subclass that calls super(), below property, cached_property and
    partialmethod, whose arguments are in the key; not where it is set on an instance."""
    order: Any = Order(5)
    assert order.ship.__self__ is order
    assert order.ship() == Order.ship(order) == "order:5:all"
    assert Special(5).ship("a") == "special order:5:a"
    assert asyncio.run(order.aship()) == "order:5"
    assert (order.total, order.price, order.ship_half()) == ("total:5", "price:5", "order:5:half")
    order.work = by_name
    assert order.work() == "by name"
    bound = Order(7).ship.__wrapped__.__get__(Order(7))  # type: ignore[attr-defined]
    assert redis_lock("bound:{self.pk}:{part}")(bound)("x") == "bound:7:x"


def test_object_or_its_call_method_may_be_decorated() -> None:
    """One with an async call becomes a coroutine function; a builtin has a signature."""
    assert Work()(5) == "call:5"
    decorated = redis_lock("object:{x}")(AsyncWork())
    assert inspect.iscoroutinefunction(decorated)
    assert asyncio.run(decorated(5)) == "object:5"
    partial = redis_lock("object:{x}")(functools.partial(AsyncWork(), 6))
    assert asyncio.run(partial()) == "object:6"
    assert redis_lock("sorted:{reverse}")(sorted)([2, 1]) == [1, 2]  # type: ignore[arg-type]


def test_arguments_of_a_partial_are_in_the_key() -> None:
    def work(a: int, b: int) -> str:
        return key_now()

    assert redis_lock("{a}:{b}")(functools.partial(work, 1))(2) == "1:2"
    assert redis_lock("{a}:{b}")(functools.partial(work, b=2))(1) == "1:2"
    assert functools.partial(redis_lock("{a}:{b}")(work), 1)(2) == "1:2"


def test_decorated_function_pickles_and_copies_by_name() -> None:
    """For pools of processes. A bound one pickles with its object."""
    for function in (by_name, aby_name, Order.ship, Order.aship):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
    assert pickle.loads(pickle.dumps(Order(5).ship))("x") == "order:5:x"


class Command(BaseCommand):
    """A management command: its options are `**options`."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("year", type=int)
        parser.add_argument("--shop", default="main")

    @redis_lock("close:{year}:{options[shop]}")
    def handle(self, *args: Any, **options: Any) -> str:
        return key_now()


def test_arguments_of_a_command_are_in_the_key() -> None:
    """A second one at the same time is refused."""
    assert call_command(Command(), 2031) == "close:2031:main"
    assert call_command(Command(), "2031", "--shop", "a:b") == "close:2031:a%3Ab"
    with held_elsewhere("close:2031:main"):
        with pytest.raises(LockNotAcquired):
            call_command(Command(), 2031)
        assert call_command(Command(), 2032) == "close:2032:main"


if task is not None:

    @task
    @redis_lock("report:{year}")
    def build_report(year: int) -> str:
        return key_now()

    @task(takes_context=True)
    @redis_lock("report:{context.attempt}:{year}")
    def build_with_context(context: Any, year: int) -> str:
        return key_now()

    @task
    @redis_lock("report:{year}")
    async def abuild_report(year: int) -> str:
        return key_now()


@pytest.mark.skipif(task is None, reason="django.tasks came with Django 6.0")
class TestTasks:
    @pytest.fixture(autouse=True)
    def at_once(self, settings: Any) -> None:
        settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}

    def test_lock_below_task_is_held_while_the_task_runs(self) -> None:
        """[D46] With context and async too."""
        assert build_report.enqueue(2031).return_value == "report:2031"
        assert build_with_context.enqueue(year=2031).return_value == "report:1:2031"
        assert abuild_report.enqueue(2031).return_value == "report:2031"

    def test_task_whose_lock_is_busy_fails_with_LockNotAcquired(self) -> None:
        with held_elsewhere("report:2031"):
            result = build_report.enqueue(2031)
        assert result.errors[0].exception_class is LockNotAcquired
        assert default_task_backend.alias == "default"

    @pytest.mark.parametrize("decorate", [redis_lock, redis_lock("report:{year}")])
    def test_lock_above_task_raises_TypeError(self, decorate: Any) -> None:
        """[D46] It would hold while the task is queued, and hide `enqueue`."""
        with pytest.raises(TypeError, match="@redis_lock goes below the task decorator of"):
            decorate(build_report)
