"""A lock that is taken inside an open transaction, and every way in which that can end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from django.core.signals import request_finished
from django.db import IntegrityError, connection, connections, transaction

from django_redis_locks import (
    LockBackendError,
    locks,
    redis_lock,
)
from django_redis_locks.core import events
from django_redis_locks.core.owners import registry
from django_redis_locks.decorators import deferred
from tests.django.helpers import PATIENCE, Events, in_thread, until
from tests.django.ledger import Boom, Ledger, is_busy, rolled_back, service

pytestmark = pytest.mark.usefixtures("ledger")


class Refusing:
    """A mutex that nobody may want while it refuses."""

    def __init__(self, mutex: Any) -> None:
        self.mutex = mutex
        self.refuses = False

    def __enter__(self) -> None:
        assert not self.refuses
        self.mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self.mutex.release()


class TestEnds:
    def test_commit(self, ledger: Ledger) -> None:
        """[D2] Released by COMMIT."""
        with transaction.atomic():
            service()
            ledger.note("on")
            assert is_busy()
        ledger.reads("BEGIN default", "acquire service", "on", "COMMIT default", "release service")

    def test_commit_of_the_last_of_two(self, ledger: Ledger) -> None:
        """[D2] Released when all transactions that were open have ended."""
        with transaction.atomic(using="other"):
            with transaction.atomic():
                service()
            assert is_busy()
            ledger.note("on")
        begun, ended = ["BEGIN other", "BEGIN default"], ["COMMIT default", "on", "COMMIT other"]
        ledger.reads(*begun, "acquire service", *ended, "release service")

    def test_commit_of_a_savepoint(self, ledger: Ledger) -> None:
        """[D2] A savepoint's end is no COMMIT."""
        with transaction.atomic():
            with transaction.atomic():
                service()
            assert is_busy()
        ledger.reads("BEGIN default", "acquire service", "COMMIT default", "release service")

    def test_exception(self, ledger: Ledger) -> None:
        """[D4] Released after ROLLBACK, though nothing tells of it."""
        with rolled_back():
            service()
        ledger.reads("BEGIN default", "acquire service", "ROLLBACK default", "release service")

    def test_exception_in_the_call(self, ledger: Ledger) -> None:
        """[D4] A call that raises keeps its lock too, as the transaction is still open."""

        @redis_lock("service")
        def fails() -> None:
            raise Boom

        with transaction.atomic():
            with pytest.raises(Boom):
                fails()
            assert is_busy()
        ledger.reads("BEGIN default", "acquire service", "COMMIT default", "release service")

    def test_one_rolled_back_and_one_committed(self, ledger: Ledger) -> None:
        """[D4] Of two transactions each may end in its own way."""
        with transaction.atomic(using="other"):
            with rolled_back():
                service()
            locks["default"].engine.settle(PATIENCE)
            assert is_busy()
        ledger.once("release service")
        assert ledger[-3:] == ["ROLLBACK default", "COMMIT other", "release service"]

    def test_savepoint_rolled_back(self, ledger: Ledger) -> None:
        """[D6] Its writes are gone, and so is the lock, while the transaction goes on."""
        with transaction.atomic():
            with rolled_back():
                service()
            ledger.once("release service")
            assert not is_busy()
        ledger.starts("BEGIN default", "acquire service", "ROLLBACK TO default", "release service")

    def test_block_without_a_savepoint(self, ledger: Ledger) -> None:
        """[D6] Without a savepoint an exception that is caught condemns the whole transaction."""
        with transaction.atomic():
            with rolled_back(savepoint=False):
                service()
            locks["default"].engine.settle(PATIENCE)
            assert is_busy()
        ledger.reads("BEGIN default", "acquire service", "ROLLBACK default", "release service")

    def test_set_rollback(self, ledger: Ledger) -> None:
        """[D4] Rolled back without an exception."""
        with transaction.atomic():
            service()
            transaction.set_rollback(True)
        ledger.reads("BEGIN default", "acquire service", "ROLLBACK default", "release service")

    def test_an_earlier_callback_fails(self, ledger: Ledger) -> None:
        """[D4] Django then calls no other. What is left is dropped with the exception."""

        def fail() -> None:
            raise Boom

        with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
            transaction.on_commit(fail)
            service()
        ledger.reads("BEGIN default", "acquire service", "COMMIT default", "release service")

    def test_an_earlier_callback_fails_and_is_kept(self, ledger: Ledger) -> None:
        """[D4] While somebody keeps the exception, our callback is in its traceback. The end of the request frees the lock."""

        def fail() -> None:
            raise Boom

        kept = None
        try:
            with transaction.atomic():
                transaction.on_commit(fail)
                service()
        except Boom as error:
            kept = error
        gc.collect()
        locks["default"].engine.settle(PATIENCE)
        assert is_busy()
        request_finished.send(sender=None)
        assert not is_busy()
        assert kept is not None
        ledger.starts("BEGIN default", "acquire service", "COMMIT default", "release service")

    def test_connection_closed(self, ledger: Ledger) -> None:
        """[D4] Closed inside, so nothing was committed."""
        with transaction.atomic():
            service()
            connection.close()
            ledger.once("release service")
        assert not is_busy()

    def test_commit_fails(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D5] Released after the ROLLBACK that follows."""

        def fail() -> None:
            ledger.note("COMMIT failed")
            raise IntegrityError

        with pytest.raises(IntegrityError), transaction.atomic():  # noqa: PT012
            service()
            monkeypatch.setattr(connections["default"], "_commit", fail)
        ledger.reads("BEGIN default", "acquire service", "COMMIT failed", "ROLLBACK default", "release service")

    def test_slow_callbacks(self, ledger: Ledger) -> None:
        """[D14] Callbacks that were registered earlier run under the lock."""
        with transaction.atomic():
            transaction.on_commit(lambda: ledger.note("busy" if is_busy() else "free"))
            service()
        ledger.reads("BEGIN default", "acquire service", "COMMIT default", "busy", "release service")

    @pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
    def test_thread_ends_with_its_transaction_open(self, ledger: Ledger) -> None:
        """[D4] The connection dies with its thread, and what it would have called with it."""

        def leave_open() -> None:
            transaction.atomic().__enter__()
            service()
            assert registry.newest(locks.lock("service").place) is not None

        in_thread(leave_open)
        gc.collect()
        ledger.once("release service")

    def test_the_store_is_down_at_commit(self, ledger: Ledger, seen: Events, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D14] COMMIT has been done, so it is told in the log and by the signal, and the request doesn't fail."""

        def down(*_: object) -> Any:
            raise LockBackendError("down")

        with transaction.atomic():
            service()
            monkeypatch.setattr(locks["default"].engine.backend, "call", down)
        monkeypatch.undo()
        assert len(seen.of(events.BackendFailed)) == 1
        until(lambda: not locks.lock("service").locked())


def test_a_finalizer_only_tells_the_janitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """[H13] The collector may choose any moment, also one inside of our own mutexes or of a request to the store."""
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
