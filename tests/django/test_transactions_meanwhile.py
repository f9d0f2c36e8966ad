"""Between the end of a call and the end of its transaction the lock is held, and its thread may enter again."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
from django.db import connection, transaction

from django_redis_locks import LockAlreadyHeld, current_grant, locks, redis_lock
from django_redis_locks.testing import ManualClock
from tests.django.helpers import LEASE, MEMORY, PATIENCE, Events, in_thread, until
from tests.django.transaction_log import Boom, TransactionLog, is_busy, rolled_back, service
from tests.forks import in_child
from tests.probes.django import events, maintenance_thread_runs
from tests.probes.tuning import Tune

pytestmark = [pytest.mark.usefixtures("log"), pytest.mark.databases("sqlite")]


@redis_lock("service")
def same_lock() -> str:
    assert in_thread(lambda: locks.lock("service").acquire(timeout=0)) is None
    return "served"


class TestMeanwhile:
    def test_grant_of_a_call_that_ended_is_released(self) -> None:
        """[D2] It isn't the current grant, and the lock is still busy."""
        with transaction.atomic():
            grant = redis_lock("service")(current_grant)()
            assert current_grant() is None
            assert grant.given_back
            grant.release()
            assert is_busy()

    def test_next_call_in_the_transaction_enters_again(self, log: TransactionLog) -> None:
        """[D2]"""
        with transaction.atomic():
            service()
            assert same_lock() == "served"
            assert service() == "served"
            assert is_busy()
        assert log[-2:] == ["COMMIT default", "release service"]
        assert log.count("release service") == 1
        assert not is_busy()

    def test_loop_of_calls_leaves_one_callback(self) -> None:
        """[D2]"""
        with transaction.atomic():
            for _ in range(50):
                with transaction.atomic():
                    service()
            assert len(connection.run_on_commit) == 1

    def test_rollback_to_a_savepoint_keeps_the_lock_of_an_earlier_call(self, log: TransactionLog) -> None:
        """[D6]"""
        with transaction.atomic():
            service()
            with rolled_back():
                service()
            locks["default"].engine.settle(PATIENCE)
            assert is_busy()
        assert log[-2:] == ["COMMIT default", "release service"]

    def test_call_after_a_rollback_to_a_savepoint_holds_until_commit(self, log: TransactionLog) -> None:
        """[D6] At once, whether or not the maintenance thread has freed the lock."""
        for _ in range(20):
            with transaction.atomic():
                with rolled_back():
                    service()
                service()
                locks["default"].engine.settle(PATIENCE)
                assert is_busy()
            assert not is_busy()

    def test_call_right_after_a_rollback_is_served(self) -> None:
        """[D4] Whether or not the maintenance thread has freed the lock."""
        for _ in range(50):
            with rolled_back():
                service()
            assert service() == "served"

    def test_call_waits_for_a_cleanup_that_has_begun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D4]"""
        engine = locks["default"].engine
        settle, call_many = engine.settle, engine.backend.call_many
        at_it, go = threading.Event(), threading.Event()

        def slowly(*args: Any) -> Any:
            at_it.set()
            go.wait(0.5)
            return call_many(*args)

        def settled(seconds: float) -> None:
            go.set()
            settle(seconds)

        with rolled_back():
            service()
            monkeypatch.setattr(engine.backend, "call_many", slowly)
            monkeypatch.setattr(engine, "settle", settled)
        assert at_it.wait(PATIENCE)
        assert service() == "served"

    def test_maintenance_thread_runs_before_a_finalizer_needs_it(self, settings: Any) -> None:
        """[H13] A finalizer must start no thread; a fixed lease alone needs none."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "LOCATION": "a new one"}}
        with rolled_back():
            redis_lock("fixed", expire=30)(lambda: None)()
            assert maintenance_thread_runs()

    def test_callback_in_a_forked_child_frees_nothing(self) -> None:
        """[D37] Called or dropped."""

        def call() -> None:
            connection.run_on_commit[0][1]()
            drop()

        def drop() -> None:
            connection.run_on_commit.clear()
            gc.collect()
            locks["default"].engine.settle(PATIENCE)

        with transaction.atomic():
            service()
            for scenario in (call, drop):
                in_child(scenario)
                assert is_busy()
        assert not is_busy()

    def test_transaction_on_another_database_counts(self, log: TransactionLog) -> None:
        """[D2] An outer one from the next call on."""
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
            service()
            assert is_busy()
        assert log[-2:] == ["COMMIT other", "release service"]

    def test_call_inside_of_the_call_raises_LockAlreadyHeld(self) -> None:
        """Also if an earlier call left the lock held."""

        @redis_lock("service")
        def nested() -> None:
            with pytest.raises(LockAlreadyHeld):
                service()

        with transaction.atomic():
            nested()
            nested()

    def test_reentrant_call_inside_the_call_changes_nothing(self, log: TransactionLog) -> None:
        @redis_lock("service", reentrant=True)
        def nested(depth: int) -> None:
            if depth:
                nested(depth - 1)
            assert current_grant() is not None

        with transaction.atomic():
            nested(2)
            assert len(connection.run_on_commit) >= 1
            assert is_busy()
        assert log == ["BEGIN default", *["acquire service"] * 3, "COMMIT default", "release service"]

    def test_lock_object_that_would_wait_for_its_own_commit_raises(self) -> None:
        """A re-entrant one enters."""
        with transaction.atomic():
            service()
            with pytest.raises(LockAlreadyHeld):
                locks.lock("service", wait=PATIENCE).acquire()
            with locks.rlock("service"):
                pass
            assert is_busy()

    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    def test_waiting_thread_is_served_after_commit(self, log: TransactionLog) -> None:
        """[D2]"""
        entered = threading.Event()

        @redis_lock("service", wait=PATIENCE)
        def waiting() -> None:
            log.append("the other one")
            entered.set()

        with transaction.atomic():
            service()
            other = threading.Thread(target=waiting, daemon=True)
            other.start()
            until(locks["default"].engine.waiting)
            assert not entered.is_set()
        other.join(PATIENCE)
        assert log.index("the other one") > log.index("COMMIT default")

    def test_waiting_thread_is_woken_after_rollback(self, log: TransactionLog, tune: Tune) -> None:
        """[D4]"""
        tune(max_poll_interval=60.0)  # a waiter that has the lock before that was woken

        @redis_lock("service", wait=2 * PATIENCE)
        def waiting() -> None:
            log.append("the other one")

        other = threading.Thread(target=waiting, daemon=True)
        with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
            service()
            other.start()
            until(locks["default"].engine.waiting)
            raise Boom
        other.join(PATIENCE)
        assert log.index("the other one") > log.index("ROLLBACK default")

    def test_lease_is_renewed_until_commit(self, manual_clock: ManualClock) -> None:
        """[D14] The transaction may take longer than the lease."""
        with transaction.atomic():
            service()
            manual_clock.advance(100)
            assert is_busy()
        assert not is_busy()

    def test_fixed_lease_that_ends_before_commit_is_a_loss(self, seen: Events) -> None:
        """[D30] It is sent as a signal, and the next call is a new hold."""
        with transaction.atomic():
            first = redis_lock("short", expire=LEASE, wait=PATIENCE)(lambda: current_grant().fence)()
            until(lambda: not locks.lock("short").locked())
            second = redis_lock("short", expire=30)(lambda: current_grant().fence)()
            assert second > first
        assert [event.fence for event in seen.of(events.Lost)] == [first]
        assert [event.fence for event in seen.of(events.Released)] == [second]

    def test_on_lost_is_called_for_a_loss_before_commit(self, memory_locks: Any) -> None:
        lost: list[Any] = []
        memory_locks(EXPIRE=1)
        with transaction.atomic():
            redis_lock("watched", on_lost=lost.append)(lambda: None)()
            locks.lock("watched").force_release()
            until(lambda: lost)
        assert lost[0].lost

    def test_release_inside_of_the_call_leaves_nothing_to_commit(self, log: TransactionLog) -> None:
        """That of a re-entrant call releases the outer lock."""
        with transaction.atomic():
            redis_lock("own")(lambda: current_grant().release())()
            assert log[-1] == "release own"
            assert connection.run_on_commit == []
        with transaction.atomic():
            with locks.rlock("own"):
                redis_lock("own", reentrant=True)(lambda: current_grant().release())()
            assert log[-1] == "release own"

    def test_call_without_a_lock_leaves_nothing_to_commit(self, store_down: str) -> None:
        """`on_backend_error="open"` while the store is down."""
        with transaction.atomic():
            redis_lock("open", on_backend_error="open")(lambda: None)()
            assert connection.run_on_commit == []
