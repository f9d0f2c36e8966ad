"""A lock that is taken inside an open transaction: every way in which that can end, and what its thread may do meanwhile."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.signals import request_finished
from django.db import IntegrityError, connection, connections, transaction
from django.test import TestCase

from django_redis_locks import LockAlreadyHeld, LockNotAcquired, current_grant, locks, redis_lock
from django_redis_locks.core import clock, events
from django_redis_locks.core.owners import registry
from django_redis_locks.decorators import deferred, transactions
from tests.django.helpers import MEMORY, PATIENCE, Events, in_thread, until
from tests.django.ledger import Ledger, keeping
from tests.forks import in_child


@pytest.fixture(autouse=True)
def ledger(two_databases: object, redis_locks: str) -> Iterator[Ledger]:
    transactions.warn_late.cache_clear()
    transactions.warn_by_hand.cache_clear()
    with keeping("default", "other") as found:
        yield found


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


class Boom(Exception):
    """What a user's code raises."""


@redis_lock("service")
def service() -> str:
    return "served"


@redis_lock("service")
def same_lock() -> str:
    assert in_thread(lambda: locks.lock("service").acquire(timeout=0)) is None
    return "served"


@redis_lock("until the call", hold="call")
def only_for_the_call() -> None:
    pass


def is_busy() -> bool:
    """Whether somebody else is refused."""
    try:
        in_thread(service)
    except LockNotAcquired:
        return True
    return False


def counted(first: Callable[..., Any], *others: Callable[..., Any]) -> Callable[..., Any]:
    """Another function for each call."""
    calls = iter((first, *others))
    return lambda *args: next(calls)(*args)


@contextmanager
def rolled_back(**terms: Any) -> Iterator[None]:
    with suppress(Boom), transaction.atomic(**terms):
        yield
        raise Boom


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
        from django_redis_locks import LockBackendError

        def down(*_: object) -> Any:
            raise LockBackendError("down")

        with transaction.atomic():
            service()
            monkeypatch.setattr(locks["default"].engine.backend, "call", down)
        monkeypatch.undo()
        assert len(seen.of(events.BackendFailed)) == 1
        until(lambda: not locks.lock("service").locked())


class TestMeanwhile:
    def test_nobody_has_it(self) -> None:
        """[D2] The call is over: it isn't the current grant, and the grant that the call had is given back."""
        grants = []

        @redis_lock("service")
        def call() -> None:
            grants.append(current_grant())

        with transaction.atomic():
            call()
            assert current_grant() is None
            assert grants[0].given_back
            grants[0].release()
            assert is_busy()

    def test_again(self, ledger: Ledger) -> None:
        """[D2] The next call in the same transaction enters it again."""
        with transaction.atomic():
            service()
            assert same_lock() == "served"
            assert service() == "served"
            assert is_busy()
        assert ledger[-2:] == ["COMMIT default", "release service"]
        assert ledger.count("release service") == 1
        assert not is_busy()

    def test_again_and_again(self) -> None:
        """[D2] A loop leaves one callback, not one for each turn."""
        with transaction.atomic():
            for _ in range(50):
                with transaction.atomic():
                    service()
            assert len(connection.run_on_commit) == 1

    def test_again_below_a_savepoint(self, ledger: Ledger) -> None:
        """[D6] The savepoint takes back what was done inside of it only: the first call's lock stays."""
        with transaction.atomic():
            service()
            with rolled_back():
                service()
            locks["default"].engine.settle(PATIENCE)
            assert is_busy()
        assert ledger[-2:] == ["COMMIT default", "release service"]

    def test_again_above_a_savepoint(self, ledger: Ledger) -> None:
        """[D6] The other way round: rolled back inside, done again outside, at once."""
        for _ in range(20):
            with transaction.atomic():
                with rolled_back():
                    service()
                service()
                locks["default"].engine.settle(PATIENCE)
                assert is_busy()
            assert not is_busy()

    def test_again_after_a_rollback(self) -> None:
        """[D4] Who tries again at once isn't refused because the janitor had no time yet."""
        for _ in range(50):
            with rolled_back():
                service()
            assert service() == "served"

    def test_again_while_the_janitor_is_at_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D4] It has begun to free what was rolled back: the next call of this thread waits for it."""
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

    def test_the_janitor_is_at_work_before_it_is_needed(self, settings: Any) -> None:
        """[H13] A finalizer must start no thread; a fixed lease alone needs none."""
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, "LOCATION": "a new one"}}

        @redis_lock("fixed", expire=30)
        def fixed() -> None:
            pass

        with rolled_back():
            fixed()
            assert locks["default"].engine._janitor._daemon.runs

    def test_a_fork(self) -> None:
        """[D37] The child's copy of the callback, called or dropped, frees nothing."""

        def call() -> None:
            connection.run_on_commit[0][1]()
            drop()

        def drop() -> None:
            connection.run_on_commit.clear()
            gc.collect()
            locks["default"].engine.settle(PATIENCE)

        with transaction.atomic():
            service()
            for story in (call, drop):
                in_child(story)
                assert is_busy()
        assert not is_busy()

    def test_again_in_another_transaction(self, ledger: Ledger) -> None:
        """[D2] With another database below: that one counts from then on as well."""
        with transaction.atomic(using="other"):
            with transaction.atomic():
                service()
                service()
            service()
            assert is_busy()
        assert ledger[-2:] == ["COMMIT other", "release service"]

    def test_an_inner_transaction_on_another_database(self, ledger: Ledger) -> None:
        """[D2] The first call waits for one database, the second one for both."""
        with transaction.atomic():
            service()
            with transaction.atomic(using="other"):
                service()
            assert is_busy()
        assert ledger[-2:] == ["COMMIT default", "release service"]

    def test_inside_of_itself(self) -> None:
        """A call inside of the call is refused as ever, also if an earlier call left the lock held."""

        @redis_lock("service")
        def nested() -> None:
            with pytest.raises(LockAlreadyHeld):
                service()

        with transaction.atomic():
            nested()
            nested()

    def test_reentrant(self, ledger: Ledger) -> None:
        """A re-entrant call inside the call changes nothing."""

        @redis_lock("service", reentrant=True)
        def nested(depth: int) -> None:
            if depth:
                nested(depth - 1)
            assert current_grant() is not None

        with transaction.atomic():
            nested(2)
            assert len(connection.run_on_commit) >= 1
            assert is_busy()
        assert ledger == ["BEGIN default", *["acquire service"] * 3, "COMMIT default", "release service"]

    def test_a_lock_object(self) -> None:
        """Who would wait for his own COMMIT is told so at once; a re-entrant one enters."""
        with transaction.atomic():
            service()
            with pytest.raises(LockAlreadyHeld):
                locks.lock("service", wait=PATIENCE).acquire()
            with locks.rlock("service"):
                pass
            assert is_busy()

    def test_another_thread_gets_it_after_commit(self, ledger: Ledger) -> None:
        """[D2] Who waits is served when COMMIT was done, not when the call returned."""
        entered = threading.Event()

        @redis_lock("service", wait=PATIENCE)
        def waiting() -> None:
            ledger.note("the other one")
            entered.set()

        with transaction.atomic():
            service()
            other = threading.Thread(target=waiting, daemon=True)
            other.start()
            until(locks["default"].engine.waiting)
            assert not entered.is_set()
        other.join(PATIENCE)
        assert ledger.index("the other one") > ledger.index("COMMIT default")

    def test_another_thread_gets_it_after_rollback(self, ledger: Ledger) -> None:
        """[D4] The janitor wakes whoever waits."""

        @redis_lock("service", wait=PATIENCE)
        def waiting() -> None:
            ledger.note("the other one")

        other = threading.Thread(target=waiting, daemon=True)
        began = clock.now()
        with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
            service()
            other.start()
            until(locks["default"].engine.waiting)
            raise Boom
        other.join(PATIENCE)
        assert ledger.index("the other one") > ledger.index("ROLLBACK default")
        assert clock.now() - began < 1

    def test_it_is_renewed(self, memory_locks: Any) -> None:
        """[D14] The transaction may take longer than the lease."""
        memory_locks(EXPIRE=0.2)
        with transaction.atomic():
            service()
            end = clock.now() + 0.5
            until(lambda: clock.now() > end)
            assert is_busy()

    def test_a_fixed_lease_is_over_before_commit(self, seen: Events) -> None:
        """[D30] The transaction took longer than the lease that was asked for: told, and the next call is a new hold."""

        @redis_lock("short", expire=0.1)
        def short() -> int | None:
            grant = current_grant()
            assert grant is not None
            return grant.fence

        with transaction.atomic():
            first = short()
            until(lambda: not locks.lock("short").locked())
            second = short()
            assert first is not None
            assert second is not None
            assert second > first
        assert [event.fence for event in seen.of(events.Lost)] == [first]
        assert [event.fence for event in seen.of(events.Released)] == [second]

    def test_on_lost(self, memory_locks: Any) -> None:
        """A lock that is lost between the call's end and COMMIT is told to its `on_lost`."""
        told = []

        @redis_lock("watched", on_lost=told.append)
        def watched() -> None:
            pass

        memory_locks(EXPIRE=0.2)
        with transaction.atomic():
            watched()
            locks.lock("watched").force_release()
            until(lambda: told)
        assert isinstance(told[0], deferred.Deferred)
        assert told[0].lost

    def test_release_inside_of_the_call(self, ledger: Ledger) -> None:
        """Who released the lock himself has released it."""

        @redis_lock("own")
        def own() -> None:
            grant = current_grant()
            assert grant is not None
            grant.release()

        with transaction.atomic():
            own()
            assert ledger[-1] == "release own"
            assert connection.run_on_commit == []

    def test_release_of_an_inner_call(self, ledger: Ledger) -> None:
        """The same inside a lock of his own."""

        @redis_lock("own", reentrant=True)
        def own() -> None:
            grant = current_grant()
            assert grant is not None
            grant.release()

        with transaction.atomic():
            with locks.rlock("own"):
                own()
            assert ledger[-1] == "release own"

    def test_an_error_at_commit(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D14] Whatever fails after COMMIT, the request doesn't; Django logs it."""

        def fail(self: object) -> None:
            raise Boom

        with transaction.atomic():
            service()
            monkeypatch.setattr(deferred.Deferred, "release", fail)
        monkeypatch.undo()
        assert "the release of a lock" in caplog.text
        locks.lock("service").release()

    def test_interrupted(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """A signal handler raises while the lock is being deferred: nothing stays locked."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), transaction.atomic():
            with monkeypatch.context() as patch:
                patch.setattr(registry, "keep", counted(registry.keep, interrupt))
                service()
        until(lambda: not is_busy())

    def test_the_store_is_down(self, store_down: str) -> None:
        """A call that runs unlocked leaves nothing behind."""

        @redis_lock("open", on_backend_error="open")
        def unlocked() -> None:
            pass

        with transaction.atomic():
            unlocked()
            assert connection.run_on_commit == []


class TestCalls:
    def test_hold_call(self, ledger: Ledger) -> None:
        """`hold="call"` ends with the call, whatever is open."""
        with transaction.atomic():
            only_for_the_call()
            assert ledger[-1] == "release until the call"
            assert connection.run_on_commit == []

    @pytest.mark.parametrize("hold", [None, "forever", "Call", 1])
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
