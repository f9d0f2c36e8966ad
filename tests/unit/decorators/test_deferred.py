"""A lock that a call leaves to its transaction: what happens between two steps of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction

from django_redis_locks import Grant, locks
from django_redis_locks.core.owners import registry
from django_redis_locks.decorators import deferred
from tests.django.helpers import PATIENCE, until
from tests.django.transaction_log import Boom, is_busy, rolled_back, service

pytestmark = pytest.mark.django_db(transaction=True)


class Refusing:
    """A mutex that fails a thread that wants it while it refuses."""

    def __init__(self, mutex: Any) -> None:
        self.mutex = mutex
        self.refuses = False

    def __enter__(self) -> None:
        assert not self.refuses
        self.mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self.mutex.release()


def test_call_survives_a_cleanup_between_two_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """[D4] The call has seen the lock as its thread's own."""
    engine = locks["default"].engine
    call_many = engine.backend.call_many
    may_begin, at_it, may_send = threading.Event(), threading.Event(), threading.Event()

    def slowly(*args: Any) -> Any:
        at_it.set()
        may_send.wait(PATIENCE)
        return call_many(*args)

    def meanwhile(*args: Any, **changes: Any) -> Any:
        may_begin.set()
        at_it.wait(0.3)
        return replace(*args, **changes)

    monkeypatch.setattr(engine.backend, "call_many", slowly)
    with rolled_back():
        service()
        engine.alarm(0.0, lambda: may_begin.wait(PATIENCE))
    monkeypatch.setattr(deferred, "replace", meanwhile)
    try:
        assert service() == "served"
    finally:
        may_send.set()
    engine.settle(PATIENCE)
    assert not is_busy()


def test_error_of_a_release_at_commit_is_logged_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D14]"""

    def fail(self: object) -> None:
        raise Boom

    with transaction.atomic():
        service()
        monkeypatch.setattr(deferred.Deferred, "release", fail)
    monkeypatch.undo()
    assert "the release of a lock" in caplog.text
    locks.lock("service").release()


def test_interrupt_while_the_lock_is_deferred_frees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = registry.keep

    def interrupt(grant: Grant, *args: Any) -> None:
        if isinstance(grant, deferred.Deferred):
            raise KeyboardInterrupt
        keep(grant, *args)

    monkeypatch.setattr(registry, "keep", interrupt)
    with transaction.atomic():
        with pytest.raises(KeyboardInterrupt):
            service()
        monkeypatch.undo()
        until(lambda: not is_busy())


def test_finalizer_leaves_the_release_to_the_maintenance_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """[H13] The collector may run inside of our own mutexes or of a request to the store."""
    jobs: list[Callable[[], object]] = []
    monkeypatch.setattr(deferred.Deferred, "_put", lambda self, job: jobs.append(job))
    mutex = Refusing(registry._mutex)
    monkeypatch.setattr(registry, "_mutex", mutex)
    with transaction.atomic():
        service()
        hold = registry.newest(locks.lock("service").place).hold  # type: ignore[union-attr]
        transaction.set_rollback(True)
        with hold.mutex:
            mutex.refuses = True
            connection.run_on_commit.clear()
            mutex.refuses = False
        assert is_busy()
        jobs[-1]()
        until(lambda: not is_busy())
