"""The names that the examples of howto/celery.md need, and the checks after them.

Each has an app of its own, on a broker in memory: `shared_task` is that app's, so that no task of the documentation becomes
another app's.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import celery
import pytest
from celery import signals
from celery.beat import Scheduler
from celery.utils import uuid
from django.db import transaction

from celery_locks import IdempotencyKeyReused, IdempotentTask, SingletonTask
from celery_locks.testing import locked_eager, running
from django_redis_locks import LockKeyError
from tests.docs.examples import Names, after, given
from tests.docs.pages import public, rows


class App(celery.Celery):
    """An app with tasks that no other app has."""

    def task(self, *args: Any, **options: Any) -> Any:
        return super().task(*args, **{"shared": False, **options})


@given(
    "README:celery",
    *(
        f"howto/celery:{name}"
        for name in (
            "app-defaults",
            "call-options",
            "declare",
            "key",
            "idempotency-key",
            "limit",
            "lock",
            "retries",
            "canvas",
            "shop",
            "typed",
        )
    ),
)
def app_of_an_example() -> Names:
    """`app`, and a module `celery` whose `shared_task` is the app's."""
    app = App("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.task_default_queue = uuid()
    module = ModuleType("celery")
    vars(module).update(shared_task=app.task, __path__=celery.__path__, __getattr__=partial(getattr, celery))
    return {"celery": module, "app": app}


def queued(app: celery.Celery) -> int:
    """Messages in the app's queue."""
    with app.connection_for_read() as connection:
        return connection.SimpleQueue(app.conf.task_default_queue).qsize()


def nothing(*args: Any) -> None: ...


def feed_of(shop: str) -> str:
    return f"feed of {shop}"


@after("howto/celery:shop")
def _(names: Names) -> None:
    assert queued(names["app"]) == 2
    assert asyncio.run(names["confirm_order"].adelay(42)).id == names["first"].id
    feed = names["tasks"].build_feed
    assert feed.delay("eu").id == feed.delay("eu").id
    assert queued(names["app"]) == 3
    with locked_eager(names["app"]):
        assert feed.delay("eu").get() == "feed of eu"


@after("howto/celery:declare")
def _(names: Names) -> None:
    report, sync, app = names["nightly_report"], names["sync"], names["app"]
    assert app.tasks["reports.nightly"] is report
    assert report.delay(2031).id == report.delay(year=2031).id
    assert sync.delay("a").id == sync.delay("a", full=True).id
    assert queued(app) == 2
    assert sync.lock_on_conflict == "retry"
    with pytest.raises(ValueError, match="lock_on_conflict is one of"):
        app.task(base=names["SingletonTask"], name="wrong", lock_on_conflict="fail")(nothing).delay()


@after("howto/celery:call-options")
def _(names: Names) -> None:
    first = names["order_report"]("May", again=False)
    assert not first.deduplicated
    assert names["order_report"]("May", again=True) is None
    assert queued(names["app"]) == 1


@after("howto/celery:app-defaults")
def _(names: Names) -> None:
    task = names["app"].task(base=SingletonTask, name="usual", lazy=False)(nothing)
    assert (task.lock_expire, task.lock_on_duplicate) == (120, "raise")


@after("howto/celery:without-django")
def _(names: Names) -> None:
    assert names["app"].conf.redis_locks == {"default": {"LOCATION": "redis://127.0.0.1:6379/0"}}


@after("howto/celery:key")
def _(names: Names) -> None:
    sync, merge = names["sync"], names["merge"]
    assert sync.delay("a").id == sync.delay("a", True).id
    assert merge.delay(1, 2).id == merge.delay(2, b=1).id
    assert queued(names["app"]) == 2
    with pytest.raises(LockKeyError):
        sync.delay("")


@after("howto/celery:idempotency-key")
def _(names: Names) -> None:
    pay = names["pay"]
    ask = SimpleNamespace(headers={"Idempotency-Key": "k"})
    first = pay(ask, 1)
    assert pay(ask, 1).id == first.id
    assert pay(ask, 2) is None
    assert issubclass(IdempotencyKeyReused, ValueError)
    assert queued(names["app"]) == 1


@after("howto/celery:lock")
def _(names: Names) -> None:
    saved: list[tuple[int, int]] = []
    names["save"] = lambda row, fence: saved.append((row, fence))
    with locked_eager(names["app"]):
        names["import_rows"].delay([1, 2]).get()
    assert [row for row, _ in saved] == [1, 2]
    assert saved[0][1] == saved[1][1] > 10**15


@after("howto/celery:limit")
def _(names: Names) -> None:
    export = names["export"]
    with locked_eager(names["app"]), running(export, 7, "a"), running(export, 7, "b"):
        assert export.delay(7, "c").state == "SUCCESS"
        with running(export, 7, "d"), pytest.raises(AssertionError, match="3 jobs"), running(export, 7, "c"):
            pass
    assert len({export.delay(7, "c").id for _ in range(2)}) == 2


@after("howto/celery:retries")
def _(names: Names) -> None:
    with mock.patch("celery.app.task.Task.retry", side_effect=TimeoutError) as retry, locked_eager(names["app"]):
        assert isinstance(names["push"].delay(1).result, TimeoutError)
    assert retry.called


@after("howto/celery:canvas")
def _(names: Names) -> None:
    names["basket"]([1, 1, 2])
    assert queued(names["app"]) == 3


@after("howto/celery:beat")
def _(names: Names) -> None:
    """Two beats: each entry once, and again at its next tick."""
    app = names["app"]

    @app.task(base=names["SingletonTask"], name="build_feed", lock_on_duplicate="queue")
    def build_feed(shop: str) -> None: ...

    ids = []
    for _ in "ab":
        scheduler = Scheduler(app)
        signals.beat_init.send(sender=mock.Mock(scheduler=scheduler))
        for entry in scheduler.schedule.values():
            entry.last_run_at = datetime.now().astimezone() - timedelta(days=2)
            ids.append(scheduler.apply_async(entry, advance=False).id)
    assert ids[:2] == ids[2:]
    assert queued(app) == 2


@given("howto/celery:beat")
def _() -> Names:
    return {**app_of_an_example(), "SingletonTask": SingletonTask}


@after("howto/celery:transactions")
def _(names: Names) -> None:
    order = SimpleNamespace(pk=1, save=lambda: None)
    names["views"].checkout(order)
    assert queued(names["app"]) == 1
    with transaction.atomic():
        names["views"].checkout(SimpleNamespace(pk=2, save=lambda: None))
        transaction.set_rollback(True)
    assert queued(names["app"]) == 1


@given("howto/celery:transactions")
def _() -> Names:
    names = app_of_an_example()
    module = ModuleType("transactions.tasks")
    task = names["app"].task(base=IdempotentTask, name="confirm_order")(nothing)
    vars(module)["confirm_order"] = task
    return {**names, "transactions.tasks": module}


@after("howto/celery:signals")
def _(names: Names) -> None:
    names["signals"].lock_skipped.disconnect(names["skipped"])
    table = rows("howto/celery.md", first=r"\w+", after="| signal |")
    known = public(r"celery_locks\.signals\.(\w+): signal \(")
    shown = {name: set(re.findall(r"`(\w+)`", cells[-1])) for name, cells in table.items() if name in known}
    assert shown == {name: set(re.findall(r"\w+", said)) - {"task_id"} for name, said in known.items()}


@given("howto/celery:testing")
def _() -> Names:
    names = app_of_an_example()
    feed = names["app"].task(base=SingletonTask, name="build_feed")(feed_of)
    return {**names, "build_feed": feed}


@after("README:celery")
def _(names: Names) -> None:
    assert names["sync_stock"].delay().id == names["sync_stock"].delay().id
    assert names["confirm_order"].delay(1).id == names["confirm_order"].delay(1).id
    assert queued(names["app"]) == 2


@after("howto/celery:testing")
def _(names: Names) -> None:
    names["test_a_feed_is_built"](names["app"])
    names["test_a_second_one_is_skipped"](names["app"])
