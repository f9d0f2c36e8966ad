"""Which calls leave their lock to a transaction, and what is said about it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test import TestCase

from django_redis_locks import redis_lock
from tests.django.transaction_log import TransactionLog, is_busy, service

pytestmark = [pytest.mark.usefixtures("log"), pytest.mark.databases("sqlite")]


@redis_lock("until the call", hold="call")
def only_for_the_call() -> None: ...


@redis_lock("own")
@transaction.atomic
def own() -> None: ...


@redis_lock("async")
async def awork() -> None: ...


class TestCalls:
    def test_call_that_no_transaction_can_keep_releases_at_its_end(self, log: TransactionLog) -> None:
        """[D2] [D15] Of hold="call", and of a coroutine, which can't see the transaction of the thread that waits for it."""
        for call, key in ((only_for_the_call, "until the call"), (async_to_sync(awork), "async")):
            with transaction.atomic():
                call()
                assert log[-1] == f"release {key}"
                assert connection.run_on_commit == []
        for plain, key in ((service, "service"), (lambda: asyncio.run(awork()), "async")):
            log.clear()
            plain()
            log.equals(f"acquire {key}", f"release {key}")

    def test_HOLD_of_LOCKS_is_used_where_the_call_site_has_none(self, log: TransactionLog, settings: Any) -> None:
        entry = settings.REDIS_LOCKS["default"]
        settings.REDIS_LOCKS = {"default": {**entry, "LOCKS": {"service": {"HOLD": "call"}, "until the call": {}}}}
        with transaction.atomic():
            service()
            assert log[-1] == "release service"
        settings.REDIS_LOCKS = {"default": {**entry, "LOCKS": {"until the call": {"HOLD": "transaction"}}}}
        with transaction.atomic():
            only_for_the_call()
            assert log[-1] == "release until the call"

    def test_wrong_hold_raises_ValueError_at_decoration(self) -> None:
        for hold in ("forever", "Call", 1, ["call"]):
            with pytest.raises(ValueError, match="hold is 'call', 'transaction' or 'response'"):
                redis_lock("key", hold=hold)

    def test_transaction_inside_the_call_ends_before_the_lock(
        self, log: TransactionLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D2] [D3] And is not warned of."""
        own()
        log.equals("acquire own", "BEGIN default", "COMMIT default", "release own")
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_autocommit_off_is_warned_of_once(self, log: TransactionLog, caplog: pytest.LogCaptureFixture) -> None:
        """[D11] The moment of a commit by hand can't be known."""
        transaction.set_autocommit(False)
        try:
            service()
            service()
            assert log[-1] == "release service"
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert record.name == "django_redis_locks"
        assert "autocommit is off" in record.getMessage()

    def test_closed_connection_has_no_transaction(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D11]"""
        connections.close_all()
        del connections["default"]
        assert connections["default"].connection is None
        service()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_lock_inside_a_transaction_is_warned_of_once_per_name(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D3] [D12] The snapshot may be older than the lock."""
        for _ in range(2):
            with transaction.atomic():
                service()
                service()
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert record.name == "django_redis_locks"
        assert "inside an open transaction" in record.getMessage()
        assert "service" in record.getMessage()


class TestsOfUsers:
    def test_transaction_of_a_TestCase_is_ignored(self, log: TransactionLog) -> None:
        """[D10] `TestCase` has one around each test, which isn't the user's."""
        entered = TestCase._enter_atomics()  # type: ignore[attr-defined]
        try:
            service()
            assert log[-1] == "release service"
            with transaction.atomic():
                service()
            assert not is_busy()
        finally:
            TestCase._rollback_atomics(entered)  # type: ignore[attr-defined]
