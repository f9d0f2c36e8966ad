"""The names that the examples of howto/locks.md, fencing.md, operations.md, testing.md and of the reference need, and the
checks after them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import signal
import unittest
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.http import HttpResponse
from django.test import TestCase, override_settings

from django_redis_locks import LockLost, StaleGrant, diagnosis, locks, redis_lock, signals
from tests.docs.examples import Names, after, after_each, get, given, hold_elsewhere, problems_of
from tests.docs.pages import BLOCKS, public, rows
from tests.probes.engine import report_losses


@given("howto/migrating:both")
def _() -> Names:
    return {"client": SimpleNamespace(lock=lambda name, timeout: contextlib.nullcontext())}


@given("howto/traces:spans")
def _() -> Names:
    """OpenTelemetry isn't installed."""
    opentelemetry: Any = ModuleType("opentelemetry")
    span = SimpleNamespace(events=[], add_event=lambda name, about: span.events.append((name, about)))
    opentelemetry.trace = SimpleNamespace(get_current_span=lambda: span)
    return {"opentelemetry": opentelemetry}


@after("howto/traces:spans")
def _(names: Names) -> None:
    """[N3] Locks are in the span of their thread."""
    with locks.lock("order:42"):
        ((name, about),) = names["trace"].get_current_span().events
    assert (name, about["lock.name"]) == ("Acquired", "order")


@given("howto/locks:fence")
def _() -> Names:
    class Account(models.Model):
        balance = models.IntegerField()
        fence = models.BigIntegerField(default=0)

        class Meta:
            app_label = "shop"
            db_table = "account"

        def __str__(self) -> str:
            return f"{self.balance}, fence {self.fence}"

    apps.all_models["shop"].clear()
    apps.clear_cache()
    shop: Any = ModuleType("shop.models")
    shop.Account = Account
    return {"shop.models": shop}


@after("howto/locks:fence")
def _(names: Names) -> None:
    account = names["Account"].objects.get(pk=1)
    assert (account.balance, account.fence) == (90, names["grant"].fence)
    sql = next(block.code for block in BLOCKS if block.page.name == "locks.md" and block.language == "sql")
    with connection.cursor() as cursor:
        for fence, rows in ((account.fence, 1), (account.fence - 1, 0)):
            cursor.execute(sql.replace(":fence", "%(fence)s"), {"fence": fence})
            assert cursor.rowcount == rows


@after("howto/fencing:model")
def _(names: Names) -> None:
    account = names["Account"]
    with connection.schema_editor() as editor:
        editor.create_model(account)
    try:
        account(pk=1, balance=100).save()
        names["withdraw"](1, 10)
        names["pay_interest"](1)
        row = account.objects.get()
        assert row.balance == 91
        assert row.fence > 10**15
        with locks.lock("account:1"):
            account.objects.update(fence=models.F("fence") + 1)
            with pytest.raises(StaleGrant):
                row.save()
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(account)


@after("reference/api:diagnosis")
def _(names: Names) -> None:
    assert json.loads(names["healthy"](get()).content)["locks"] == "master"
    facts, counter = (
        [field.name for field in dataclasses.fields(value)] for value in (diagnosis.facts(), diagnosis.fences()[0])
    )
    of_facts, of_fences = (cells[1] for cells in rows("reference/api.md", first=r"(facts|fences)\(.*\)").values())
    assert set(facts) - {"database"} <= set(re.findall(r"`([\w-]+)`", of_facts))
    assert f"FenceCounter({', '.join(counter)})" in of_fences
    down = "redis://127.0.0.1:1/0"
    with override_settings(REDIS_LOCKS={"default": {"LOCATION": down}}):
        assert names["healthy"](get()).status_code == 503


@after("howto/operations:signals")
def _(names: Names) -> None:
    with pytest.raises(LockLost), locks.lock("order:42"):
        locks.lock("order:42").force_release()
    report_losses()
    signals.lock_lost.disconnect(names["page_somebody"])
    assert names["lost"] == ["order was lost after 0 s: taken"]


@given("howto/operations:stuck")
def _() -> Names:
    return {"somebody": hold_elsewhere("order:42")}


@after("howto/operations:stuck")
def _(names: Names) -> None:
    assert not names["lock"].locked()


@after(
    "howto/operations:cluster",
    "howto/operations:redlock",
    "howto/operations:sentinel",
    "howto/zookeeper:zookeeper",
    "howto/testing:settings",
    "howto/testing:xdist",
    "reference/settings:settings",
    "reference/settings:names",
)
def _(names: Names) -> None:
    for entry in names["REDIS_LOCKS"].values():
        assert problems_of(REDIS_LOCKS={"default": entry}) == []


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


@after("howto/locks:leader")
def _(names: Names) -> None:
    names["Command"]().handle()
    assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is not signal.SIG_DFL
    assert not locks.lock("scheduler").locked()


@after("howto/testing:forgotten")
def _(names: Names) -> None:
    passes(names["ImportTest"])
    passes(names["ImportTest"], left="forgotten")


@after("howto/testing:refused-async")
def _(names: Names) -> None:
    async def work() -> None: ...

    asyncio.run(names["test_a_second_import_is_refused"](redis_lock(key="import")(work)))


@after("howto/testing:conftest")
def _(names: Names) -> None:
    (plugin,) = names["pytest_plugins"]
    fixtures = {name for name in rows("howto/testing.md", first=r"\w+_(locks|left|clock)") if "assert" not in name}
    import_module(plugin)
    assert fixtures - {"override_locks", "capture_locks"} == set(public(rf"{plugin}\.(\w+): pytest fixture"))


@after("howto/testing:clock")
def _(names: Names) -> None:
    names["test_a_crashed_import_can_be_repeated"]()
    names["test_the_import_gives_up_after_ten_minutes"]()


after_each(
    {
        "howto/locks:rlock": lambda names: names["outer"]() > 10**15,
        "howto/locks:fair": lambda names: names["print_document"]("a") == "A",
        "howto/locks:rwlock": lambda names: (
            names["change_prices"]({}, {"apple": 3}) > 10**15 and names["show_prices"]({"apple": 3}) == ["apple"]
        ),
        "howto/locks:downgrade": lambda names: names["publish"]({}) == {"apple": 3},
        "howto/locks:hand-over": lambda names: not locks.lock("upload:9").locked(),
        "howto/locks:detach": lambda names: not locks.lock("export:7").locked() and names["text"].startswith("lock1."),
        "howto/locks:exit": lambda names: callable(names["handle"]),
        "howto/locks:leader-callbacks": lambda names: not names["leader"].leading,
        "howto/locks:parent": lambda names: names["answer"] == "indexed",
        "howto/locks:child-task": lambda names: names["answer"] == "refused",
        "howto/locks:open": lambda names: names["grant"].protected,
        "howto/testing:testcase": lambda names: passes(names["CheckoutTest"]),
        "howto/testing:refused": lambda names: names["test_a_second_checkout_is_refused"](shop_client()),
        "howto/testing:captured": lambda names: names["test_a_checkout_takes_one_lock"](shop_client()),
        "howto/testing:commit": lambda names: names["test_the_order_is_locked_until_commit"](
            redis_lock(key="order:{pk}")(lambda pk: None)
        ),
        "howto/testing:contention": lambda names: names["test_no_sale_is_lost"](),
        "howto/testing:clock-async": lambda names: asyncio.run(names["test_a_task_waits_for_its_turn"]()),
        "howto/testing:freezegun": lambda names: names["test_a_crashed_import_can_be_repeated"](),
        "howto/testing:lost": lambda names: names["test_the_import_stops_when_its_lock_is_lost"](),
        "howto/testing:down": lambda names: names["test_the_shop_is_closed_while_redis_is_down"](
            shop_client(), names["settings"]
        ),
    }
)
