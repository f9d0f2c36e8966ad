"""What the examples of howto/views.md take for granted, and what must hold after them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connection, connections
from django.http import HttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.utils.asyncio import async_unsafe
from django.utils.functional import SimpleLazyObject

from django_redis_locks import LockLost, LockNotAcquired, locks, redis_lock, signals
from tests.docs.examples import Names, User, after, get, given, hold_elsewhere, is_one_lock, post


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


@after("howto/views:waiting")
def _(names: Names) -> None:
    assert names["report"](None, 2031) is None


@after("howto/views:verbs")
def _(names: Names) -> None:
    view = names["OrderView"].as_view()
    is_one_lock(lambda: view(post(), pk=5), "order:5")
    with hold_elsewhere("order:5"):
        assert view(get(), pk=5).status_code == 200


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
