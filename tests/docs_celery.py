"""What the blocks of howto/celery.md take for granted, and what must hold after them; `tests/test_docs.py` runs them.

Each story has an app of its own, on a broker in memory: `shared_task` is that app's, so that no task of the
documentation becomes another app's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import celery
import pytest
from celery.beat import Scheduler
from celery.utils import uuid
from django.db import transaction

from celery_locks import IdempotencyKeyReused, beat
from celery_locks.options import LockOptions
from celery_locks.testing import locked_eager
from django_redis_locks import LockKeyError

PAGE = "howto/celery"

Names = dict[str, Any]

GIVEN: dict[str, Callable[[], Names]] = {}
AFTER: dict[str, Callable[[Names], object]] = {}

DATABASE = (f"{PAGE}:transactions",)


def after(story: str) -> Callable[[Callable[[Names], object]], Callable[[Names], object]]:
    return lambda function: AFTER.setdefault(f"{PAGE}:{story}", function)


class App(celery.Celery):
    """Its tasks are no other app's."""

    def task(self, *args: Any, **options: Any) -> Any:
        return super().task(*args, **{"shared": False, **options})


def app_of_a_story() -> Names:
    """`app`, and a module `celery` whose `shared_task` is the app's."""
    app = App("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.task_default_queue = uuid()
    module = ModuleType("celery")
    vars(module).update(shared_task=app.task, __path__=celery.__path__, __getattr__=partial(getattr, celery))
    return {"celery": module, "app": app}


for _story in ("declare", "key", "idempotency-key", "lock", "retries", "canvas"):
    GIVEN[f"{PAGE}:{_story}"] = app_of_a_story


def queued(app: celery.Celery) -> int:
    """Messages in the app's queue."""
    with app.connection_for_read() as connection:
        return int(connection.default_channel._size(app.conf.task_default_queue))


def nothing(*args: Any) -> None: ...


def feed_of(shop: str) -> str:
    return f"feed of {shop}"


GIVEN[f"{PAGE}:shop"] = app_of_a_story


@after("shop")
def _(names: Names) -> None:
    assert queued(names["app"]) == 2
    assert asyncio.run(names["confirm_order"].adelay(42)).id == names["first"].id
    feed = names["tasks"].build_feed
    assert feed.delay("eu").id == feed.delay("eu").id
    assert queued(names["app"]) == 3
    with locked_eager(names["app"]):
        assert feed.delay("eu").get() == "feed of eu"


@after("declare")
def _(names: Names) -> None:
    report, sync, app = names["nightly_report"], names["sync"], names["app"]
    assert app.tasks["reports.nightly"] is report
    assert report.delay(2031).id == report.delay(year=2031).id
    assert sync.delay("a").id == sync.delay("a", full=True).id
    assert queued(app) == 2
    assert sync.lock_on_conflict == "retry"
    with pytest.raises(ValueError, match="lock_on_conflict is one of"):
        app.task(base=names["SingletonTask"], name="wrong", lock_on_conflict="fail")(nothing).delay()


@after("without-django")
def _(names: Names) -> None:
    assert names["app"].conf.redis_locks == {"default": {"LOCATION": "redis://127.0.0.1:6379/0"}}


@after("key")
def _(names: Names) -> None:
    sync, merge = names["sync"], names["merge"]
    assert sync.delay("a").id == sync.delay("a", True).id
    assert merge.delay(1, 2).id == merge.delay(2, b=1).id
    assert queued(names["app"]) == 2
    with pytest.raises(LockKeyError):
        sync.delay("")


@after("idempotency-key")
def _(names: Names) -> None:
    pay = names["pay"]
    ask = SimpleNamespace(headers={"Idempotency-Key": "k"})
    first = pay(ask, 1)
    assert pay(ask, 1).id == first.id
    assert pay(ask, 2) is None
    assert issubclass(IdempotencyKeyReused, ValueError)
    assert queued(names["app"]) == 1


@after("lock")
def _(names: Names) -> None:
    saved: list[tuple[int, int]] = []
    names["save"] = lambda row, fence: saved.append((row, fence))
    with locked_eager(names["app"]):
        names["import_rows"].delay([1, 2]).get()
    assert [row for row, _ in saved] == [1, 2]
    assert saved[0][1] == saved[1][1] > 10**15


@after("retries")
def _(names: Names) -> None:
    with mock.patch("celery.app.task.Task.retry", side_effect=TimeoutError) as retry, locked_eager(names["app"]):
        assert isinstance(names["push"].delay(1).result, TimeoutError)
    assert retry.called


@after("canvas")
def _(names: Names) -> None:
    names["basket"]([1, 1, 2])
    assert queued(names["app"]) == 3


@after("beat")
def _(names: Names) -> None:
    """Two beats: each entry once, and again at its next tick."""
    app = names["app"]

    @app.task(base=names["SingletonTask"], name="build_feed", lock_on_duplicate="queue")
    def build_feed(shop: str) -> None: ...

    ids = []
    for _ in "ab":
        scheduler = Scheduler(app)
        beat.attach(scheduler)
        for entry in scheduler.schedule.values():
            entry.last_run_at = datetime.now().astimezone() - timedelta(days=2)
            ids.append(scheduler.apply_async(entry, advance=False).id)
    assert ids[:2] == ids[2:]
    assert queued(app) == 2


def _with_singletons() -> Names:
    from celery_locks import SingletonTask

    return {**app_of_a_story(), "SingletonTask": SingletonTask}


GIVEN[f"{PAGE}:beat"] = _with_singletons


@after("transactions")
def _(names: Names) -> None:
    order = SimpleNamespace(pk=1, save=lambda: None)
    names["views"].checkout(order)
    assert queued(names["app"]) == 1
    with transaction.atomic():
        names["views"].checkout(SimpleNamespace(pk=2, save=lambda: None))
        transaction.set_rollback(True)
    assert queued(names["app"]) == 1


def _with_tasks() -> Names:
    from celery_locks import IdempotentTask

    names = app_of_a_story()
    module = ModuleType("transactions.tasks")
    task = names["app"].task(base=IdempotentTask, name="confirm_order")(nothing)
    vars(module)["confirm_order"] = task
    return {**names, "transactions.tasks": module}


GIVEN[f"{PAGE}:transactions"] = _with_tasks


@after("signals")
def _(names: Names) -> None:
    names["signals"].lock_skipped.disconnect(names["skipped"])
    text = (Path(__file__).parent.parent / "docs" / f"{PAGE}.md").read_text()
    table = text.partition("| signal |")[2].partition("\n\n")[0]
    shown = {
        row[0]: set(re.findall(r"`(\w+)`", row[1]))
        for row in re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", table, re.MULTILINE)
    }
    from celery.utils.dispatch import Signal

    signals = {name: signal for name, signal in vars(names["signals"]).items() if isinstance(signal, Signal)}
    assert shown == {name: set(signal.providing_args or ()) - {"task_id"} for name, signal in signals.items()}


def _with_feed() -> Names:
    from celery_locks import SingletonTask

    names = app_of_a_story()
    feed = names["app"].task(base=SingletonTask, name="build_feed")(feed_of)
    return {**names, "build_feed": feed}


GIVEN[f"{PAGE}:testing"] = _with_feed
GIVEN["README:celery"] = app_of_a_story


@after("readme")
def _(names: Names) -> None:
    assert names["sync_stock"].delay().id == names["sync_stock"].delay().id
    assert names["confirm_order"].delay(1).id == names["confirm_order"].delay(1).id
    assert queued(names["app"]) == 2


AFTER["README:celery"] = AFTER.pop(f"{PAGE}:readme")


@after("testing")
def _(names: Names) -> None:
    names["test_a_feed_is_built"](names["app"])
    names["test_a_second_one_is_skipped"](names["app"])


def test_options_are_all_in_the_table() -> None:
    """With their defaults."""
    text = (Path(__file__).parent.parent / "docs" / f"{PAGE}.md").read_text()
    table = text.partition("| option |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    options = {
        name: value
        for name, value in vars(LockOptions).items()
        if name.startswith(("lock_", "unique_", "idempotency_")) and name != "lock_usual_conflict"
    }
    assert {name: eval(value) for name, value in shown.items()} == options
