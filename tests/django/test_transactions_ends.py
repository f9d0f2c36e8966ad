"""A lock that is taken inside an open transaction, and every way in which that can end."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from django.core.signals import request_finished
from django.db import IntegrityError, connection, connections, transaction

from django_redis_locks import LockBackendError, locks, redis_lock
from tests.django.helpers import PATIENCE, Events, in_thread, until
from tests.django.transaction_log import Boom, TransactionLog, is_busy, rolled_back, service
from tests.probes.django import events

pytestmark = [pytest.mark.usefixtures("log"), pytest.mark.databases("sqlite")]


def fail() -> None:
    raise Boom


class TestEnds:
    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    def test_commit_releases(self, log: TransactionLog) -> None:
        """[D2]"""
        with transaction.atomic():
            service()
            log.append("on")
            assert is_busy()
        log.equals("BEGIN default", "acquire service", "on", "COMMIT default", "release service")

    def test_commit_of_the_last_open_transaction_releases(self, log: TransactionLog) -> None:
        """[D2]"""
        with transaction.atomic(using="other"):
            with transaction.atomic():
                service()
            assert is_busy()
            log.append("on")
        begun, ended = ["BEGIN other", "BEGIN default"], ["COMMIT default", "on", "COMMIT other"]
        log.equals(*begun, "acquire service", *ended, "release service")

    def test_end_of_a_savepoint_keeps_the_lock(self, log: TransactionLog) -> None:
        """[D2]"""
        with transaction.atomic():
            with transaction.atomic():
                service()
            assert is_busy()
        log.equals("BEGIN default", "acquire service", "COMMIT default", "release service")

    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    def test_rollback_releases(self, log: TransactionLog) -> None:
        """[D4] Though Django calls nothing back."""
        with rolled_back():
            service()
        log.equals("BEGIN default", "acquire service", "ROLLBACK default", "release service")
        log.clear()
        with transaction.atomic():
            service()
            transaction.set_rollback(True)
        log.equals("BEGIN default", "acquire service", "ROLLBACK default", "release service")

    def test_call_that_raises_keeps_its_lock_until_commit(self, log: TransactionLog) -> None:
        """[D4]"""
        with transaction.atomic():
            with pytest.raises(Boom):
                redis_lock("service")(fail)()
            assert is_busy()
        log.equals("BEGIN default", "acquire service", "COMMIT default", "release service")

    def test_rollback_of_one_of_two_transactions_keeps_the_lock(self, log: TransactionLog) -> None:
        """[D4]"""
        with transaction.atomic(using="other"):
            with rolled_back():
                service()
            locks["default"].engine.settle(PATIENCE)
            assert is_busy()
        log.wait_for("release service")
        assert log[-3:] == ["ROLLBACK default", "COMMIT other", "release service"]

    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    def test_rollback_to_a_savepoint_releases(self, log: TransactionLog) -> None:
        """[D6] Its writes are gone, while the transaction goes on."""
        with transaction.atomic():
            with rolled_back():
                service()
            log.wait_for("release service")
            assert not is_busy()
        log.begins_with("BEGIN default", "acquire service", "ROLLBACK TO default", "release service")

    def test_inner_block_without_a_savepoint_keeps_the_lock(self, log: TransactionLog) -> None:
        """[D6] An exception that is caught condemns the whole transaction."""
        with transaction.atomic():
            with rolled_back(savepoint=False):
                service()
            locks["default"].engine.settle(PATIENCE)
            assert is_busy()
        log.equals("BEGIN default", "acquire service", "ROLLBACK default", "release service")

    def test_earlier_callback_that_raises_frees_the_lock(self, log: TransactionLog) -> None:
        """[D4] Django then calls no other; ours is dropped with the exception."""
        with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
            transaction.on_commit(fail)
            service()
        log.equals("BEGIN default", "acquire service", "COMMIT default", "release service")

    def test_end_of_the_request_frees_a_lock_whose_callback_is_in_a_traceback(self, log: TransactionLog) -> None:
        """[D4] While the exception of an earlier callback is referenced."""
        with pytest.raises(Boom) as kept, transaction.atomic():  # noqa: PT012
            transaction.on_commit(fail)
            service()
        gc.collect()
        locks["default"].engine.settle(PATIENCE)
        assert is_busy()
        request_finished.send(sender=None)
        assert not is_busy()
        assert kept.value is not None
        log.begins_with("BEGIN default", "acquire service", "COMMIT default", "release service")

    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    def test_closed_connection_frees_the_lock(self, log: TransactionLog) -> None:
        """[D4] Nothing was committed."""
        with transaction.atomic():
            service()
            connection.close()
            log.wait_for("release service")
        assert not is_busy()

    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    def test_failed_commit_releases_after_the_rollback(
        self, log: TransactionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[D5]"""

        def fail() -> None:
            log.append("COMMIT failed")
            raise IntegrityError

        with pytest.raises(IntegrityError), transaction.atomic():  # noqa: PT012
            service()
            monkeypatch.setattr(connections["default"], "_commit", fail)
        log.equals("BEGIN default", "acquire service", "COMMIT failed", "ROLLBACK default", "release service")

    def test_earlier_callback_runs_under_the_lock(self, log: TransactionLog) -> None:
        """[D14]"""
        with transaction.atomic():
            transaction.on_commit(lambda: log.append("busy" if is_busy() else "free"))
            service()
        log.equals("BEGIN default", "acquire service", "COMMIT default", "busy", "release service")

    @pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
    def test_end_of_a_thread_with_an_open_transaction_frees_the_lock(self, log: TransactionLog) -> None:
        """[D4] The connection dies with its thread, and so does the callback."""

        def leave_open() -> None:
            transaction.atomic().__enter__()
            service()
            assert is_busy()

        in_thread(leave_open)
        gc.collect()
        log.wait_for("release service")

    def test_store_that_is_down_at_commit_fails_no_request(
        self, log: TransactionLog, seen: Events, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[D14] The failure is logged and sent as a signal."""

        def down(*_: object) -> Any:
            raise LockBackendError("down")

        with transaction.atomic():
            service()
            monkeypatch.setattr(locks["default"].engine.backend, "call", down)
        monkeypatch.undo()
        assert len(seen.of(events.BackendFailed)) == 1
        until(lambda: not locks.lock("service").locked())
