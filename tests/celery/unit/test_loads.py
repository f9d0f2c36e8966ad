"""`refresh="celery"` without a worker: what is sent, what isn't, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import Celery, _state
from django.core import checks as system_checks
from django.core.cache import caches
from kombu.exceptions import OperationalError

from celery_locks import loads
from celery_locks.checks import doubts
from django_redis_locks.cache import (
    Job,
    aget_or_load,
    aget_or_load_many,
    arefresh,
    cached,
    get_or_load,
    get_or_load_many,
    invalidate,
    refresh,
    refreshing,
    take_over,
)
from tests.contract.matrix import eventually
from tests.django.helpers import in_thread

BRIEF = 0.3
"""A lease, in seconds, whose end is waited for; nothing has to happen before that."""

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
async def areport(year: int) -> str:
    called.append(year)
    return value()


@cached("brief:{year}", ttl=60, stale=600, refresh="celery", expire=BRIEF)
def brief(year: int) -> str:
    called.append(year)
    return value()


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


lost = gone
del gone


@pytest.fixture(autouse=True)
def redis_cache(settings: Any, redis_url: str) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {
        "default": {"BACKEND": backend, "LOCATION": redis_url},
        "guard": {"BACKEND": "django_redis_locks.cache.StampedeCache", "LOCATION": "default"},
    }
    called.clear()
    refreshing._warned.clear()


@pytest.fixture
def app() -> Iterator[Celery]:
    """The project's, in each thread; nobody works for it."""
    default, current = _state.default_app, _state._tls.current_app
    app = Celery("loads", broker="memory://")
    app.set_default()
    app.conf.task_default_queue = uuid.uuid4().hex
    yield app
    app.close()
    _state.default_app, _state._tls.current_app = default, current


def make_stale(function: Any, *args: Any, **kwargs: Any) -> None:
    caches["default"].set(function.key(*args, **kwargs), "old", 500)  # less than `stale`


def ask_stale(function: Any, *args: Any, **kwargs: Any) -> None:
    make_stale(function, *args, **kwargs)
    assert function(*args, **kwargs) == "old"


def messages(app: Celery) -> list[Any]:
    """What workers would be given, in their order."""
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(queue.get_nowait())
                found[-1].ack()
        queue.close()
    return found


def work(app: Celery) -> list[bool]:
    """As a worker does, which is another process."""
    bodies = [message.payload for message in messages(app)]
    return [in_thread(lambda args=args, kwargs=kwargs: loads.load(*args, **kwargs)) for args, kwargs, _ in bodies]


# By a worker


def test_a_stale_value_is_served_and_a_worker_loads_it(app: Celery) -> None:
    """[S37] The caller's process calls nothing; of many callers one sends a message."""
    ask_stale(report, 2031)
    assert report(year=2031) == "old"
    assert called == []
    assert work(app) == [True]
    assert called == [(2031, "M")]
    assert report(2031) == "new 1"
    assert messages(app) == []


def test_what_is_sent(app: Celery) -> None:
    """The message is of no use when the claim has ended, and no log shows the secret."""
    ask_stale(report, 2031, size="L")
    (message,) = messages(app)
    headers = message.headers
    assert headers["task"] == loads.NAME == "celery_locks.load"
    assert headers["ignore_result"]
    assert headers["retries"] == 0
    (path, args, kwargs, token), _, _ = message.payload
    assert (path, args, kwargs) == (f"{__name__}:report", [2031], {"size": "L"})
    assert token
    assert token not in json.dumps(headers)
    assert "L" not in headers["argsrepr"]
    assert headers["expires"]


def test_celery_routes_it(app: Celery) -> None:
    app.conf.task_routes = {"celery_locks.load": {"queue": f"loads-{app.conf.task_default_queue}"}}
    ask_stale(report, 2031)
    assert messages(app) == []
    app.conf.task_default_queue = f"loads-{app.conf.task_default_queue}"
    assert work(app) == [True]


def test_a_class_of_tasks_that_a_project_prefers_is_not_taken(app: Celery) -> None:
    """A lock of the task's own would let one load run in the whole cluster, or none."""
    from celery_locks import SingletonTask

    other = Celery("other", broker="memory://", task_cls=SingletonTask, set_as_current=False)
    assert not isinstance(other.tasks["celery_locks.load"], SingletonTask)


def test_eager_tasks_load_at_once(app: Celery) -> None:
    app.conf.task_always_eager = True
    ask_stale(report, 2031)
    assert report(2031) == "new 1"


def test_a_cache_that_is_not_on_redis(app: Celery, settings: Any, redis_url: str, tmp_path: Path) -> None:
    """[S2] [S37] Its leases are with the locks: the claim goes with the message all the same."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    backend = "django.core.cache.backends.filebased.FileBasedCache"
    settings.CACHES = {**settings.CACHES, "files": {"BACKEND": backend, "LOCATION": str(tmp_path)}}
    filed.refresh(1)
    eventually(lambda: filed(1) == "new 1" and work(app) == [True])
    assert called == [1, 1]
    eventually(lambda: filed(1) == "new 2" and (sent := messages(app)) and in_thread(lambda: late(sent[0])))
    assert called == [1, 1]


def late(message: Any) -> bool:
    filed.invalidate(1)
    args, _, _ = message.payload
    return not loads.load(*args)


def test_an_asynchronous_function(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S37] What publishes would block the loop, so a thread does."""
    publishers: list[bool] = []

    def submit(job: Job) -> None:
        publishers.append(threading.current_thread() is loop_thread)
        plain(job)

    plain = loads.submit
    monkeypatch.setattr(loads, "submit", submit)
    make_stale(areport, 2031)
    loop_thread = threading.current_thread()
    assert asyncio.run(areport(2031)) == "old"
    eventually(lambda: publishers)
    assert publishers == [False]
    eventually(lambda: work(app) == [True])
    assert called == [2031]
    assert async_to_sync(areport)(2031) == "new 1"


def test_many_are_loaded_where_they_are_asked_for(app: Celery) -> None:
    """One call for all of them: that isn't what a worker could be told. Who asks doesn't wait for what is stale."""
    make_stale(report, 1)
    stale, missing = report.get_many([1, 2])
    assert stale == "old"
    eventually(lambda: report.get_many([1])[0].startswith("new"))
    assert report.get_many([2]) == [missing]
    assert sorted(year for year, _ in called) == [1, 2]
    assert messages(app) == []


# What is lost, comes twice, or too late


def test_a_message_that_is_lost_is_followed_by_another_one(app: Celery) -> None:
    """[S36] [S37] The claim ends with its lease, and the next caller claims again."""
    ask_stale(report, 2031)
    assert len(messages(app)) == 1  # and thrown away
    assert report(2031) == "old"
    assert messages(app) == []
    ask_stale(brief, 2031)
    messages(app)

    def comes() -> bool:
        work(app)
        return brief(2031) != "old"

    eventually(comes)


def test_one_that_comes_too_late_does_nothing(app: Celery) -> None:
    """[S36]"""
    ask_stale(brief, 2031)
    (message,) = messages(app)
    args, _, _ = message.payload
    eventually(lambda: not in_thread(lambda: is_claimed("brief:2031")))
    assert not in_thread(lambda: loads.load(*args))
    assert called == []


def is_claimed(key: str) -> bool:
    from django_redis_locks.cache.roads import lease_of

    lease = lease_of(caches["default"].make_key(key))
    return bool(caches["default"]._cache.get_client().exists(lease))


def test_one_that_comes_twice_loads_once(app: Celery) -> None:
    """[S37] After the first, and while that runs."""
    ask_stale(report, 2031)
    (message,) = messages(app)
    args, _, _ = message.payload
    again: list[bool] = []

    def load_within() -> str:
        called.append("within")
        again.append(in_thread(lambda: loads.load(*args)))
        return value()

    plan = report._plan
    function, plan.function = plan.function, lambda *args, **kwargs: load_within()
    try:
        assert in_thread(lambda: loads.load(*args))
    finally:
        plan.function = function
    assert again == [False]
    assert not in_thread(lambda: loads.load(*args))
    assert called == ["within"]
    assert report(2031) == "new 1"


def clear() -> None:
    caches["guard"].clear()


WRITES: dict[str, Callable[[], object]] = {
    "invalidate": lambda: report.invalidate(2031),
    "soft": lambda: report.invalidate(2031, soft=True),
    "by-key": lambda: invalidate(report.key(2031)),
    "set": lambda: caches["guard"].set(report.key(2031), "written", 500),
    "delete": lambda: caches["guard"].delete(report.key(2031)),
    "clear": clear,
    "refresh": lambda: report.refresh(2031),
}


@pytest.mark.parametrize("how", WRITES)
def test_what_is_written_meanwhile_wins(app: Celery, how: str) -> None:
    """[S2] Before the worker comes to it: the claim is of then."""
    ask_stale(report, 2031)
    WRITES[how]()
    there, calls = caches["default"].get(report.key(2031)), len(called)
    assert work(app) == [False]
    assert caches["default"].get(report.key(2031)) == there
    assert len(called) == calls


def test_a_worker_of_another_version_says_so() -> None:
    """[S37]"""
    with pytest.raises(LookupError, match="does this process run the same code"):
        take_over(f"{__name__}:renamed", "token", [2031])


# What can't be sent


def done_here(function: Any, *args: Any) -> None:
    eventually(lambda: caches["default"].get(function.key(*args)) == value() and called)


@pytest.mark.parametrize("broker", ["redis://127.0.0.1:1/0", "amqp://127.0.0.1:1//"])
def test_a_broker_that_is_down_is_not_waited_for(app: Celery, broker: str, caplog: pytest.LogCaptureFixture) -> None:
    """[S37] A thread of this process loads, under the same claim."""
    app.conf.broker_url = broker
    begin = time.monotonic()
    ask_stale(report, 2031)
    assert time.monotonic() - begin < 5  # Celery's own retry=False takes six seconds
    done_here(report, 2031)
    assert called == [(2031, "M")]
    assert "can't be handed over, and is done here" in caplog.text


def test_a_broker_that_is_down_is_not_asked_each_time(
    app: Celery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """[S37] One that doesn't even refuse would keep each caller."""
    app.conf.broker_url = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(loads, "RESPITE", 60.0)
    for year in (1, 2):
        ask_stale(report, year)
    assert "couldn't be reached a moment ago" in caplog.text
    eventually(lambda: len(called) == 2)
    caplog.clear()
    now = loads.clock.now()
    monkeypatch.setattr(loads.clock, "now", lambda: now + loads.RESPITE + 1)
    with pytest.raises(OperationalError, match="refused"):
        loads.submit(Job(f"{__name__}:report", (3,), call=SimpleNamespace(plain=report.key(3))))


def test_a_job_keeps_its_secret() -> None:
    assert "secret" not in repr(Job("a:b", token="secret"))


def test_a_broker_that_was_restarted_is_found_again(
    app: Celery, make_server: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """[S37] The connection of the pool is a dead one then."""
    server = make_server()
    app.conf.broker_url = server.url()
    ask_stale(report, 1)
    server.restart(keep_data=True)
    ask_stale(report, 2)
    assert work(app) == [True, True]
    assert called == [(1, "M"), (2, "M")]
    assert "handed over" not in caplog.text


UNFIT = {
    "objects": (of_row, lambda: Row(5), "can't be sent as json", "Row"),
    "tuples": (of_pair, lambda: (1, 2), "aren't the same after they were sent as json", "tuple"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_arguments_that_are_not_plain(app: Celery, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """[S37] A thread loads, and one line says what to do. What came as something else would be another value."""
    function, make, says, kind = UNFIT[what]
    caplog.set_level(logging.WARNING, "django_redis_locks.cache")
    for _ in range(2):
        called.clear()
        ask_stale(function, make())
        done_here(function, make())
    assert messages(app) == []
    (record,) = caplog.records
    text = record.getMessage()
    assert says in text
    assert kind in text
    assert "take ids and other plain values" in text


def test_another_serializer_takes_objects(app: Celery) -> None:
    app.conf.update(task_serializer="pickle", accept_content=["pickle", "json"])
    ask_stale(of_row, Row(5))
    with app.connection_for_read() as connection, connection.SimpleQueue(app.conf.task_default_queue) as queue:
        message = queue.get_nowait()
        message.accept = {"application/x-python-serialize"}
        (path, args, kwargs, token), _, _ = message.payload
        message.ack()
    assert in_thread(lambda: loads.load(path, args, kwargs, token))
    assert called == [5]


def test_a_function_that_no_worker_finds(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """[S37] Its name leads elsewhere."""
    ask_stale(lost, 2031)
    done_here(lost, 2031)
    assert messages(app) == []
    assert "does this process run the same code" in caplog.text


def test_a_function_of_a_script(app: Celery) -> None:
    with pytest.raises(LookupError, match="move it into a module"):
        loads.submit(Job("__main__:report"))


@pytest.mark.parametrize("function", [get_or_load, refresh, aget_or_load, arefresh])
def test_a_bare_loader_has_no_name(function: Any) -> None:
    """[S37] Said at once, not when the first value is stale."""
    call = async_to_sync(function) if asyncio.iscoroutinefunction(function) else function
    with pytest.raises(TypeError, match="is for functions with @cached"):
        call("k", lambda: 1, refresh="celery")


def test_nor_has_one_of_many() -> None:
    with pytest.raises(TypeError, match="is for functions with @cached"):
        get_or_load_many(["k"], dict.fromkeys, refresh="celery")
    with pytest.raises(TypeError, match="is for functions with @cached"):
        async_to_sync(aget_or_load_many)(["k"], dict.fromkeys, refresh="celery")


# Checks


def test_a_project_without_a_broker() -> None:
    """W006"""
    app = Celery("nowhere", set_as_current=False)
    (found,) = [doubt for doubt in doubts(app) if doubt.id == "celery_locks.W006"]
    assert 'has refresh="celery"' in found.message
    app.conf.broker_url = "memory://"
    assert [*doubts(app)] == []


def workers_may_not_know() -> list[str]:
    return [message.id for message in system_checks.run_checks(tags=["redis_locks"]) if message.id.endswith("W048")]


def test_a_project_that_caches_nothing() -> None:
    """Its workers don't load the package."""
    program = (
        "import sys, celery_locks\n"
        "from celery import Celery\n"
        "from celery_locks.checks import doubts\n"
        "app = Celery('plain')\n"
        "assert not list(doubts(app))\n"
        "assert 'celery_locks.load' in app.tasks\n"
        "assert 'django_redis_locks.cache' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_project_whose_workers_may_not_know_the_task(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """[S37] W048. A worker throws away what it doesn't know."""
    assert workers_may_not_know() == []
    monkeypatch.delitem(sys.modules, "celery_locks")
    assert workers_may_not_know() == ["redis_locks.W048"]
    app.conf.imports = ["celery_locks"]
    assert workers_may_not_know() == []
    app.conf.imports = []
    monkeypatch.delitem(sys.modules, "celery")
    assert workers_may_not_know() == ["redis_locks.W048"]
