"""`refresh="celery"` with real workers, which are killed, and whose messages come twice."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import _state
from django.core.cache import caches

from django_redis_locks.cache import counters
from tests.celery import loads_functions
from tests.celery.conftest import Cell
from tests.celery.loads_functions import held
from tests.contract.matrix import eventually
from tests.probes import celery as probe

pytestmark = [pytest.mark.celery, pytest.mark.chaos]


@pytest.fixture
def workers(make_cell: Callable[..., Cell], celery_server: Any, settings: Any) -> Iterator[Callable[..., Cell]]:
    """`workers("threads")`: one whose project is this one, too; the app is that of this process."""
    default, current = _state.default_app, _state._tls.current_app
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": celery_server.url(4)}
    }
    settings.LOADS_JOURNAL = celery_server.url(3)
    given = {"caches": settings.CACHES, "journal": settings.LOADS_JOURNAL}
    environ = {"DJANGO_SETTINGS_MODULE": "tests.celery.loads_settings", "CELERY_TESTS_LOADS": json.dumps(given)}

    def make(pool: str = "prefork", count: int = 1) -> Cell:
        cell = make_cell({"environ": environ})
        cell.app.set_current()
        cell.app.set_default()
        cell.start(count, pool=pool)
        return cell

    yield make
    _state.default_app, _state._tls.current_app = default, current
    loads_functions.journal_of(settings.LOADS_JOURNAL, os.getpid()).close()
    loads_functions.journal_of.cache_clear()


def ask(function: Any, *args: Any) -> Any:
    return async_to_sync(function)(*args) if function is loads_functions.aquick else function(*args)


def make_stale(function: Any, *args: Any) -> None:
    caches["default"].set(function.key(*args), "old", 500)  # less than `stale`


def lease_left(who: str) -> int:
    return probe.load_lease_left(held.key(who))


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_stale_value_is_loaded_by_one_worker_that_renews_its_lease(
    workers: Callable[..., Cell], who: str, pool: str
) -> None:
    """[S37] The callers return the stale value, and none of them loads."""
    cell = workers(pool)
    make_stale(held, who)
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(held(who))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == ["old"] * 20
    (body,) = cell.journal.wait(who, "begin")
    assert body.pid != os.getpid()
    cell.journal.until_rise(lambda: lease_left(who), who, "a renewal")
    assert held(who) == "old"
    cell.journal.open_gate(who)
    eventually(lambda: held(who) == body.run)
    assert len(cell.journal.entries(who, "begin")) == 1


def test_async_functions_and_methods_are_loaded_by_a_worker(workers: Callable[..., Cell], who: str) -> None:
    """[S37]"""
    cell = workers()
    for count, function in enumerate(loads_functions.functions(), 1):
        make_stale(function, who)
        assert ask(function, who) == "old"
        body = cell.journal.wait(who, "begin", count=count)[-1]
        assert body.pid != os.getpid()
        eventually(lambda function=function, body=body: ask(function, who) == body.run)


def test_load_of_a_killed_worker_is_claimed_again_when_its_lease_ends(workers: Callable[..., Cell], who: str) -> None:
    """[S36] [S11] Until then the stale value is returned."""
    cell = workers()
    make_stale(held, who)
    assert held(who) == "old"
    (body,) = cell.journal.wait(who, "begin")
    cell.kill(body)
    assert held(who) == "old"
    assert len(cell.journal.entries(who, "begin")) == 1
    probe.end_load_lease(held.key(who))
    cell.journal.until(lambda: held(who) == "old" and len(cell.journal.entries(who, "begin")) > 1, who, "another load")
    second = cell.journal.entries(who, "begin")[-1]
    cell.journal.open_gate(who)
    eventually(lambda: held(who) == second.run)


def test_repeated_message_is_loaded_once_by_two_workers(
    workers: Callable[..., Cell], who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S37] While the first copy is loaded, and when it is done: another worker finds the claim taken."""
    cell = workers(count=2)
    task = cell.task("celery_locks.load")
    plain, sent = task.apply_async, []
    monkeypatch.setattr(task, "apply_async", lambda message, **how: sent.append(message) or plain(message, **how))
    make_stale(held, who)
    assert held(who) == "old"
    (body,) = cell.journal.wait(who, "begin")

    def again() -> None:
        """A copy comes, and its worker is done with it."""
        cell.journal.wait(sent[0][0], "postrun", id=plain(sent[0]).id)
        assert len(cell.journal.entries(who, "begin")) == 1

    again()
    again()
    cell.journal.open_gate(who)
    eventually(lambda: held(who) == body.run)
    again()


def test_stale_value_is_returned_while_no_worker_runs(workers: Callable[..., Cell], who: str) -> None:
    """[S36] [S37] Messages stay in the queue; each claim ends with its lease, and late copies do nothing."""
    cell = workers(count=0)
    make_stale(held, who)
    assert held(who) == "old"
    probe.end_load_lease(held.key(who))

    def sends_again() -> bool:
        assert held(who) == "old"
        return cell.queued(f"q-{who}") > 1

    cell.journal.until(sends_again, who, "a second message")
    sent = cell.queued(f"q-{who}")
    cell.journal.open_gate(who)
    cell.start()
    eventually(lambda: cell.queued(f"q-{who}") == 0 and held(who) != "old")
    assert sent > 1
    assert len(cell.journal.entries(who, "begin")) <= 2
    assert counters()["default", "stale"] > sent
