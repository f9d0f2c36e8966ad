"""`refresh="celery"` with real workers: kills, repeated messages, and no worker at all."""

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
from tests.celery import cached_functions
from tests.celery.cached_functions import gated
from tests.celery.conftest import Cluster
from tests.contract.matrix import eventually
from tests.probes import celery as probe

pytestmark = [pytest.mark.celery, pytest.mark.chaos]


@pytest.fixture
def make_refresh_cluster(
    make_cluster: Callable[..., Cluster], celery_server: Any, settings: Any
) -> Iterator[Callable[..., Cluster]]:
    """`make_refresh_cluster("threads")`: a cluster with the caches of this test, and its app as the current app of this
    process."""
    default, current = _state.default_app, _state._tls.current_app
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": celery_server.url(4)}
    }
    settings.LOADS_JOURNAL = celery_server.url(3)
    given = {"caches": settings.CACHES, "journal": settings.LOADS_JOURNAL}
    environ = {"DJANGO_SETTINGS_MODULE": "tests.celery.cache_refresh_settings", "CELERY_TESTS_LOADS": json.dumps(given)}

    def make(pool: str = "prefork", count: int = 1) -> Cluster:
        cluster = make_cluster({"environ": environ})
        cluster.app.set_current()
        cluster.app.set_default()
        cluster.start_workers(count, pool=pool)
        return cluster

    yield make
    _state.default_app, _state._tls.current_app = default, current
    cached_functions.journal_of(settings.LOADS_JOURNAL, os.getpid()).close()
    cached_functions.journal_of.cache_clear()


def call(function: Any, *args: Any) -> Any:
    return async_to_sync(function)(*args) if function is cached_functions.async_quick else function(*args)


def make_stale(function: Any, *args: Any) -> None:
    caches["default"].set(function.key(*args), "old", 500)  # less than `stale`


def lease_left(tag: str) -> int:
    return probe.load_lease_left(gated.key(tag))


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_stale_value_is_loaded_by_one_worker_that_renews_its_lease(
    make_refresh_cluster: Callable[..., Cluster], tag: str, pool: str
) -> None:
    """[S37] The callers get the stale value, and none of them loads."""
    cluster = make_refresh_cluster(pool)
    make_stale(gated, tag)
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(gated(tag))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == ["old"] * 20
    (body,) = cluster.journal.wait(tag, "begin")
    assert body.pid != os.getpid()
    cluster.journal.until_rise(lambda: lease_left(tag), tag, "a renewal")
    assert gated(tag) == "old"
    cluster.journal.open_gate(tag)
    eventually(lambda: gated(tag) == body.run)
    assert len(cluster.journal.entries(tag, "begin")) == 1


def test_async_functions_and_methods_are_loaded_by_a_worker(
    make_refresh_cluster: Callable[..., Cluster], tag: str
) -> None:
    """[S37]"""
    cluster = make_refresh_cluster()
    for count, function in enumerate(cached_functions.functions(), 1):
        make_stale(function, tag)
        assert call(function, tag) == "old"
        body = cluster.journal.wait(tag, "begin", count=count)[-1]
        assert body.pid != os.getpid()
        eventually(lambda function=function, body=body: call(function, tag) == body.run)


def test_load_of_a_killed_child_is_claimed_again_when_its_lease_ends(
    make_refresh_cluster: Callable[..., Cluster], tag: str
) -> None:
    """[S36] [S11] Until then callers get the stale value."""
    cluster = make_refresh_cluster()
    make_stale(gated, tag)
    assert gated(tag) == "old"
    (body,) = cluster.journal.wait(tag, "begin")
    cluster.kill_child(body)
    assert gated(tag) == "old"
    assert len(cluster.journal.entries(tag, "begin")) == 1
    probe.end_load_lease(gated.key(tag))
    cluster.journal.until(
        lambda: gated(tag) == "old" and len(cluster.journal.entries(tag, "begin")) > 1, tag, "another load"
    )
    second = cluster.journal.entries(tag, "begin")[-1]
    cluster.journal.open_gate(tag)
    eventually(lambda: gated(tag) == second.run)


def test_repeated_message_is_loaded_once_by_two_workers(
    make_refresh_cluster: Callable[..., Cluster], tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[S37] A copy does nothing, while the first message is handled and afterwards: its claim is taken."""
    cluster = make_refresh_cluster(count=2)
    task = cluster.task("celery_locks.load")
    plain, sent = task.apply_async, []
    monkeypatch.setattr(task, "apply_async", lambda message, **how: sent.append(message) or plain(message, **how))
    make_stale(gated, tag)
    assert gated(tag) == "old"
    (body,) = cluster.journal.wait(tag, "begin")

    def deliver_copy() -> None:
        """Send a copy, and wait until a worker has handled it."""
        cluster.journal.wait(sent[0][0], "postrun", id=plain(sent[0]).id)
        assert len(cluster.journal.entries(tag, "begin")) == 1

    deliver_copy()
    deliver_copy()
    cluster.journal.open_gate(tag)
    eventually(lambda: gated(tag) == body.run)
    deliver_copy()


def test_stale_value_is_returned_while_no_worker_runs(make_refresh_cluster: Callable[..., Cluster], tag: str) -> None:
    """[S36] [S37] Messages stay in the queue. Each claim ends with its lease; messages that come later do nothing."""
    cluster = make_refresh_cluster(count=0)
    make_stale(gated, tag)
    assert gated(tag) == "old"
    probe.end_load_lease(gated.key(tag))

    def sends_second_message() -> bool:
        assert gated(tag) == "old"
        return cluster.queue_length(f"q-{tag}") > 1

    cluster.journal.until(sends_second_message, tag, "a second message")
    sent = cluster.queue_length(f"q-{tag}")
    cluster.journal.open_gate(tag)
    cluster.start_workers()
    eventually(lambda: cluster.queue_length(f"q-{tag}") == 0 and gated(tag) != "old")
    assert sent > 1
    assert len(cluster.journal.entries(tag, "begin")) <= 2
    assert counters()["default", "stale"] > sent
