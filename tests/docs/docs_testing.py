"""What the examples of howto/testing.md take for granted, and what must hold after them."""

from __future__ import annotations

import asyncio
import unittest
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from django.http import HttpResponse
from django.test import TestCase

from django_redis_locks import locks, redis_lock
from tests.docs.examples import Names, after, get, given
from tests.docs.pages import public, rows


def shop_client() -> Any:
    """A test client for a shop with one view."""
    view = redis_lock(key="checkout:1")(lambda request: HttpResponse())
    return SimpleNamespace(get=lambda url: view(get()))


def passes(case: type[TestCase], *, left: str = "") -> None:
    """Run the tests of a class, one of which leaves a lock, and a test that is added to it."""

    def test_more(self: TestCase) -> None:
        assert locks["default"].engine.backend.identity.startswith("memory:tests")
        if left:
            locks.lock(left).acquire()

    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(type(case.__name__, (case,), {"test_more": test_more})).run(found)
    assert found.testsRun > 0
    failures = [text for _, text in [*found.failures, *found.errors]]
    assert len(failures) == bool(left), failures
    assert all(left in text for text in failures)


@after("howto/testing:testcase")
def _(names: Names) -> None:
    passes(names["CheckoutTest"])


@after("howto/testing:forgotten")
def _(names: Names) -> None:
    passes(names["ImportTest"])
    passes(names["ImportTest"], left="forgotten")


@after("howto/testing:refused")
def _(names: Names) -> None:
    names["test_a_second_checkout_is_refused"](shop_client())


@after("howto/testing:refused-async")
def _(names: Names) -> None:
    async def work() -> None: ...

    asyncio.run(names["test_a_second_import_is_refused"](redis_lock(key="import")(work)))


@after("howto/testing:captured")
def _(names: Names) -> None:
    names["test_a_checkout_takes_one_lock"](shop_client())


@after("howto/testing:commit")
def _(names: Names) -> None:
    names["test_the_order_is_locked_until_commit"](redis_lock(key="order:{pk}")(lambda pk: None))


@after("howto/testing:conftest")
def _(names: Names) -> None:
    (plugin,) = names["pytest_plugins"]
    fixtures = {name for name in rows("howto/testing.md", first=r"\w+_(locks|left|clock)") if "assert" not in name}
    import_module(plugin)
    assert fixtures - {"override_locks", "capture_locks"} == set(public(rf"{plugin}\.(\w+): pytest fixture"))


@after("howto/testing:contention")
def _(names: Names) -> None:
    names["test_no_sale_is_lost"]()


@after("howto/testing:clock")
def _(names: Names) -> None:
    names["test_a_crashed_import_can_be_repeated"]()
    names["test_the_import_gives_up_after_ten_minutes"]()


@after("howto/testing:clock-async")
def _(names: Names) -> None:
    asyncio.run(names["test_a_task_waits_for_its_turn"]())


@after("howto/testing:freezegun")
def _(names: Names) -> None:
    names["test_a_crashed_import_can_be_repeated"]()


@after("howto/testing:lost")
def _(names: Names) -> None:
    names["test_the_import_stops_when_its_lock_is_lost"]()


@given("howto/testing:down")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/testing:down")
def _(names: Names) -> None:
    names["test_the_shop_is_closed_while_redis_is_down"](shop_client(), names["settings"])
