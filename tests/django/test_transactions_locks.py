"""Lock objects inside of transactions: `hold="transaction"`, and the warning without `hold`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, TestCase
from django.urls import path

from django_redis_locks import LockAlreadyHeld, LockNotOwned, locks, redis_lock
from tests.django.helpers import in_thread
from tests.django.transaction_log import TransactionLog, UserError, record_log, rolled_back
from tests.probes.django import repeat_warnings, warn_of_names

pytestmark = [pytest.mark.usefixtures("log"), pytest.mark.databases("sqlite")]


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """`warnings()`: the texts of all warnings so far."""
    repeat_warnings()
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def hold(key: str = "stock", **options: Any) -> Any:
    return locks.lock(key, hold="transaction", **options)


def work(lock: Any = None) -> None:
    with lock or hold():
        pass


def is_busy() -> bool:
    return in_thread(locks.lock("stock").locked)


class TestHold:
    @pytest.mark.databases("sqlite", "postgresql", "mariadb")
    @pytest.mark.parametrize("kind", ["lock", "rlock", "fair_lock", "multi_lock"])
    def test_lock_is_released_after_commit_or_rollback(self, log: TransactionLog, kind: str, warnings: Any) -> None:
        """[D2] For each way to release, also inside a savepoint."""
        lock = getattr(locks, kind)("stock", hold="transaction")

        def by_release() -> None:
            lock.acquire()
            lock.release()

        for release in (lambda: work(lock), by_release, lambda: lock.acquire().release()):
            for end, how in ((transaction.atomic, "COMMIT"), (rolled_back, "ROLLBACK")):
                log.clear()
                with end():
                    with transaction.atomic():
                        release()
                    assert is_busy()
                log.assert_equals("BEGIN default", "acquire stock", f"{how} default", "release stock")
        log.clear()
        with lock, transaction.atomic():
            pass
        log.assert_equals("acquire stock", "BEGIN default", "COMMIT default", "release stock")
        with transaction.atomic(), rolled_back():
            work(lock)
        log.wait_for("release stock")
        assert warnings() == []

    def test_sides_of_a_read_write_lock_are_released_after_commit(self) -> None:
        """[D2] [L35] A write lock stays one until then, also if its owner reads inside of it."""
        lock = locks.rwlock("stock", hold="transaction")

        def attempt(side: str) -> Any:
            return in_thread(lambda: getattr(locks.rwlock("stock"), side).acquire(blocking=False, timeout=None))

        with transaction.atomic():
            work(lock.read)
            assert attempt("write") is None
        with lock.read:
            pass
        with transaction.atomic():
            writes, reads = lock.write.acquire(), lock.read.acquire()
            writes.release()
            with lock.write:
                pass
            assert attempt("read") is None
        assert lock.read.owned()
        assert not lock.write.owned()
        assert attempt("write") is None
        attempt("read").release()
        reads.release()
        attempt("write").release()

    def test_lock_of_a_block_that_raises_is_held_until_the_transaction_ends(self, log: TransactionLog) -> None:
        """[D2]"""
        with pytest.raises(UserError), transaction.atomic():  # noqa: PT012
            with pytest.raises(UserError), hold():
                raise UserError
            assert is_busy()
            raise UserError
        log.assert_equals("BEGIN default", "acquire stock", "ROLLBACK default", "release stock")

    def test_next_block_in_the_transaction_reenters_the_lock(self) -> None:
        """[D2] Several blocks register one callback. A plain lock object would wait for the end of its own transaction.
        A rollback to a savepoint releases nothing."""
        with transaction.atomic():
            for _ in range(3):
                with hold() as grant:
                    assert grant.held
                work(locks.rlock("stock", hold="transaction"))
            assert len(connection.run_on_commit) == 1
            with pytest.raises(LockAlreadyHeld, match="an open transaction of this thread keeps it"):
                work(locks.lock("stock"))
            with pytest.raises(LockAlreadyHeld), hold("other"):
                work(hold("other"))
        assert not is_busy()
        with transaction.atomic():
            for _ in range(3):
                with rolled_back():
                    transaction.on_commit(print)
                    work()
                with rolled_back():
                    work()
                assert is_busy()
            assert len(connection.run_on_commit) == 1

    def test_lock_that_was_released_is_not_released_again(self) -> None:
        """[D2] A manual second release before COMMIT, or after a block or a savepoint that was rolled back."""
        with transaction.atomic():
            lock = hold()
            lock.acquire()
            with rolled_back():
                lock.release()
            assert not lock.owned()
            with pytest.raises(LockNotOwned):
                lock.release()
            work(lock)
            for again in (lock.release, partial(lock.__exit__, None, None, None)):
                with pytest.raises(LockNotOwned):
                    again()
            assert is_busy()
            outer = locks.rlock("stock").acquire()
            work(locks.rlock("stock", hold="transaction"))
            assert locks.lock("stock").owned()
            locks.lock("stock").release()
            assert outer.released
            assert is_busy()

    def test_thread_can_acquire_any_lock_again_after_the_rollback(self, warnings: Any) -> None:
        """[D2] At once, also in the next transaction, and if a traceback refers to Django's callbacks."""

        def fail() -> None:
            raise UserError

        for again in (locks.lock, locks.rlock, partial(hold, hold_using="other"), hold) * 5:
            with rolled_back():
                work()
            with transaction.atomic() if again is hold else nullcontext():
                work(again("stock"))
        with pytest.raises(UserError) as kept, transaction.atomic():  # noqa: PT012
            transaction.on_commit(fail)
            work()
        assert is_busy()
        for lock in (hold(), locks.lock("stock")):
            work(lock)
            assert not is_busy()
        assert kept
        with transaction.atomic():
            other = locks.lock("other", hold="transaction", hold_using="other")
            with transaction.atomic(using="other"):
                work(other)
        assert warnings() == []

    def test_transaction_is_that_of_hold_using_in_the_calling_thread(self, log: TransactionLog, warnings: Any) -> None:
        """[D2]"""
        with transaction.atomic(using="other"), transaction.atomic():
            work(hold("rows", hold_using="other"))
            in_thread(lambda: work(hold("thread")))
            assert log[-1] == "release thread"
        assert log[-3:] == ["COMMIT default", "COMMIT other", "release rows"]
        assert warnings() == []
        with transaction.atomic(using="other"):
            work()
            assert log[-1] == "release stock"
        assert 'locks.lock(key, hold="transaction", hold_using="other")' in warnings()[0]

    def test_lock_inside_of_a_manual_transaction_is_released_at_the_end_of_the_block(
        self, log: TransactionLog, warnings: Any
    ) -> None:
        """[D2] There `atomic()` doesn't commit, and Django runs no callbacks at `commit()`."""
        transaction.set_autocommit(False)
        try:
            for release in (work, redis_lock("stock")(lambda: None)):
                with transaction.atomic():
                    release()
                    assert log[-1] == "release stock"
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        assert "autocommit is off" in warnings()[0]

    def test_number_of_remembered_warnings_is_limited(self, monkeypatch: pytest.MonkeyPatch, warnings: Any) -> None:
        """[D2] A name may be a whole key, so that there may be many."""
        warn_of_names(monkeypatch, 1)
        transaction.set_autocommit(False)
        try:
            for key in ("first", "next"):
                work(hold(key))
        finally:
            transaction.set_autocommit(True)
        assert len(warnings()) == 1

    def test_lock_is_released_at_the_end_of_the_block_if_the_end_of_the_transaction_is_unknown(
        self, log: TransactionLog, warnings: Any
    ) -> None:
        """[D2] [D10] [D11] That of a TestCase, one without autocommit, and that of a thread that waits for a
        coroutine."""
        entered = TestCase._enter_atomics()  # type: ignore[attr-defined]
        try:
            for lock in (hold(), locks.lock("stock")):
                work(lock)
                assert log[-1] == "release stock"
        finally:
            TestCase._rollback_atomics(entered)  # type: ignore[attr-defined]
        assert warnings() == []

        async def awork() -> None:
            async with hold():
                pass

        for _ in range(2):
            asyncio.run(awork())
            with transaction.atomic():
                async_to_sync(awork)()
                assert not is_busy()
        assert "no transactions in asynchronous" in warnings()[0]
        transaction.set_autocommit(False)
        try:
            work()
            work()
            assert log[-1] == "release stock"
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        assert "autocommit is off" in warnings()[1]
        assert len(warnings()) == 2

    def test_wrong_hold_raises_ValueError(self) -> None:
        """[D2]"""
        for options, message in (
            ({"hold": "response"}, "hold of a lock object is 'block' or 'transaction', not 'response'"),
            ({"hold": ["block"]}, "hold of a lock object"),
            ({"hold": "transaction", "hold_using": "nope"}, "hold_using is one of 'default'.*'nope'"),
            ({"hold": "block", "hold_using": "default"}, "hold_using names the database"),
            ({"hold": "transaction", "hold_using": []}, r"hold_using is one of 'default'.*\[\]"),
            ({"hold_using": "default"}, "hold_using names the database"),
        ):
            with pytest.raises(ValueError, match=message):
                locks.rlock("stock", **options)  # type: ignore[arg-type]


class TestWarning:
    def test_release_inside_a_transaction_logs_one_warning_per_name(self, warnings: Any) -> None:
        """[D2] Acquired inside of it, inside a savepoint, or before it. A thread with a new connection doesn't repeat
        it."""

        def inside(key: str) -> None:
            with transaction.atomic():
                work(locks.lock(f"{key}:1"))
                with transaction.atomic():
                    work(locks.rlock(f"{key}:2"))
            grant = locks.lock(f"{key}:3").acquire()
            with transaction.atomic():
                grant.release()

        def in_new_connection() -> None:
            work(locks.lock("first"))
            inside("threads")
            connections.close_all()

        inside("stock")
        in_thread(in_new_connection)
        assert [text.partition(" was released inside an open transaction")[0] for text in warnings()] == [
            "Lock stock",
            "Lock threads",
        ]
        assert 'locks.lock(key, hold="transaction")' in warnings()[0]

    def test_lock_around_its_transaction_or_with_hold_block_logs_no_warning(self, warnings: Any) -> None:
        """[D2] The exit of an inner entry releases nothing."""
        with locks.rlock("stock"), transaction.atomic(), locks.rlock("stock"):
            pass
        with transaction.atomic():
            work(locks.lock("mail", hold="block"))
            locks.lock("once", expire=60, auto_release=False).acquire().release()
            with pytest.raises(LockAlreadyHeld), hold("twice"):
                work(hold("twice"))
        work(locks.lock("stock"))
        assert warnings() == []


def by_block(request: HttpRequest) -> HttpResponse:
    with locks.lock("stock", hold="transaction"):
        return HttpResponse(str(connection.in_atomic_block))


def plainly(request: HttpRequest) -> HttpResponse:
    with locks.lock("stock"):
        return HttpResponse("sold")


urlpatterns = [path("held/", by_block), path("plain/", plainly)]


def test_lock_object_in_a_view_is_held_until_the_commit_of_ATOMIC_REQUESTS(settings: Any, warnings: Any) -> None:
    """[D1] [D2] Under WSGI and ASGI."""
    settings.ROOT_URLCONF = __name__
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        with record_log("default") as log:
            assert Client().get("/held/").content == b"True"
            log.assert_equals("BEGIN default", "acquire stock", "COMMIT default", "release stock")
        assert asyncio.run(AsyncClient().get("/held/")).content == b"True"
        assert not is_busy()
        assert warnings() == []
        for _ in range(2):
            Client().get("/plain/")
        assert len(warnings()) == 1
    finally:
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = False
