"""The names that the examples of the quickstart and of howto/views.md, answers.md and rest-framework.md need, and the checks
after them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connection, connections
from django.http import HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.urls import path
from django.utils.asyncio import async_unsafe
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string
from rest_framework.exceptions import ErrorDetail

from django_redis_locks import LockLost, LockNotAcquired, locks, redis_lock, signals
from django_redis_locks.answers import answer
from django_redis_locks.contrib import drf
from tests.docs.examples import (
    MEMORY,
    Names,
    User,
    after,
    after_each,
    get,
    given,
    hold_elsewhere,
    is_one_lock,
    post,
    problems_of,
)
from tests.docs.pages import BLOCKS


@after("howto/views:keys")
def _(names: Names) -> None:
    key = names["invoice"](User(3), ["a:b"], "ada@example.com")
    assert re.fullmatch(r"invoice:3:a%3Ab:[0-9a-f]{32}:", key)


@after("howto/views:several-keys")
def _(names: Names) -> None:
    assert len(set(names["transfer"](1, 2, 5))) == 2
    for key in "account:1", "account:2":
        with hold_elsewhere(key), pytest.raises(LockNotAcquired):
            names["transfer"](1, 2, 5)


@after("howto/views:class-based")
def _(names: Names) -> None:
    view = names["OrderView"].as_view()
    is_one_lock(lambda: view(get(), pk=5), "order:5")
    is_one_lock(lambda: view(post(), pk=5), "order:5")


@after("howto/views:methods")
def _(names: Names) -> None:
    with hold_elsewhere("account:7"), pytest.raises(LockNotAcquired):
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


@after("howto/views:one-method", "howto/views:verbs")
def _(names: Names) -> None:
    view = names["OrderView"].as_view()
    is_one_lock(lambda: view(post(), pk=5), "order:5")
    with hold_elsewhere("order:5"):
        assert view(get(), pk=5).status_code == 200


@after("howto/views:limit")
def _(names: Names) -> None:
    view = names["export"]
    semaphore = locks.semaphore("export:3", limit=2)
    request = get()
    request.user = User(3)
    with semaphore:
        assert view(request).status_code == 200
        with semaphore:
            assert view(request).status_code == 409


@after("howto/views:condition")
def _(names: Names) -> None:
    with hold_elsewhere("payout"):
        assert names["payout"](5, dry_run=True) == "5 paid"
        with pytest.raises(LockNotAcquired):
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
    assert in_transaction(names["pay"], pk=1) == ["Acquired", "BEGIN", "COMMIT", "Released"]
    booked = ["BEGIN", "Acquired", "Acquired", "COMMIT", "Released"]
    assert in_transaction(names["pay_by_card"], pk=1) == booked


@after("howto/views:ask-before-commit")
def _(names: Names) -> None:
    assert in_transaction(names["pay"], pk=1) == ["Acquired", "BEGIN", "COMMIT", "Released"]
    names["current_grant"] = lambda: SimpleNamespace(ensure_held=lambda: fail(LockLost("lost")))
    with pytest.raises(LockLost):
        in_transaction(names["pay"], pk=1)


def fail(error: Exception) -> None:
    raise error


def in_transaction(view: Callable[..., HttpResponse], **kwargs: Any) -> list[str]:
    """The events of transaction and locks in a request under ATOMIC_REQUESTS, in order."""
    found: list[str] = []
    begin, commit = connection.set_autocommit, connection.commit

    def set_autocommit(autocommit: bool, *args: Any, **more: Any) -> None:
        found.extend([] if autocommit else ["BEGIN"])
        begin(autocommit, *args, **more)

    def commit_it() -> None:
        commit()
        found.append("COMMIT")

    def on_lock(sender: type, **_: Any) -> None:
        found.append(sender.__name__)

    request = get()
    request.resolver_match = SimpleNamespace(func=view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections["default"], "set_autocommit", set_autocommit)
        patch.setattr(connections["default"], "commit", commit_it)
        patch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
        signals.lock_acquired.connect(on_lock)
        signals.lock_released.connect(on_lock)
        assert BaseHandler().make_view_atomic(view)(request, **kwargs).status_code == 200
    return found


@after("howto/views:hold")
def _(names: Names) -> None:
    response = names["export"](get())
    assert locks.lock("export").locked()
    assert response.getvalue() == b"1;2;3"
    response.close()
    assert not locks.lock("export").locked()


@given("quickstart:mysite")
def _() -> Names:
    return {"INSTALLED_APPS": []}


@after("quickstart:mysite")
def _(names: Names) -> None:
    assert names["settings"].INSTALLED_APPS == ["django_redis_locks"]
    assert problems_of(REDIS_LOCKS=names["settings"].REDIS_LOCKS) == []
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


@after("howto/answers:shop")
def _(names: Names) -> None:
    assert problems_of(REDIS_LOCKS=names["REDIS_LOCKS"]) == []
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
    detail = json.loads(answer(get(accept="application/json"), LockNotAcquired()).content)["detail"]
    order, pay = names["OrderView"].as_view(), names["OrderViewSet"].as_view({"post": "pay"})

    def request() -> Any:
        found = post(User(8))
        found.user.is_active = found._dont_enforce_csrf_checks = True
        return found

    for view in (order, pay):
        assert view(request(), pk=5).status_code == 200
        with hold_elsewhere("order:5"):
            assert view(request(), pk=5).data == {"detail": ErrorDetail(detail, "locked")}
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


after_each(
    {
        "howto/views:function-view": lambda names: is_one_lock(
            lambda: names["checkout"](get(), product_id=1), "checkout:1"
        ),
        "howto/views:key-callable": lambda names: names["transfer"](9, b=4) == "transfer:4:9",
        "howto/views:waiting": lambda names: names["report"](None, 2031) is None,
        "howto/views:inside": lambda names: names["import_rows"](get(), pk=1).text == "5 s were left",
    }
)
