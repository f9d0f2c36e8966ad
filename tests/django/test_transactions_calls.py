"""Which calls leave their lock to a transaction, what is logged about it, how the lock is held between the end of such
a call and the end of its transaction, and every way in which that can end."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.signals import request_finished
from django.db import IntegrityError, connection, connections, transaction
from django.test import TestCase

from django_redis_locks import LockAlreadyHeld, LockNotAcquired, current_grant, locks, redis_lock
from django_redis_locks.testing import ManualClock
from tests.django.helpers import LEASE, PATIENCE, Events, in_thread, wait_until
from tests.django.transaction_log import TransactionLog, UserError, is_busy, rolled_back, service
from tests.forks import in_child
from tests.probes.django import events, maintenance_thread_runs, run_in_maintenance_thread
from tests.probes.tuning import Tune

pytestmark = [pytest.mark.usefixtures("log"), pytest.mark.databases("sqlite")]


@redis_lock("until the call", hold="call")
def only_for_the_call() -> None: ...


@redis_lock("own")
@transaction.atomic
def own() -> None: ...


@redis_lock("async")
async def awork() -> None: ...


class TestCalls:
    def test_call_without_a_usable_transaction_releases_at_its_end(self, log: TransactionLog) -> None:
        """[D2] [D15] With hold="call", and for a coroutine, which can't see the transaction of the calling thread."""
        for call, key in ((only_for_the_call, "until the call"), (async_to_sync(awork), "async")):
            with transaction.atomic():
                call()
                assert log[-1] == f"release {key}"
                assert connection.run_on_commit == []
        for plain, key in ((service, "service"), (lambda: asyncio.run(awork()), "async")):
            log.clear()
            plain()
            log.assert_equals(f"acquire {key}", f"release {key}")

    def test_HOLD_of_LOCKS_is_used_where_the_call_site_has_none(self, log: TransactionLog, settings: Any) -> None:
        entry = settings.REDIS_LOCKS["default"]
        table = {"service": {"HOLD": "call"}, "until the call": {"HOLD": "transaction"}}
        settings.REDIS_LOCKS = {"default": {**entry, "LOCKS": table}}
        with transaction.atomic():
            for call, key in ((service, "service"), (only_for_the_call, "until the call")):
                call()
                assert log[-1] == f"release {key}"
        for hold in ("forever", "Call", 1, ["call"]):
            with pytest.raises(ValueError, match="hold is one of 'call', 'transaction', 'response'"):
                redis_lock("key", hold=hold)

    def test_transaction_inside_the_call_ends_before_the_lock(
        self, log: TransactionLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D2] [D3] [D11] Without a warning. A closed connection has no transaction."""
        own()
        log.assert_equals("acquire own", "BEGIN default", "COMMIT default", "release own")
        connections.close_all()
        del connections["default"]
        assert connections["default"].connection is None
        service()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    def test_lock_inside_a_transaction_or_without_autocommit_logs_one_warning(
        self, log: TransactionLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D3] [D11] [D12] The snapshot may be older than the lock; the time of a manual commit is unknown."""
        for _ in range(2):
            with transaction.atomic():
                service()
                service()
        transaction.set_autocommit(False)
        try:
            service()
            service()
            assert log[-1] == "release service"
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        found = [record for record in caplog.records if record.levelno == logging.WARNING]
        for record, message in zip(found, ("inside an open transaction", "autocommit is off"), strict=True):
            assert record.name == "django_redis_locks"
            assert "Lock service" in record.getMessage()
            assert message in record.getMessage()

    def test_transaction_of_a_TestCase_is_ignored(self, log: TransactionLog) -> None:
        """[D10] `TestCase` wraps each test in a transaction."""
        entered = TestCase._enter_atomics()  # type: ignore[attr-defined]
        try:
            service()
            assert log[-1] == "release service"
            with transaction.atomic():
                service()
            assert not is_busy()
        finally:
            TestCase._rollback_atomics(entered)  # type: ignore[attr-defined]

    def test_call_that_holds_no_lock_at_its_end_registers_no_callback(
        self, log: TransactionLog, request: pytest.FixtureRequest
    ) -> None:
        """[D2] A cool-down, which stays until its lease ends; a lock released inside of a re-entrant call; and a call
        without a lock by `on_backend_error="open"`."""

        @redis_lock("cooling", expire=20, auto_release=False)
        def rate_limited() -> None: ...

        release = lambda: current_grant().release()  # noqa: E731
        with transaction.atomic():
            rate_limited()
            with pytest.raises(LockNotAcquired):
                rate_limited()
            redis_lock("own")(release)()
            assert log[-1] == "release own"
            with locks.rlock("outer"):
                redis_lock("outer", reentrant=True)(release)()
            assert log[-1] == "release outer"
            assert connection.run_on_commit == []
        assert "release cooling" not in log
        assert locks.lock("cooling").force_release()
        request.getfixturevalue("store_down")
        with transaction.atomic():
            redis_lock("open", on_backend_error="open")(lambda: None)()
            assert connection.run_on_commit == []


class TestBetweenCallAndEndOfTransaction:
    def test_next_call_in_the_transaction_reenters_the_lock(self, log: TransactionLog) -> None:
        """[D2] The grant of an earlier call isn't the current one. Several calls register one callback."""
        with transaction.atomic():
            grant = redis_lock("service")(current_grant)()
            assert current_grant() is None
            assert grant.released
            grant.release()
            for _ in range(3):
                with transaction.atomic():
                    assert redis_lock("service")(is_busy)()
            assert len(connection.run_on_commit) == 1
            assert is_busy()
        assert log[-2:] == ["COMMIT default", "release service"]
        assert log.count("release service") == 1
        assert not is_busy()

    def test_maintenance_thread_runs_before_a_finalizer_needs_it(self, memory_locks: Any) -> None:
        """[H13] Finalizers can't start threads, and a fixed lease doesn't need one."""
        memory_locks(LOCATION="a new one")
        with rolled_back():
            redis_lock("fixed", expire=30)(lambda: None)()
            assert maintenance_thread_runs()

    def test_callback_in_a_forked_child_releases_nothing(self) -> None:
        """[D37] Whether it is called or dropped."""

        def end(called: bool) -> None:
            if called:
                connection.run_on_commit[0][1]()
            connection.run_on_commit.clear()
            gc.collect()
            locks["default"].engine.wait_until_idle(PATIENCE)

        with transaction.atomic():
            service()
            for called in (True, False):
                in_child(lambda called=called: end(called))
                assert is_busy()
        assert not is_busy()

    def test_lock_is_held_until_the_end_of_transactions_on_all_databases(self, log: TransactionLog) -> None:
        """[D2] An outer transaction counts from the next call on."""
        with transaction.atomic():
            service()
            with transaction.atomic(using="other"):
                service()
            assert is_busy()
        assert log[-2:] == ["COMMIT default", "release service"]
        with transaction.atomic(using="other"):
            with transaction.atomic():
                service()
            service()
            assert is_busy()
        assert log[-2:] == ["COMMIT other", "release service"]

    def test_lock_that_would_wait_for_itself_raises(self) -> None:
        """Inside of the call, or before its own commit. A re-entrant one enters again."""

        @redis_lock("service")
        def nested() -> None:
            with pytest.raises(LockAlreadyHeld):
                service()

        with transaction.atomic():
            nested()
            nested()
            with pytest.raises(LockAlreadyHeld):
                locks.lock("service", wait=PATIENCE).acquire()
            with locks.rlock("service"):
                pass
            assert is_busy()

    def test_lease_is_renewed_until_commit(self, manual_clock: ManualClock) -> None:
        """[D14] Even if the transaction takes longer than the lease."""
        with transaction.atomic():
            service()
            manual_clock.advance(100)
            assert is_busy()
        assert not is_busy()

    def test_loss_before_commit_is_sent_and_on_lost_is_called(self, received: Events) -> None:
        """[D30] The next call acquires again."""
        lost: list[Any] = []
        with transaction.atomic():
            decorated = redis_lock("short", expire=LEASE, wait=PATIENCE, on_lost=lost.append)
            first = decorated(lambda: current_grant().fence)()
            wait_until(lambda: not locks.lock("short").locked())
            second = redis_lock("short", expire=30)(lambda: current_grant().fence)()
            assert second > first
        wait_until(lambda: lost and received.of(events.Lost))
        assert lost[0].lost
        assert [event.fence for event in received.of(events.Lost)] == [first]
        assert [event.fence for event in received.of(events.Released)] == [second]

    @pytest.mark.parametrize("lease", [LEASE, 300], ids=["expired", "taken"])
    def test_loss_found_at_commit_calls_on_lost(self, lease: float) -> None:
        """Even if the maintenance thread hasn't found it first."""
        lost: list[Any] = []
        go_on, done = threading.Event(), threading.Event()
        with transaction.atomic():
            redis_lock("short", expire=lease, on_lost=lost.append)(lambda: None)()
            run_in_maintenance_thread(partial(go_on.wait, PATIENCE))
            if lease > LEASE:
                locks.lock("short").force_release()
            wait_until(lambda: not locks.lock("short").locked())
        wait_until(lambda: lost)
        go_on.set()
        run_in_maintenance_thread(done.set)
        assert done.wait(PATIENCE)
        assert len(lost) == 1


# Each way in which the transaction can end


def fail() -> None:
    raise UserError


def settled_and_busy() -> bool:
    """Whether a call is refused after the maintenance thread has released all it had to."""
    locks["default"].engine.wait_until_idle(PATIENCE)
    return is_busy()


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_commit_and_rollback_release_the_lock(log: TransactionLog) -> None:
    """[D2] [D4] [D6] The end of a savepoint, or an exception of the call, does not. Django has no rollback callback. An
    exception in an inner block without a savepoint rolls back the whole transaction."""
    with transaction.atomic():
        with transaction.atomic(), suppress(UserError):
            redis_lock("service")(fail)()
        log.append("on")
        assert is_busy()
    log.assert_equals("BEGIN default", "acquire service", "on", "COMMIT default", "release service")
    for outer, inner in (
        (transaction.atomic, nullcontext),
        (rolled_back, nullcontext),
        (transaction.atomic, rolled_back),
    ):
        log.clear()
        with outer():
            with inner(**({"savepoint": False} if inner is rolled_back else {})):
                service()
            assert settled_and_busy()
            transaction.set_rollback(outer is transaction.atomic)
        log.assert_equals("BEGIN default", "acquire service", "ROLLBACK default", "release service")


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_rollback_to_a_savepoint_releases_nothing(log: TransactionLog) -> None:
    """[D2] [D6] Rows written before the savepoint are still uncommitted, and the lock protects them."""
    with transaction.atomic():
        with rolled_back():
            service()
        assert settled_and_busy()
    log.assert_equals("BEGIN default", "acquire service", "ROLLBACK TO default", "COMMIT default", "release service")


def test_rollback_to_a_savepoint_keeps_the_lock_of_another_call() -> None:
    """[D6] Of an earlier and of a later one."""
    for earlier in (True, False):
        with transaction.atomic():
            if earlier:
                service()
            with rolled_back():
                service()
            if not earlier:
                service()
            assert settled_and_busy()
        assert not is_busy()


def test_earlier_callback_that_raises_frees_the_lock(log: TransactionLog) -> None:
    """[D4] [D14] Django then skips later callbacks. The lock is released when the callback is garbage-collected, or at
    the end of the request if a traceback refers to it."""
    for refers in (False, True):
        log.clear()
        with pytest.raises(UserError) as kept, transaction.atomic():  # noqa: PT012
            transaction.on_commit(lambda: log.append("busy" if is_busy() else "free"))
            transaction.on_commit(fail)
            service()
        gc.collect()
        if refers:
            assert settled_and_busy()
            request_finished.send(sender=None)
            assert not is_busy()
            assert kept.value is not None
        del kept
        log.assert_begins_with("BEGIN default", "acquire service", "COMMIT default", "busy", "release service")


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_closed_connection_frees_the_lock(log: TransactionLog) -> None:
    """[D4] The transaction wasn't committed."""
    with transaction.atomic():
        service()
        connection.close()
        log.wait_for("release service")
    assert not is_busy()


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_failed_commit_releases_after_the_rollback(log: TransactionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D5]"""

    def fail() -> None:
        log.append("COMMIT failed")
        raise IntegrityError

    with pytest.raises(IntegrityError), transaction.atomic():  # noqa: PT012
        service()
        monkeypatch.setattr(connections["default"], "_commit", fail)
    log.assert_equals("BEGIN default", "acquire service", "COMMIT failed", "ROLLBACK default", "release service")


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_end_of_a_thread_with_an_open_transaction_frees_the_lock(log: TransactionLog) -> None:
    """[D4] The connection and the callback end with the thread."""

    def leave_open() -> None:
        transaction.atomic().__enter__()
        service()
        assert is_busy()

    in_thread(leave_open)
    gc.collect()
    log.wait_for("release service")


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("end", [transaction.atomic, rolled_back])
def test_waiting_thread_acquires_at_the_end_of_the_transaction(log: TransactionLog, tune: Tune, end: Any) -> None:
    """[D2] [D4] By a notification: the polling interval is a minute."""
    tune(max_poll_interval=60.0)

    @redis_lock("service", wait=2 * PATIENCE)
    def waiting() -> None:
        log.append("the other one")

    other = threading.Thread(target=waiting, daemon=True)
    with end():
        service()
        other.start()
        wait_until(locks["default"].engine.expects_messages)
    other.join(PATIENCE)
    assert log.index("the other one") > log.index(f"{'COMMIT' if end is transaction.atomic else 'ROLLBACK'} default")
