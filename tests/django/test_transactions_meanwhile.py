"""Between the end of a call and the end of its transaction: the lock is held, and the thread that left it may enter again."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction

from django_redis_locks import (
    Grant,
    LockAlreadyHeld,
    current_grant,
    locks,
    redis_lock,
)
from django_redis_locks.core import constants, events
from django_redis_locks.core.owners import registry
from django_redis_locks.decorators import deferred
from tests.django.helpers import LEASE, MEMORY, PATIENCE, Events, in_thread, until
from tests.django.ledger import Boom, Ledger, is_busy, rolled_back, service
from tests.forks import in_child

pytestmark = pytest.mark.usefixtures("ledger")


@redis_lock("service")
def same_lock() -> str:
    assert in_thread(lambda: locks.lock("service").acquire(timeout=0)) is None
    return "served"


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

    def test_again_when_the_janitor_is_about_to_begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D4] It frees what was rolled back between two steps of the next call, who has seen the lock as his."""
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

    def test_another_thread_gets_it_after_rollback(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """[D4] The janitor wakes whoever waits."""
        monkeypatch.setattr(constants, "CAP", 60.0)  # who gets it before that was woken

        @redis_lock("service", wait=2 * PATIENCE)
        def waiting() -> None:
            ledger.note("the other one")

        other = threading.Thread(target=waiting, daemon=True)
        with pytest.raises(Boom), transaction.atomic():  # noqa: PT012
            service()
            other.start()
            until(locks["default"].engine.waiting)
            raise Boom
        other.join(PATIENCE)
        assert ledger.index("the other one") > ledger.index("ROLLBACK default")

    @pytest.mark.usefixtures("often")
    def test_it_is_renewed(self, memory_locks: Any) -> None:
        """[D14] The transaction may take longer than the lease."""
        memory_locks(EXPIRE=9)
        with transaction.atomic():
            service()
            left = registry.newest(locks.lock("service").place)
            assert left is not None
            deadline = left.hold.deadline
            until(lambda: left.hold.deadline > deadline)
            assert left.hold.live

    def test_a_fixed_lease_is_over_before_commit(self, seen: Events) -> None:
        """[D30] The transaction took longer than the lease that was asked for: told, and the next call is a new hold."""

        @redis_lock("short", expire=LEASE, wait=PATIENCE)
        def short() -> int | None:
            grant = current_grant()
            assert grant is not None
            return grant.fence

        @redis_lock("short", expire=30)
        def longer() -> int | None:
            grant = current_grant()
            assert grant is not None
            return grant.fence

        with transaction.atomic():
            first = short()
            until(lambda: not locks.lock("short").locked())
            second = longer()
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

        memory_locks(EXPIRE=1)
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

    def test_interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A signal handler raises while the lock is being deferred: nothing stays locked."""
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

    def test_the_store_is_down(self, store_down: str) -> None:
        """A call that runs unlocked leaves nothing behind."""

        @redis_lock("open", on_backend_error="open")
        def unlocked() -> None:
            pass

        with transaction.atomic():
            unlocked()
            assert connection.run_on_commit == []
