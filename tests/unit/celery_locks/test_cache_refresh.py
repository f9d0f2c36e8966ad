"""`refresh="celery"` without a worker: the sent message, and its load."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import Celery
from django.core.cache import caches
from kombu.exceptions import OperationalError

from celery_locks import SingletonTask, cache_refresh
from django_redis_locks import cache
from django_redis_locks.cache import Job, cached, invalidate
from django_redis_locks.cache.decorator.function import take_over
from django_redis_locks.cache.loading import refresh_job
from django_redis_locks.testing import ManualClock
from tests.contract.matrix import eventually
from tests.django.helpers import in_thread

called: list[Any] = []


class Row:
    def __init__(self, pk: int) -> None:
        self.pk = pk


def value() -> str:
    return f"new {len(called)}"


@cached("report:{year}:{size}", ttl=60, stale=600, refresh="celery")
def report(year: int, size: str = "M") -> str:
    called.append((year, size))
    return value()


@cached("areport:{year}", ttl=60, stale=600, refresh="celery")
async def areport(year: int) -> int:
    return year


@cached("row:{row.pk}", ttl=60, stale=600, refresh="celery")
def of_row(row: Row) -> str:
    called.append(row.pk)
    return value()


@cached(ttl=60, stale=600, refresh="celery")
def of_pair(pair: Any) -> str:
    called.append(pair)
    return value()


@cached("filed:{year}", cache="files", ttl=0.05, jitter=0.0, stale=600, refresh="celery")
def filed(year: int) -> str:
    called.append(year)
    return value()


@cached("gone:{year}", ttl=60, stale=600, refresh="celery")
def gone(year: int) -> str:
    called.append(year)
    return value()


renamed = gone
del gone


@pytest.fixture(autouse=True)
def redis_cache(settings: Any, redis_url: str) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {
        "default": {"BACKEND": backend, "LOCATION": redis_url},
        "guard": {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "default"},
    }
    called.clear()
    refresh_job._warned.clear()


@pytest.fixture
def app(project_app: Celery) -> Celery:
    return project_app


def make_stale(function: Any, *args: Any, **kwargs: Any) -> None:
    caches["default"].set(function.key(*args, **kwargs), "old", 500)  # less than `stale`


def call_with_stale_value(function: Any, *args: Any, **kwargs: Any) -> None:
    make_stale(function, *args, **kwargs)
    assert function(*args, **kwargs) == "old"


def messages(app: Celery) -> list[Any]:
    """The messages sent, in order; removes them from the queue."""
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(queue.get_nowait())
                found[-1].ack()
        queue.close()
    return found


def run_load(message: Any) -> bool:
    """Run the task in another thread, as a worker does in another process."""
    args, kwargs, _ = message.payload
    return in_thread(lambda: cache_refresh.load(*args, **kwargs))


def run_all(app: Celery) -> list[bool]:
    return [run_load(message) for message in messages(app)]


# The message


def test_stale_value_is_returned_and_loaded_by_one_worker(app: Celery) -> None:
    """[S37] The caller's process doesn't load; one of several callers sends a message."""
    call_with_stale_value(report, 2031)
    assert report(year=2031) == "old"
    assert called == []
    assert run_all(app) == [True]
    assert called == [(2031, "M")]
    assert report(2031) == "new 1"
    assert messages(app) == []


def test_message_expires_with_its_claim_and_shows_no_argument(app: Celery) -> None:
    app.conf.task_default_queue = queue = f"loads-{app.conf.task_default_queue}"
    app.conf.update(task_routes={cache_refresh.NAME: {"queue": queue}}, task_default_queue="another")
    call_with_stale_value(report, 2031, size="L")
    app.conf.task_default_queue = queue
    (message,) = messages(app)
    headers = message.headers
    assert headers["task"] == cache_refresh.NAME == "celery_locks.load"
    assert headers["ignore_result"]
    assert headers["retries"] == 0
    (path, args, kwargs, token), _, _ = message.payload
    assert (path, args, kwargs) == (f"{__name__}:report", [2031], {"size": "L"})
    assert token
    assert token not in json.dumps(headers)
    assert token not in repr(Job("a:b", token=token))
    assert "L" not in headers["argsrepr"]
    assert headers["expires"]


def test_eager_app_loads_at_once_by_a_task_without_a_lock(app: Celery) -> None:
    """With a lock, by the task class of the app, at most one load would run in the whole cluster."""
    app.conf.task_always_eager = True
    call_with_stale_value(report, 2031)
    assert report(2031) == "new 1"
    other = Celery("other", broker="memory://", task_cls=SingletonTask, set_as_current=False)
    assert not isinstance(other.tasks["celery_locks.load"], SingletonTask)


def test_function_of_a_file_cache_is_loaded_by_a_worker(
    app: Celery, settings: Any, redis_url: str, tmp_path: Path
) -> None:
    """[S2] [S37] Its leases are on the lock server; the message carries the claim, too."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    backend = "django.core.cache.backends.filebased.FileBasedCache"
    settings.CACHES = {**settings.CACHES, "files": {"BACKEND": backend, "LOCATION": str(tmp_path)}}
    filed.refresh(1)
    eventually(lambda: filed(1) == "new 1" and run_all(app) == [True])
    assert called == [1, 1]

    def invalidated(message: Any) -> bool:
        filed.invalidate(1)
        return not run_load(message)

    eventually(lambda: filed(1) == "new 2" and (sent := messages(app)) and in_thread(lambda: invalidated(sent[0])))
    assert called == [1, 1]


def test_async_function_publishes_outside_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """[S37] Publishing would block the loop, so a thread does it."""
    publishers: list[threading.Thread] = []
    monkeypatch.setattr(cache_refresh, "submit", lambda job: publishers.append(threading.current_thread()))
    make_stale(areport, 2031)
    assert asyncio.run(areport(2031)) == "old"
    eventually(lambda: publishers)
    assert threading.current_thread() not in publishers


def test_get_many_refreshes_in_its_own_process(app: Celery) -> None:
    """One call loads all values, but a message names one. The caller doesn't wait for stale values."""
    make_stale(report, 1)
    stale, missing = report.get_many([1, 2])
    assert stale == "old"
    eventually(lambda: report.get_many([1])[0].startswith("new"))
    assert report.get_many([2]) == [missing]
    assert sorted(year for year, _ in called) == [1, 2]
    assert messages(app) == []


# Writes


WRITES: dict[str, Callable[[int], object]] = {
    "invalidate": report.invalidate,
    "stale": lambda year: report.invalidate(year, stale=True),
    "by key": lambda year: invalidate(report.key(year)),
    "set": lambda year: caches["guard"].set(report.key(year), "written", 500),
    "delete": lambda year: caches["guard"].delete(report.key(year)),
    "clear": lambda year: caches["guard"].clear(),
    "refresh": report.refresh,
}


def test_write_before_the_worker_loads_wins(app: Celery) -> None:
    """[S2] The claim is older than the write."""
    for year, (how, write) in enumerate(WRITES.items()):
        call_with_stale_value(report, year)
        write(year)
        stored, calls = caches["default"].get(report.key(year)), len(called)
        assert run_all(app) == [False], how
        assert caches["default"].get(report.key(year)) == stored, how
        assert len(called) == calls, how


# Messages that fail


def wait_for_local_load(function: Any, *args: Any) -> None:
    eventually(lambda: caches["default"].get(function.key(*args)) == value() and called)


def test_broker_that_is_down_does_not_delay_callers_and_is_retried_after_a_pause(
    app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    """[S37] A thread of this process loads with the same claim. During the pause no caller waits for a silent
    broker."""
    app.conf.broker_url = "amqp://127.0.0.1:1//"
    begin = time.monotonic()
    call_with_stale_value(report, 2031)
    assert time.monotonic() - begin < 5  # Celery's own retry=False takes six seconds
    wait_for_local_load(report, 2031)
    assert called == [(2031, "M")]
    assert "can't be handed over, and runs in this process" in caplog.text
    with ManualClock() as clock:
        for seconds, match in ((0, "refused"), (0, "a moment ago"), (cache_refresh.RETRY_AFTER + 1, "refused")):
            clock.advance(seconds)
            with pytest.raises(OperationalError, match=match):
                cache_refresh.submit(Job(f"{__name__}:report", (3,), request=SimpleNamespace(user_key=report.key(3))))


def test_restarted_broker_is_connected_to_again(
    app: Celery, make_server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """[S37] The pooled connection is closed then."""
    server = make_server()
    app.conf.broker_url = server.url()
    call_with_stale_value(report, 1)
    server.restart(keep_data=True)
    call_with_stale_value(report, 2)
    assert run_all(app) == [True, True]
    assert called == [(1, "M"), (2, "M")]
    assert "handed over" not in caplog.text


UNSENDABLE = {
    "Row": (of_row, lambda: Row(5), "can't be sent as json"),
    "tuple": (of_pair, lambda: (1, 2), "aren't the same after they were sent as json"),
}


def test_arguments_that_json_changes_are_loaded_here_with_one_warning(
    app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    """[S37] Changed arguments would load another value."""
    caplog.set_level(logging.WARNING, "django_redis_locks.cache")
    for kind, (function, make, match) in UNSENDABLE.items():
        caplog.clear()
        for _ in range(2):
            called.clear()
            call_with_stale_value(function, make())
            wait_for_local_load(function, make())
        assert messages(app) == []
        (record,) = caplog.records
        for part in (match, kind, "Pass ids and other plain values"):
            assert part in record.getMessage()


def test_pickle_serializer_sends_objects(app: Celery) -> None:
    app.conf.update(task_serializer="pickle", accept_content=["pickle", "json"])
    call_with_stale_value(of_row, Row(5))
    with app.connection_for_read() as connection, connection.SimpleQueue(app.conf.task_default_queue) as queue:
        message = queue.get_nowait()
        message.accept = {"application/x-python-serialize"}
        message.ack()
    assert run_load(message)
    assert called == [5]


def test_function_that_a_worker_cannot_import_is_loaded_here(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """[S37] A worker with other code raises."""
    call_with_stale_value(renamed, 2031)
    wait_for_local_load(renamed, 2031)
    assert messages(app) == []
    assert "does this process run the same code" in caplog.text
    with pytest.raises(LookupError, match="does this process run the same code"):
        take_over(f"{__name__}:unknown", "token", [2031])
    with pytest.raises(LookupError, match="move it into a module"):
        cache_refresh.submit(Job("__main__:report"))


def test_loader_without_a_name_raises_TypeError_at_once() -> None:
    """[S37] At each call, also before the first value is stale."""
    for function in (cache.get_or_load, cache.refresh, cache.get_or_load_many):
        for call in (function, async_to_sync(getattr(cache, f"a{function.__name__}"))):
            with pytest.raises(TypeError, match="is for functions with @cached"):
                call(["k"] if function is cache.get_or_load_many else "k", lambda *_: {}, refresh="celery")
