"""The notices thread calls receivers of signals, log handlers and on_lost for the maintenance thread."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from django_redis_locks.core import clock
from django_redis_locks.core.background_thread import BackgroundThread
from django_redis_locks.core.errors import LockBackendError
from django_redis_locks.core.keys import LockId
from django_redis_locks.core.tuning import DEFAULT
from django_redis_locks.engine import notices
from django_redis_locks.engine.notices import Notices
from django_redis_locks.engine.on_lost import call_on_lost
from tests.unit.core.holds import a_hold
from tests.waiting import eventually

PATIENCE = 30.0


@pytest.fixture
def queue() -> Notices:
    return Notices(SimpleNamespace(tuning=DEFAULT))


def test_calls_are_made_in_their_order_and_one_that_fails_is_logged(
    queue: Notices, caplog: pytest.LogCaptureFixture
) -> None:
    """[E2] Not even sys.exit() ends the thread."""
    made: list[object] = []
    for number in range(3):
        queue.submit(lambda number=number: made.append((number, threading.current_thread().name)))
        queue.submit(lambda: sys.exit("user code"))
    queue.wait_until_idle(PATIENCE)
    assert made == [(number, "django-redis-locks notices") for number in range(3)]
    assert [record.getMessage() for record in caplog.records] == ["A notice of a lock failed"] * 3


def test_calls_beyond_the_bound_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """[E2] A receiver that never returns costs a bounded amount of memory."""
    queue = Notices(SimpleNamespace(tuning=replace(DEFAULT, max_queued_notices=3)))
    made: list[int] = []
    began, goes_on = threading.Event(), threading.Event()
    queue.submit(lambda: (began.set(), goes_on.wait(PATIENCE)))
    assert began.wait(PATIENCE)
    for number in range(5):
        queue.submit(lambda number=number: made.append(number))
    goes_on.set()
    eventually(lambda: not queue.busy(lambda thread: False))
    assert made == [0, 1, 2]
    eventually(lambda: caplog.records)
    assert [record.args for record in caplog.records] == [(2,)]


def test_reactions_come_before_other_calls_and_are_never_dropped() -> None:
    """[E2] A task's abort doesn't wait for the mail about it."""
    queue = Notices(SimpleNamespace(tuning=replace(DEFAULT, max_queued_notices=2)))
    made: list[str] = []
    began, goes_on = threading.Event(), threading.Event()
    queue.submit(lambda: (began.set(), goes_on.wait(PATIENCE)))
    assert began.wait(PATIENCE)
    for _ in range(5):
        queue.submit(lambda: made.append("event"))
        queue.submit_first(lambda: made.append("on_lost"))
    goes_on.set()
    eventually(lambda: not queue.busy(lambda thread: False))  # and the dropped calls are logged
    assert made == ["on_lost"] * 5 + ["event"] * 2


def test_on_lost_method_at_once_is_called_before_other_calls() -> None:
    """[E2] The abort of a Celery run."""
    made: list[str] = []

    class Reaction:
        def at_once(self) -> None:
            made.append("at once")

        def __call__(self, grant: object) -> None:
            made.append("later")

    hold, posted = a_hold(LockId("store", "lock"), clock.now()), []
    hold.on_lost, hold.grant = Reaction(), object
    call_on_lost(hold, posted.append)
    assert made == ["at once"]
    posted[0]()
    assert made == ["at once", "later"]


def test_log_handler_that_exits_does_not_end_the_thread(queue: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices._log, "exception", sys.exit)
    made: list[int] = []
    queue.submit(sys.exit)
    queue.submit(lambda: made.append(1))
    queue.wait_until_idle(PATIENCE)
    assert made == [1]


def test_call_in_a_process_without_threads_is_made_at_once(queue: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: BackgroundThread) -> None:
        raise LockBackendError("no thread")

    monkeypatch.setattr(BackgroundThread, "start", start)
    made: list[int] = []
    queue.submit(lambda: made.append(threading.get_ident()))
    assert made == [threading.get_ident()]
