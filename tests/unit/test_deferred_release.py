"""A lock whose release is deferred to the end of a transaction: interruptions between two steps."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_redis_locks import Grant, deferred_release, locks
from django_redis_locks.core.registry import registry
from tests.django.helpers import PATIENCE, wait_until
from tests.django.transaction_log import UserError, is_busy, rolled_back, service

pytestmark = pytest.mark.django_db(transaction=True)


class RefusingMutex:
    """A mutex that fails a thread that acquires it while ``refuses`` is set."""

    def __init__(self, mutex: Any) -> None:
        self.mutex = mutex
        self.refuses = False

    def __enter__(self) -> None:
        assert not self.refuses
        self.mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self.mutex.release()


def test_call_after_a_rollback_needs_no_maintenance_thread() -> None:
    """[D4] The calling thread frees the lock itself."""
    proceed = threading.Event()
    locks["default"].engine.call_at(0.0, lambda: proceed.wait(PATIENCE))
    try:
        with rolled_back():
            service()
        assert service() == "served"
        assert not is_busy()
    finally:
        proceed.set()


def test_error_of_a_release_at_commit_is_logged_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D14] The next call frees the lock."""

    def fail(self: object) -> None:
        raise UserError

    with transaction.atomic():
        service()
        monkeypatch.setattr(deferred_release.DeferredGrant, "release", fail)
    monkeypatch.undo()
    assert "the release of a lock" in caplog.text
    service()
    assert not is_busy()


def test_interrupt_while_the_lock_is_deferred_frees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = registry.register

    def interrupt(grant: Grant, *args: Any) -> None:
        if isinstance(grant, deferred_release.DeferredGrant):
            raise KeyboardInterrupt
        keep(grant, *args)

    monkeypatch.setattr(registry, "register", interrupt)
    with transaction.atomic():
        with pytest.raises(KeyboardInterrupt):
            service()
        monkeypatch.undo()
        wait_until(lambda: not is_busy())


def test_finalizer_leaves_the_release_to_the_maintenance_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """[H13] The garbage collector may run while one of our mutexes is held, or during a request to the store."""
    jobs: list[Callable[[], object]] = []
    monkeypatch.setattr(deferred_release.DeferredGrant, "_submit", lambda self, job: jobs.append(job))
    mutex = RefusingMutex(registry._mutex)
    monkeypatch.setattr(registry, "_mutex", mutex)
    with transaction.atomic():
        service()
        hold = registry.newest(locks.lock("service").lock_id, deferred=True).hold  # type: ignore[union-attr]
        transaction.set_rollback(True)
        with hold.mutex.rlock:
            mutex.refuses = True
            connection.run_on_commit.clear()
            mutex.refuses = False
        assert is_busy()
        jobs[-1]()
        wait_until(lambda: not is_busy())


def test_thread_that_ends_in_its_transaction_frees_its_lock_without_a_collection() -> None:
    """[E20] Also if the database connection is still referenced."""
    kept: list[Any] = []

    def leave() -> None:
        transaction.atomic().__enter__()
        service()
        kept.append(connections["default"])
        kept[0].inc_thread_sharing()

    gc.disable()
    try:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        wait_until(lambda: not is_busy())
    finally:
        gc.enable()
        kept[0].connection.close()  # its wrapper keeps a database in memory open
