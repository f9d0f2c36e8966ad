"""Which calls leave their lock to a transaction, and what is said about it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test import TestCase

from django_redis_locks import (
    redis_lock,
)
from tests.django.ledger import Ledger, is_busy, service

pytestmark = pytest.mark.usefixtures("ledger")


@redis_lock("until the call", hold="call")
def only_for_the_call() -> None:
    pass


class TestCalls:
    def test_hold_call(self, ledger: Ledger) -> None:
        """`hold="call"` ends with the call, whatever is open."""
        with transaction.atomic():
            only_for_the_call()
            assert ledger[-1] == "release until the call"
            assert connection.run_on_commit == []

    def test_hold_of_locks(self, ledger: Ledger, settings: Any) -> None:
        """`LOCKS[name]` says it where the call site says nothing."""
        entry = settings.REDIS_LOCKS["default"]
        settings.REDIS_LOCKS = {"default": {**entry, "LOCKS": {"service": {"HOLD": "call"}, "until the call": {}}}}
        with transaction.atomic():
            service()
            assert ledger[-1] == "release service"
        settings.REDIS_LOCKS = {"default": {**entry, "LOCKS": {"until the call": {"HOLD": "transaction"}}}}
        with transaction.atomic():
            only_for_the_call()
            assert ledger[-1] == "release until the call"

    @pytest.mark.parametrize("hold", ["forever", "Call", 1, ["call"]])
    def test_hold_is_checked(self, hold: Any) -> None:
        """At decoration."""
        with pytest.raises(ValueError, match="hold is 'call', 'transaction' or 'response'"):
            redis_lock("key", hold=hold)

    def test_no_transaction(self, ledger: Ledger) -> None:
        """[D2] Without one it ends with the call."""
        service()
        ledger.reads("acquire service", "release service")

    def test_its_own_transaction(self, ledger: Ledger) -> None:
        """[D2] A transaction inside the call ends before the lock."""

        @redis_lock("own")
        @transaction.atomic
        def own() -> None:
            pass

        own()
        ledger.reads("acquire own", "BEGIN default", "COMMIT default", "release own")

    def test_autocommit_is_off(self, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
        """[D11] Who commits by hand is told once that we can't know when."""
        transaction.set_autocommit(False)
        try:
            service()
            service()
            assert ledger[-1] == "release service"
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert record.name == "django_redis_locks"
        assert "autocommit is off" in record.getMessage()

    def test_no_connection_no_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D11] A connection that isn't open has no transaction either."""
        connections.close_all()
        del connections["default"]
        assert connections["default"].connection is None
        service()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_a_lock_inside_a_transaction_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D3] [D12] Its snapshot may be older than the lock, which no lock can mend: said once for each name."""
        for _ in range(2):
            with transaction.atomic():
                service()
                service()
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert record.name == "django_redis_locks"
        assert "inside an open transaction" in record.getMessage()
        assert "service" in record.getMessage()

    def test_a_lock_around_a_transaction_is_not(self, caplog: pytest.LogCaptureFixture) -> None:
        """[D3] As it should be."""

        @redis_lock("own")
        @transaction.atomic
        def own() -> None:
            pass

        own()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_async_to_sync(self, ledger: Ledger) -> None:
        """[D15] A coroutine can't see the transaction of the thread that waits for it."""

        @redis_lock("async")
        async def work() -> None:
            pass

        with transaction.atomic():
            async_to_sync(work)()
            assert ledger[-1] == "release async"

    def test_async(self, ledger: Ledger) -> None:
        """[D15] Without one there is nothing to wait for."""

        @redis_lock("async")
        async def work() -> None:
            pass

        asyncio.run(work())
        ledger.reads("acquire async", "release async")


class TestsOfUsers:
    def test_the_transaction_of_a_test(self, ledger: Ledger) -> None:
        """[D10] `TestCase` has one around each test, which isn't the user's."""
        entered = TestCase._enter_atomics()  # type: ignore[attr-defined]
        try:
            service()
            assert ledger[-1] == "release service"
            with transaction.atomic():
                service()
            assert not is_busy()
        finally:
            TestCase._rollback_atomics(entered)  # type: ignore[attr-defined]
