"""The documentation is right: its code runs, its links lead somewhere, its tables are complete.

A Python block is run if a comment such as `<!-- test: name -->` stands right above it, and every block has one. Blocks of one
name and page share their namespace, one after the other. A name with a dot is a module: it can be imported by the next
blocks. What a block takes for granted is in `GIVEN`, what must hold afterwards in `AFTER`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import dataclasses
import inspect
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.core.handlers.base import BaseHandler
from django.core.management import load_command_class
from django.db import connection, connections, models
from django.http import HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory, TestCase, override_settings
from django.urls import path
from django.utils.asyncio import async_unsafe
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string
from rest_framework.exceptions import ErrorDetail

import django_redis_locks
from django_redis_locks import (
    LockLost,
    LockNotAcquired,
    StaleGrant,
    cache,
    checks,
    conf,
    current_grant,
    locks,
    redis_lock,
    signals,
    testing,
)
from django_redis_locks.answers import detail_of
from django_redis_locks.backends.memory import MemoryBackend
from django_redis_locks.backends.redis import RedisBackend
from django_redis_locks.backends.redis.refusals import HINTS
from django_redis_locks.backends.redis.scripts import script
from django_redis_locks.cache import Job, get_or_load, invalidate, options
from django_redis_locks.cache.decorated import Cached
from django_redis_locks.cache.fences import everything
from django_redis_locks.cache.options import LoadOptions
from django_redis_locks.cache.roads import road_of
from django_redis_locks.cache.visits import Terms
from django_redis_locks.contrib import drf
from django_redis_locks.core.facts import Facts, FenceCounter
from tests import docs_caching, docs_celery
from tests.docs_caching import (
    test_counters_are_all_in_the_table,  # noqa: F401 - it runs here
    test_options_of_a_load_are_all_in_the_table,  # noqa: F401
)
from tests.docs_celery import test_options_are_all_in_the_table  # noqa: F401 - it runs here
from tests.probes.tuning import Tune
from tools.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
MEMORY = f"{MemoryBackend.__module__}.{MemoryBackend.__qualname__}"

Names = dict[str, Any]


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    name: str | None
    code: str


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    fences = r"^(?:[ ]*<!-- test: (?P<name>[\w.-]+) -->\n)?(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<code>.*?)^[ ]*```$"
    for match in re.finditer(fences, text, re.MULTILINE | re.DOTALL):
        line = text[: match.start("code")].count("\n")
        yield Block(page, line, match["language"], match["name"], textwrap.dedent(match["code"]))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def page_id(page: Path) -> str:
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).with_suffix(""))


def stories() -> dict[str, list[Block]]:
    found: dict[str, list[Block]] = {}
    for block in BLOCKS:
        if block.language == "python" and block.name is not None:
            name = block.name.partition(".")[0]
            found.setdefault(f"{page_id(block.page)}:{name}", []).append(block)
    return found


STORIES = stories()
"""Blocks that belong together, by page and name."""

GIVEN: dict[str, Callable[[], Names]] = {**docs_caching.GIVEN, **docs_celery.GIVEN}
AFTER: dict[str, Callable[[Names], object]] = {**docs_caching.AFTER, **docs_celery.AFTER}


def given(story: str) -> Callable[[Callable[[], Names]], Callable[[], Names]]:
    return lambda function: GIVEN.setdefault(story, function)


def after(story: str) -> Callable[[Callable[[Names], object]], Callable[[Names], object]]:
    return lambda function: AFTER.setdefault(story, function)


# Running


@pytest.fixture
def memory(settings: Any, request: pytest.FixtureRequest) -> None:
    settings.ROOT_URLCONF = "mysite.urls"
    settings.REDIS_LOCKS = {
        alias: {"BACKEND": MEMORY, "LOCATION": request.node.nodeid} for alias in ("default", "payments")
    }


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """`modules(name)` makes a module that can be imported until the test ends, with the packages that it is in."""

    def make(name: str) -> ModuleType:
        package, _, last = name.rpartition(".")
        module = ModuleType(name)
        module.__package__ = package or name
        if package:
            setattr(sys.modules.get(package) or make(package), last, module)
        else:
            module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


def run(block: Block, names: Names) -> None:
    """Run a block, with `await` at its top level if it likes; tracebacks name the page and the line."""
    code = compile("\n" * block.line + block.code, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


ALONE = {"howto/locks:no-django"}
"""In a process of their own."""

DATABASE = {
    story: [pytest.mark.django_db(transaction=True)]
    for story in (
        "howto/testing:commit",
        "howto/testing:testcase",
        "howto/testing:forgotten",
        "howto/views:outlives",
        "howto/views:ask-before-commit",
        "howto/views:hold",
        "howto/fencing:model",
        *docs_caching.DATABASE,
        *docs_celery.DATABASE,
    )
}


@pytest.mark.parametrize(
    "story", [pytest.param(story, marks=DATABASE.get(story, ())) for story in STORIES if story not in ALONE]
)
@pytest.mark.usefixtures("memory")
def test_code_runs(story: str, modules: Callable[[str], ModuleType], request: pytest.FixtureRequest) -> None:
    names: Names = {"__name__": "__main__"}
    modules("mysite.urls").urlpatterns = []
    for key, value in GIVEN.get(story, dict)().items():
        if isinstance(value, ModuleType):
            vars(modules(key)).update(vars(value))
        elif key == "fixtures":
            names.update({name: request.getfixturevalue(name) for name in value})
        else:
            names[key] = value
    for block in STORIES[story]:
        assert block.name is not None
        if "." in block.name:
            module = modules(block.name)
            vars(module).update(names, __name__=block.name)
            run(block, vars(module))
            names[block.name.rpartition(".")[2]] = module
        else:
            run(block, names)
    AFTER.get(story, lambda names: None)(names)
    names.clear()
    assert current_grant() is None


def test_every_python_block_is_run() -> None:
    left_out = [
        f"{page_id(block.page)}:{block.line}" for block in BLOCKS if block.language == "python" and not block.name
    ]
    assert [place for place in left_out if not place.startswith("README")] == []
    assert set(GIVEN) | set(AFTER) <= set(STORIES)


# Helpers


def hold_elsewhere(key: str) -> Any:
    """Somebody else's grant."""
    with ThreadPoolExecutor(1) as somebody:
        return somebody.submit(locks.lock(key).acquire).result()


def get(**headers: str) -> Any:
    return RequestFactory().get("/", headers=headers)


def post(user: Any = None) -> Any:
    request = RequestFactory().post("/")
    request.user = user
    return request


class User:
    def __init__(self, pk: int | None) -> None:
        self.pk = pk
        self.is_authenticated = pk is not None


def is_one_lock(call: Callable[[], HttpResponse], key: str) -> None:
    """The view is served, but not while somebody has that lock."""
    assert call().status_code == 200
    with hold_elsewhere(key):
        response = call()
        assert response.status_code == 409
        assert 1 <= int(response["Retry-After"]) <= 60
        assert response["Cache-Control"] == "no-store"
    assert call().status_code == 200


# What blocks need, and what must hold after them


@given("quickstart:mysite")
def _() -> Names:
    return {"INSTALLED_APPS": []}


@after("quickstart:mysite")
def _(names: Names) -> None:
    assert names["settings"].INSTALLED_APPS == ["django_redis_locks"]
    assert [*conf.problems("default", names["settings"].REDIS_LOCKS["default"])] == []
    client = Client()
    is_one_lock(lambda: client.get("/checkout/1/"), "checkout:1")
    with hold_elsewhere("checkout:1"):
        refused = client.get("/checkout/1/")
        assert client.get("/checkout/2/").status_code == 200
    shown = next(block.code for block in BLOCKS if block.page.name == "quickstart.md" and "curl" in block.code)
    assert f"HTTP/1.1 409 {refused.reason_phrase}\n" in shown
    for header in ("Content-Type", "Retry-After", "Cache-Control"):
        assert f"{header}: {refused[header]}\n" in shown
    assert shown.endswith(f"\n\n{refused.text}")


@after("quickstart:shell")
def _(names: Names) -> None:
    assert names["grant"].key == "checkout:1"
    assert not locks.lock("checkout:1").locked()


@after("quickstart:function")
def _(names: Names) -> None:
    charged: list[int] = []

    def charge(fence: int) -> None:
        charged.append(fence)

    names["settle"](SimpleNamespace(pk=1, charge=charge))
    assert charged[0] > 10**15


@after("quickstart:coroutine")
def _(names: Names) -> None:
    owned: list[bool] = []

    async def charge() -> None:
        owned.append(locks.lock("order:1").owned())

    asyncio.run(names["settle"](SimpleNamespace(pk=1, acharge=charge)))
    assert owned == [True]


@after("howto/views:function-view")
def _(names: Names) -> None:
    is_one_lock(lambda: names["checkout"](get(), product_id=1), "checkout:1")


@after("howto/views:keys")
def _(names: Names) -> None:
    key = names["invoice"](User(3), ["a:b"], "ada@example.com")
    assert re.fullmatch(r"invoice:3:a%3Ab:[0-9a-f]{32}:", key)


@after("howto/views:key-callable")
def _(names: Names) -> None:
    assert names["transfer"](9, b=4) == "transfer:4:9"


@after("howto/views:class-based")
def _(names: Names) -> None:
    view = names["OrderView"].as_view()
    is_one_lock(lambda: view(get(), pk=5), "order:5")
    is_one_lock(lambda: view(post(), pk=5), "order:5")


@after("howto/views:one-method")
def _(names: Names) -> None:
    view = names["OrderView"].as_view()
    is_one_lock(lambda: view(post(), pk=5), "order:5")
    with hold_elsewhere("order:5"):
        assert view(get(), pk=5).status_code == 200


@after("howto/views:methods")
def _(names: Names) -> None:
    with hold_elsewhere("account:7"), pytest.raises(django_redis_locks.LockNotAcquired):
        names["Account"](7).close()
    assert names["Account"].close_all() == "all closed"


@after("howto/views:async-view")
def _(names: Names) -> None:
    @async_unsafe
    def ask_database() -> User:
        return User(8)

    async def user() -> User:
        return User(8)

    def call() -> HttpResponse:
        request: Any = AsyncRequestFactory().get("/")
        request.user, request.auser = SimpleLazyObject(ask_database), user
        return asyncio.run(names["basket"](request))

    is_one_lock(call, "basket:8")


@after("howto/views:async-key")
def _(names: Names) -> None:
    async def team() -> int:
        return 3

    async def user() -> Any:
        return SimpleNamespace(ateam=team)

    def call() -> HttpResponse:
        request: Any = AsyncRequestFactory().get("/")
        request.auser = user
        return asyncio.run(names["basket"](request))

    is_one_lock(call, "team:3")


@after("howto/views:waiting")
def _(names: Names) -> None:
    assert names["report"](None, 2031) is None


@after("howto/views:methods")
def _(names: Names) -> None:
    view = names["OrderView"].as_view()
    is_one_lock(lambda: view(post(), pk=5), "order:5")
    with hold_elsewhere("order:5"):
        assert view(get(), pk=5).status_code == 200


@after("howto/views:condition")
def _(names: Names) -> None:
    with hold_elsewhere("payout"):
        assert names["payout"](5, dry_run=True) == "5 paid"
        with pytest.raises(django_redis_locks.LockNotAcquired):
            names["payout"](5)


@after("howto/views:cool-down")
def _(names: Names) -> None:
    sent = [names["send_code"](RequestFactory().post("/", {"phone": "555"})) for _ in range(2)]
    assert [answer.status_code for answer in sent] == [200, 429]
    assert int(sent[1]["Retry-After"]) in (59, 60)


@after("howto/views:status")
def _(names: Names) -> None:
    with hold_elsewhere("checkout:1"):
        refused = names["checkout"](get(), product_id=1)
    assert refused.status_code == 423
    assert "Retry-After" not in refused


@after("howto/views:inside")
def _(names: Names) -> None:
    assert names["import_rows"](get(), pk=1).text == "5 s were left"


@after("howto/views:order")
def _(names: Names) -> None:
    assert names["basket"](get()).status_code == 405
    anonymous = post(User(None))
    anonymous.user.is_authenticated = False
    with hold_elsewhere("basket:8"):
        assert names["basket"](anonymous).status_code == 302
    is_one_lock(lambda: names["basket"](post(User(8))), "basket:8")


@given("howto/views:task")
def _() -> Names:
    celery: Any = ModuleType("celery")

    def shared_task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
        return lambda function: SimpleNamespace(run=function, apply_async=print, options=options)

    celery.shared_task = shared_task
    return {"celery": celery}


@after("howto/views:task")
def _(names: Names) -> None:
    task = names["build_report"]
    assert task.run(2031) == "report of 2031"
    with hold_elsewhere("report:2031"), pytest.raises(task.options["autoretry_for"]):
        task.run(year=2031)
    with pytest.raises(TypeError, match="below the task decorator"):
        redis_lock(key="report:{year}")(task)


@after("howto/views:outlives")
def _(names: Names) -> None:
    assert in_transaction(names["pay"], pk=1) == ["lock_acquired", "BEGIN", "COMMIT", "lock_released"]
    booked = ["BEGIN", "lock_acquired", "lock_acquired", "COMMIT", "lock_released"]
    assert in_transaction(names["pay_by_card"], pk=1) == booked


@after("howto/views:ask-before-commit")
def _(names: Names) -> None:
    assert in_transaction(names["pay"], pk=1) == ["lock_acquired", "BEGIN", "COMMIT", "lock_released"]
    names["current_grant"] = lambda: SimpleNamespace(ensure_held=lambda: fail(LockLost("lost")))
    with pytest.raises(LockLost):
        in_transaction(names["pay"], pk=1)


def fail(error: Exception) -> None:
    raise error


def in_transaction(view: Callable[..., HttpResponse], **kwargs: Any) -> list[str]:
    """What a request under ATOMIC_REQUESTS does with its transaction and its locks, in order."""
    found: list[str] = []
    begin, commit = connection.set_autocommit, connection.commit

    def set_autocommit(autocommit: bool, *args: Any, **more: Any) -> None:
        if not autocommit:
            found.append("BEGIN")
        begin(autocommit, *args, **more)

    def commit_it() -> None:
        commit()
        found.append("COMMIT")

    def acquired(**_: Any) -> None:
        found.append("lock_acquired")

    def released(**_: Any) -> None:
        found.append("lock_released")

    request = get()
    request.resolver_match = SimpleNamespace(func=view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections["default"], "set_autocommit", set_autocommit)
        patch.setattr(connections["default"], "commit", commit_it)
        patch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
        signals.lock_acquired.connect(acquired)
        signals.lock_released.connect(released)
        assert BaseHandler().make_view_atomic(view)(request, **kwargs).status_code == 200
    return found


@after("howto/views:hold")
def _(names: Names) -> None:
    response = names["export"](get())
    assert locks.lock("export").locked()
    assert response.getvalue() == b"1;2;3"
    response.close()
    assert not locks.lock("export").locked()


@given("howto/locks:fence")
def _() -> Names:
    from django.apps import apps

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
    return {"shop.models": shop, "fixtures": ["accounts"]}


@pytest.fixture
def accounts(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE account (id integer PRIMARY KEY, balance integer, fence bigint)")
        cursor.execute("INSERT INTO account VALUES (1, 100, 0)")


@after("howto/locks:fence")
def _(names: Names) -> None:
    account = names["Account"].objects.get(pk=1)
    assert (account.balance, account.fence) == (90, names["grant"].fence)
    sql = next(block.code for block in BLOCKS if block.page.name == "locks.md" and block.language == "sql")
    with connection.cursor() as cursor:
        for fence, rows in ((account.fence, 1), (account.fence - 1, 0)):
            cursor.execute(sql.replace(":fence", "%(fence)s"), {"fence": fence})
            assert cursor.rowcount == rows


@given("howto/fencing:model")
def _() -> Names:
    return {"fixtures": ["bank"]}


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app, for the model that the page defines."""
    from django.apps import apps

    monkeypatch.setattr(apps, "get_containing_app_config", lambda module: SimpleNamespace(label="bank"))
    apps.all_models["bank"].clear()


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


@after("howto/locks:rlock")
def _(names: Names) -> None:
    assert names["outer"]() > 10**15


@after("howto/locks:hand-over")
def _(names: Names) -> None:
    assert not locks.lock("upload:9").locked()


@after("howto/locks:child-task")
def _(names: Names) -> None:
    assert names["answer"] == "refused"


@after("howto/locks:open")
def _(names: Names) -> None:
    assert names["grant"].held


def shop_client() -> Any:
    """A test client for a shop with one view."""
    view = redis_lock(key="checkout:1")(lambda request: HttpResponse())
    return SimpleNamespace(get=lambda url: view(get()))


def passes(case: type[TestCase], *, left: str = "") -> None:
    """Run the tests of a class, one of which leaves a lock, and a test that is added to it."""

    def test_more(self: TestCase) -> None:
        assert django_redis_locks.locks["default"].engine.backend.identity.startswith("memory:tests")
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
    fixtures = {name for name in rows("howto/testing.md", first=r"\w+_(locks|left)") if "assert" not in name}
    module = import_module(plugin)
    assert fixtures - {"override_locks", "capture_locks"} == {
        name for name, value in vars(module).items() if isinstance(value, type(module.memory_locks))
    }


@after("howto/testing:contention")
def _(names: Names) -> None:
    names["test_no_sale_is_lost"]()


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


@after("reference/api:diagnosis")
def _(names: Names) -> None:
    assert json.loads(names["healthy"](get()).content)["locks"] == "master"
    facts, counter = Facts.__dataclass_fields__, FenceCounter.__dataclass_fields__
    table = rows("reference/api.md", first=r"(facts|fences)\(.*\)")
    told = [set(re.findall(r"`([\w-]+)`", cells[1])) for cells in table.values()]
    assert set(facts) - {"database"} <= told[0]
    assert f"FenceCounter({', '.join(counter)})" in " ".join(itertools.chain(*table.values()))
    down = "redis://127.0.0.1:1/0"
    with override_settings(REDIS_LOCKS={"default": {"LOCATION": down}}):
        assert names["healthy"](get()).status_code == 503


@after("howto/operations:signals")
def _(names: Names) -> None:
    with pytest.raises(LockLost), locks.lock("order:42"):
        locks.lock("order:42").force_release()
    signals.lock_lost.disconnect(names["page_somebody"])
    assert names["lost"] == ["order was lost after 0 s: taken"]


@given("howto/operations:stuck")
def _() -> Names:
    return {"somebody": hold_elsewhere("order:42")}


@after("howto/operations:stuck")
def _(names: Names) -> None:
    assert not names["lock"].locked()


@after("howto/testing:settings")
@after("howto/testing:xdist")
@after("reference/settings:settings")
@after("reference/settings:names")
def _(names: Names) -> None:
    for alias, entry in names["REDIS_LOCKS"].items():
        assert [*conf.problems(alias, entry)] == []


# Answers


@given("howto/answers:handler")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/answers:handler")
def _(names: Names) -> None:
    templates = {"shop/please_wait.html": "Wait {{ seconds }} s.", "redis_locks/409.html": THE_PAGE, "base.html": BASE}
    loaders = [("django.template.loaders.locmem.Loader", templates)]
    engine = "django.template.backends.django.DjangoTemplates"
    names["settings"].TEMPLATES = [{"BACKEND": engine, "OPTIONS": {"loaders": loaders}}]
    with hold_elsewhere("checkout:1"):
        response = names["checkout"](get(), product_id=1)
        page: Any = redis_lock("checkout:1")(lambda request: HttpResponse())(get(accept="text/html"))
    assert response.status_code == 409
    assert re.fullmatch(r"Wait (29|30) s\.", response.text)
    assert re.search(r"<p>This is being worked on.+</p>\s*<p>Try again in (29|30) seconds", page.render().text)


THE_PAGE = next(block.code for block in BLOCKS if block.language == "django")
BASE = "{% block content %}{% endblock %}"


@given("howto/answers:shop")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/answers:shop")
def _(names: Names) -> None:
    assert [*conf.problems("default", names["REDIS_LOCKS"]["default"])] == []
    assert [*conf.unreachable("default", names["REDIS_LOCKS"]["default"])] == []
    names["settings"].REDIS_LOCKS = {
        "default": {**names["REDIS_LOCKS"]["default"], "BACKEND": MEMORY, "LOCATION": None}
    }
    view = redis_lock("order")(lambda request: HttpResponse())
    report = redis_lock("report:{year}")(lambda request, year: HttpResponse())
    with hold_elsewhere("order"), hold_elsewhere("report:2031"):
        assert view(RequestFactory().get("/shop/")).status_code == 302
        assert view(get()).status_code == 409
        assert report(RequestFactory().get("/shop/"), 2031).status_code == 409


@after("howto/answers:skip")
def _(names: Names) -> None:
    assert names["done"] == 42
    with hold_elsewhere("nightly"):
        assert names["nightly"]() is None


@given("howto/answers:middleware")
def _() -> Names:
    return {"fixtures": ["settings"]}


@after("howto/answers:middleware")
def _(names: Names) -> None:
    names["settings"].MIDDLEWARE = names["MIDDLEWARE"]

    def service(request: Any) -> HttpResponse:
        with locks.lock("order", wait=0):
            return HttpResponse()

    sys.modules["mysite.urls"].urlpatterns = [path("service/", service)]
    with hold_elsewhere("order"):
        assert Client().get("/service/").status_code == 409
    assert Client().get("/service/").status_code == 200


@after("howto/answers:own-answer")
def _(names: Names) -> None:
    assert names["checkout"](None, 1).url == "/paid/"
    with hold_elsewhere("checkout:1"):
        assert names["checkout"](None, 1).url == "/please-wait/"


@after("howto/rest-framework:views")
def _(names: Names) -> None:
    order, pay = names["OrderView"].as_view(), names["OrderViewSet"].as_view({"post": "pay"})

    def request() -> Any:
        found = post(User(8))
        found.user.is_active = found._dont_enforce_csrf_checks = True
        return found

    for view in (order, pay):
        assert view(request(), pk=5).status_code == 200
        with hold_elsewhere("order:5"):
            assert view(request(), pk=5).data == {"detail": ErrorDetail(detail_of(LockNotAcquired()), "locked")}
    with hold_elsewhere("basket:8"):
        assert names["basket"](request()).status_code == 409


@after("howto/rest-framework:settings")
def _(names: Names) -> None:
    assert import_string(names["REST_FRAMEWORK"]["EXCEPTION_HANDLER"]) is drf.exception_handler


@after("howto/rest-framework:own-handler")
def _(names: Names) -> None:
    response = names["exception_handler"](LockNotAcquired(retry_after=5), {})
    assert (response.data["status"], response["Retry-After"]) == (409, "5")
    assert names["exception_handler"](LookupError(), {}) is None


def test_the_answer_for_json_is_as_shown(memory: None) -> None:
    (shown,) = (json.loads(block.code) for block in BLOCKS if block.name == "problem")
    view = redis_lock(key="checkout")(lambda request: HttpResponse())
    with hold_elsewhere("checkout"):
        response = view(get(accept="application/json"))
    assert response["Content-Type"] == "application/problem+json"
    assert json.loads(response.content) == shown


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^[ ]*```.*?^[ ]*```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        numbered = (f"{slug}-{number}" for number in itertools.count(1))
        found.add(next(name for name in itertools.chain([slug], numbered) if name not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^[ ]*```.*?^[ ]*```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: {target.name} has no such heading"


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", (DOCS / "README.md").read_text()))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - linked == {"README.md"}


# Tables


def rows(page: str, *, first: str) -> dict[str, list[str]]:
    """The tables of a page: the cells of each row, by the code in its first cell, if it matches."""
    found: dict[str, list[str]] = {}
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for code in re.findall(r"`([^`]+)`", cells[0]):
                if re.fullmatch(first, code):
                    found.setdefault(code, cells)
    return found


def test_settings_name_every_key_and_its_default() -> None:
    table = rows("reference/settings.md", first="[A-Z_]+")
    assert set(conf.DEFAULTS) | set(conf.PER_NAME) <= set(table)
    for key, default in conf.DEFAULTS.items():
        assert ast.literal_eval(table[key][2].strip("`")) == default, key
    text = (DOCS / "reference/settings.md").read_text()
    for name in itertools.chain(*conf.LATER.values()):
        assert f"`{name}`" in text or f'`"{name}"`' in text, name


def test_every_check_is_on_its_page() -> None:
    """Each id once, with what it says and what to do."""
    package = Path(django_redis_locks.__file__).parent
    used = {id for path in package.rglob("*.py") for id in re.findall(r"[\".]([EWI]\d{3})\b", path.read_text())}
    table = rows("reference/checks.md", first=r"[EWI]\d{3}")
    assert set(table) == used
    assert all(says and do for _, says, do in table.values())
    page = (DOCS / "reference/checks.md").read_text()
    assert all(len(re.findall(rf"^\| `{id}` \|", page, re.MULTILINE)) == 1 for id in used)
    assert f"`{checks.TAG}.`" in page


def test_commands_name_every_verb_and_option() -> None:
    text = (DOCS / "reference/commands.md").read_text()
    parser = load_command_class("django_redis_locks", "redis_locks").create_parser("manage.py", "redis_locks")
    (verbs,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    options = rows("reference/commands.md", first=r"--.+")
    known: dict[str, set[str]] = {}
    for verb, one in verbs.items():
        assert f"`redis_locks {verb}" in text, verb
        for action in one._actions:
            if action.help != argparse.SUPPRESS and action.option_strings and "--help" not in action.option_strings:
                known.setdefault(action.option_strings[0], set()).add(verb)
    assert {option.split()[0] for option in options} == set(known)
    for option, cells in options.items():
        of = set(verbs) if cells[1] == "all" else set(re.findall(r"`([\w-]+)`", cells[1]))
        assert of == known[option.split()[0]], option


def test_testing_names_every_helper() -> None:
    table = rows("howto/testing.md", first=r"\w+\(.*\)")
    named = {call.partition("(")[0]: call for call in table}
    assert set(named) | {"Captured"} == set(testing.__all__)
    for name, call in named.items():
        parameters = list(inspect.signature(getattr(testing, name)).parameters)
        assert re.findall(r"[(,] ?\**(\w+)", call) == parameters, name


def test_api_names_everything_public() -> None:
    text = (DOCS / "reference/api.md").read_text()
    assert [name for name in django_redis_locks.__all__ if not re.search(rf"`{name}[`(]", text)] == []
    imports, *_ = (block.code for block in BLOCKS if block.page.name == "api.md" and block.language == "python")
    assert set(re.findall(r"\w+", imports.partition("import (")[2])) == set(django_redis_locks.__all__)


def test_api_names_everything_of_caches() -> None:
    text = (DOCS / "reference/api.md").read_text()
    section = text.partition("\n## Caching\n")[2].partition("\n## ")[0]
    block = next(block.code for block in BLOCKS if block.page.name == "api.md" and block.name == "caching")
    assert sorted(set(re.findall(r"\w+", block.partition("import (")[2]))) == sorted(cache.__all__)
    told = section.replace(block, "")
    assert [name for name in cache.__all__ if not re.search(rf"`[^`\n]*\b{name}\b|\b{name}  ", told)] == []
    for kind in (cache.LoadResult, cache.LoadContext, Job, Cached):
        attributes = {name for name in [*vars(kind), *getattr(kind, "__annotations__", ())] if not name.startswith("_")}
        attributes -= {"call", "stores"}  # ours
        assert [name for name in attributes if not re.search(rf"`[^`\n]*\b{name}\b", told)] == [], kind


def test_api_names_every_option_of_a_load() -> None:
    text = (DOCS / "reference/api.md").read_text().partition("### Options of a load")[2].partition("\n### ")[0]
    table = {
        name: (unit, cell) for name, unit, cell in re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", text, re.MULTILINE)
    }
    shown = docs_caching.options_of_the_table()
    assert list(table) == [field.name for field in dataclasses.fields(LoadOptions)]
    assert {name: cell for name, (_, cell) in table.items()} == shown
    words = {"refresh": options.REFRESH, "on_conflict": options.ON_CONFLICT, "store_in_atomic": options.IN_ATOMIC}
    for name, known in words.items():
        assert tuple(re.findall(r'`"(\w+)"`', table[name][0])) == known, name


def test_api_names_every_argument_of_a_load() -> None:
    """With its default; options stand in their table."""
    text = (DOCS / "reference/api.md").read_text()
    for function in (cache.get_or_load, cache.invalidate, cache.cached_page, cache.cached):
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty:
                default = (
                    json.dumps(parameter.default) if isinstance(parameter.default, str) else repr(parameter.default)
                )
                assert re.search(rf"\b{parameter.name}={re.escape(default)}", text), (function, parameter)


def test_settings_name_those_of_pages() -> None:
    package = Path(django_redis_locks.__file__).parent / "cache"
    used = {name for path in package.glob("*.py") for name in re.findall(r'"(CACHE_MIDDLEWARE_\w+)"', path.read_text())}
    table = rows("reference/settings.md", first="CACHE_MIDDLEWARE_[A-Z_]+")
    assert used == set(table) == {"CACHE_MIDDLEWARE_STALE", "CACHE_MIDDLEWARE_WAIT"}
    assert {name: float(cells[1].strip("`")) for name, cells in table.items()} == {
        "CACHE_MIDDLEWARE_STALE": Terms.stale,
        "CACHE_MIDDLEWARE_WAIT": Terms.wait,
    }


def test_api_names_every_method() -> None:
    table = rows("reference/api.md", first=r".+")
    words = set(re.findall(r"\w+", " ".join(itertools.chain(*table.values()))))
    for face in (django_redis_locks.Lock, django_redis_locks.Grant, django_redis_locks.Holder, type(locks)):
        public = {name for name, _ in inspect.getmembers(face, callable) if not name.startswith("_")}
        internal = {"acquiring", "entering", "extending", "forcing", "inspecting", "releasing", "misplaced"}
        assert public - internal - words - {"configuration"} == set(), face


def test_api_names_every_argument() -> None:
    text = (DOCS / "reference/api.md").read_text()
    for function in (locks.lock, redis_lock):
        named = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        for parameter in named:
            default = json.dumps(parameter.default) if isinstance(parameter.default, str) else repr(parameter.default)
            assert re.search(rf"\b{parameter.name}={re.escape(default)}", text), parameter


def test_operations_name_every_signal_with_its_event() -> None:
    table = rows("howto/operations.md", first=r"lock_\w+")
    assert set(table) == {name for name in vars(signals) if name.startswith("lock_")}
    for event, signal in signals._signals.items():
        (name,) = (name for name, value in vars(signals).items() if value is signal)
        _, _, fields, level, logger = table[name]
        own = [field for field in event.__slots__ if field not in ("key", "name", "alias")]
        assert re.findall(r"`(\w+)`", fields) == own
        assert level == {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}[event.level]
        assert logger == f"`django_redis_locks.{event.kind}`"


SCRIPT = r"(lock|queue|index|record|fence|load)/\w+"


def test_wire_format_names_every_script() -> None:
    table = rows("reference/wire-format.md", first=SCRIPT)
    package = Path(django_redis_locks.__file__).parent / "backends" / "redis" / "lua"
    assert set(table) == {
        str(path.relative_to(package).with_suffix(""))
        for path in package.rglob("*.lua")
        if path.parent.name != "shared"  # parts of scripts
    }
    for name, (_, keys, args, _) in table.items():
        source = script(name).source
        assert told(keys, ",") == len(set(re.findall(r"KEYS\[(\d+)\b", source))), name
        assert told(args, "; ") == len(set(re.findall(r"ARGV\[(\d+)\b", source))), name


def told(cell: str, separator: str) -> int:
    """How many a cell names. In brackets are those that have no number."""
    return len([part for part in re.sub(r"\(.*?\)", "", cell).split(separator) if part.strip()])


# Redis


def test_wire_format_names_what_lies_in_redis(redis_url: str, redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    blocks = [block.code.strip() for block in BLOCKS if block.page.name in {"wire-format.md", "operations.md"}]
    example = r"1 lock \S+ \d{16} \[.+\]"
    keys = rows("reference/wire-format.md", first=r"lock:\{0\}:(k:.+|w:.+|fence|index)")
    with ThreadPoolExecutor(1) as pool:
        with locks.lock("order:42"):
            waiting = pool.submit(lambda: locks.lock("order:42").acquire(timeout=10).release())
            while redis_server.command("ZCARD", "lock:{0}:w:order:42") == 0:
                assert not waiting.done()
            assert set(redis_server.command("KEYS", "*")) == set(keys)
            for key, cells in keys.items():
                kind = {"sorted set": "zset"}.get(cells[1], cells[1])
                assert redis_server.command("TYPE", key) == kind
            assert re.fullmatch(example, redis_server.command("GET", "lock:{0}:k:order:42"))
        waiting.result(30)
    assert sum(bool(re.search(f'^"?{example}"?$', block.replace("\\", ""), re.MULTILINE)) for block in blocks) == 2
    locks.record("record").put(None, {"state": "ready"})
    example = r'1 record \S+ \d{16} \{"state":"ready"\}'
    assert re.fullmatch(example, redis_server.command("GET", "lock:{0}:k:record"))
    assert any(re.fullmatch(example, block) for block in blocks)
    used = {command for name in rows("reference/wire-format.md", first=SCRIPT) for command in commands_of(name)}
    text = (DOCS / "reference/wire-format.md").read_text().rpartition("Commands they use:")[2]
    assert set(re.findall(r"`([A-Z]+)`", text)) == used


def test_wire_format_names_what_loads_leave(
    redis_url: str, redis_server: RedisServer, settings: Any, tmp_path: Path
) -> None:
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url},
        "files": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": str(tmp_path)},
    }
    pattern = r"(\{:1:sales\}|lock:load:\{0\}):.+"
    named = set(rows("reference/wire-format.md", first=pattern))
    seen: set[str] = set()

    def load(cache: str) -> str:
        road_of(cache).forget(":1:sales")  # who comes now asks Redis
        waiting = pool.submit(get_or_load, "sales", lambda: "never", cache=cache)
        while not any(":w:" in key for key in redis_server.command("KEYS", "*")):
            assert not waiting.done()
        seen.update(redis_server.command("KEYS", "*"))
        (lease,) = (key for key in redis_server.command("KEYS", "*") if ":k:" in key)
        values.append(redis_server.command("GET", lease))
        waiters.append(waiting)
        return "loaded"

    values: list[str] = []
    waiters: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        for cache in ("default", "files"):
            invalidate("sales", cache=cache, settle=60)
            with everything(road_of(cache)):
                pass
            get_or_load("sales", lambda cache=cache: load(cache), cache=cache)
            assert waiters.pop().result(30) == "loaded"
            redis_server.command("DEL", ":1:sales", *seen)
    assert seen - {":1:sales"} == named
    (example,) = (block.code.strip() for block in BLOCKS if block.code.startswith("1 load "))
    assert all(re.fullmatch(r"1 load \S+ \d+", value) for value in [example, *values])


def commands_of(name: str) -> set[str]:
    return set(re.findall(r"redis\.p?call\('(\w+)'", script(name).source))


def test_code_runs_without_django(redis_url: str) -> None:
    (block,) = STORIES["howto/locks:no-django"]
    assert "redis://127.0.0.1:6379/0" in block.code
    code = block.code.replace("redis://127.0.0.1:6379/0", redis_url).replace(
        "    ...", "    print(locks.lock('nightly').holder())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pid" in done.stdout
    assert done.stderr == ""


def test_the_rights_are_enough(redis_url: str, redis_server: RedisServer, settings: Any, tune: Tune) -> None:
    tune(max_poll_interval=60.0)  # who gets the lock before that was woken
    (shown,) = (block.code for block in BLOCKS if block.code.startswith("ACL SETUSER locks"))
    words = shlex.split(shown)
    folder = Path(inspect.getfile(RedisBackend)).parent / "lua"
    steps = [f"{path.parent.name}/{path.stem}" for path in folder.glob("*/*.lua") if path.parent.name != "shared"]
    scripts = {command for step in steps for command in commands_of(step)}
    rights = {word[1:].upper() for word in words if word.startswith("+")}
    assert rights == scripts | {"EVAL", "EVALSHA", "PING", "SUBSCRIBE"}
    assert rights == set(re.findall(r"\+(\w+)", HINTS["NOPERM"].upper())) - {"SELECT"}
    redis_server.command("SCRIPT", "FLUSH")
    redis_server.command("ACL", "LOG", "RESET")
    redis_server.command(*words)
    try:
        url = urlsplit(redis_url)
        location = urlunsplit(url._replace(netloc=f"locks:secret@{url.hostname}:{url.port}"))
        settings.REDIS_LOCKS = {"default": {"LOCATION": location}}
        with locks.lock("order:42", expire=30, renew=True) as grant:
            grant.extend(60)
            grant.ensure_held(confirm=True)
            holder = locks.lock("order:42").holder()
            assert holder is not None
            assert holder.fence == grant.fence
        grant = locks.lock("order:42").acquire()
        assert locks.lock("order:42").force_release(fence=grant.fence)
        with pytest.raises(LockLost):
            grant.release()

        async def wait() -> bool:
            async with locks.lock("order:42"):
                return await locks.record("noted").aput(None, {}) is not None

        with ThreadPoolExecutor(1) as pool:
            with locks.lock("order:42"):
                waiting = pool.submit(asyncio.run, wait())
                while redis_server.command("ZCARD", "lock:{0}:w:order:42") == 0:
                    assert not waiting.done()
            assert waiting.result(30)
        denied = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in redis_server.command("ACL", "LOG")]
        assert {entry["object"] for entry in denied} <= {"client", "client|setinfo"}  # 6.2 names no subcommand
        asyncio.run(_passed_on(redis_server))
    finally:
        locks.close_all()
        redis_server.command("ACL", "DELUSER", "locks")


async def _passed_on(server: RedisServer) -> None:
    """From a thread to a task: they queue apart, so it is the store that tells who is next."""
    lock = locks.lock("order:42", expire=30)
    grant = await asyncio.to_thread(lock.acquire)
    waiter = asyncio.create_task(lock.aacquire(timeout=20))
    while not server.command("ZCARD", "lock:{0}:w:order:42"):
        assert not waiter.done()
        await asyncio.sleep(0.01)
    await asyncio.to_thread(grant.release)
    await (await asyncio.wait_for(waiter, 20)).arelease()
