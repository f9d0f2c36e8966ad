"""A lock that is taken inside an open transaction, and every way in which that can end."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from typing import Any

import pytest
from django.core.signals import request_finished
from django.db import IntegrityError, connection, connections, transaction

from django_redis_locks import LockBackendError, locks, redis_lock
from tests.django.helpers import PATIENCE, Events, in_thread, until
from tests.django.transaction_log import Boom, TransactionLog, is_busy, rolled_back, service
from tests.probes.django import events
from tests.probes.tuning import Tune

pytestmark = [pytest.mark.usefixtures("log"), pytest.mark.databases("sqlite")]


def fail() -> None:
    raise Boom


def settled_and_busy() -> bool:
    """The maintenance thread has nothing left to free."""
    locks["default"].engine.settle(PATIENCE)
    return is_busy()


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_commit_and_rollback_release(log: TransactionLog) -> None:
    """[D2] [D4] The end of a savepoint, or of the call by an exception, does not. Of a rollback Django calls nothing
    back."""
    with transaction.atomic():
        with transaction.atomic(), suppress(Boom):
            redis_lock("service")(fail)()
        log.append("on")
        assert is_busy()
    log.equals("BEGIN default", "acquire service", "on", "COMMIT default", "release service")
    for by_hand in (True, False):
        log.clear()
        with transaction.atomic() if by_hand else rolled_back():
            service()
            transaction.set_rollback(by_hand)
        log.equals("BEGIN default", "acquire service", "ROLLBACK default", "release service")


@pytest.mark.parametrize("inner", [transaction.atomic, rolled_back])
def test_end_of_the_last_open_transaction_releases(log: TransactionLog, inner: Any) -> None:
    """[D2] [D4]"""
    with transaction.atomic(using="other"):
        with inner():
            service()
        assert settled_and_busy()
    begun = ["BEGIN other", "BEGIN default", "acquire service"]
    log.equals(
        *begun, f"{'COMMIT' if inner is transaction.atomic else 'ROLLBACK'} default", "COMMIT other", "release service"
    )


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_rollback_to_a_savepoint_releases(log: TransactionLog) -> None:
    """[D6] Its writes are gone, while the transaction goes on."""
    with transaction.atomic():
        with rolled_back():
            service()
        log.wait_for("release service")
        assert not is_busy()
    log.begins_with("BEGIN default", "acquire service", "ROLLBACK TO default", "release service")


def test_inner_block_without_a_savepoint_keeps_the_lock(log: TransactionLog) -> None:
    """[D6] An exception that is caught condemns the whole transaction."""
    with transaction.atomic():
        with rolled_back(savepoint=False):
            service()
        assert settled_and_busy()
    log.equals("BEGIN default", "acquire service", "ROLLBACK default", "release service")


def test_rollback_to_a_savepoint_keeps_the_lock_of_another_call() -> None:
    """[D6] Of an earlier one; and of a later one at once, whether or not the maintenance thread has freed the lock."""
    for earlier in [True] + [False] * 10:
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
    """[D4] [D14] It runs under the lock. Django then calls no other; ours is dropped with the exception, or freed at the
    end of the request while a traceback refers to it."""
    for refers in (False, True):
        log.clear()
        with pytest.raises(Boom) as kept, transaction.atomic():  # noqa: PT012
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
        log.begins_with("BEGIN default", "acquire service", "COMMIT default", "busy", "release service")


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
def test_closed_connection_frees_the_lock(log: TransactionLog) -> None:
    """[D4] Nothing was committed."""
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
    log.equals("BEGIN default", "acquire service", "COMMIT failed", "ROLLBACK default", "release service")


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_end_of_a_thread_with_an_open_transaction_frees_the_lock(log: TransactionLog) -> None:
    """[D4] The connection dies with its thread, and so does the callback."""

    def leave_open() -> None:
        transaction.atomic().__enter__()
        service()
        assert is_busy()

    in_thread(leave_open)
    gc.collect()
    log.wait_for("release service")


def test_store_that_is_down_at_commit_fails_no_request(seen: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D14] The failure is logged and sent as a signal."""

    def down(*_: object) -> Any:
        raise LockBackendError("down")

    with transaction.atomic():
        service()
        monkeypatch.setattr(locks["default"].engine.backend, "call", down)
    monkeypatch.undo()
    assert len(seen.of(events.BackendFailed)) == 1
    until(lambda: not locks.lock("service").locked())


@pytest.mark.databases("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("end", [transaction.atomic, rolled_back])
def test_waiting_thread_is_served_after_the_end(log: TransactionLog, tune: Tune, end: Any) -> None:
    """[D2] [D4] It is woken: it looks by itself once in a minute."""
    tune(max_poll_interval=60.0)

    @redis_lock("service", wait=2 * PATIENCE)
    def waiting() -> None:
        log.append("the other one")

    other = threading.Thread(target=waiting, daemon=True)
    with end():
        service()
        other.start()
        until(locks["default"].engine.waiting)
    other.join(PATIENCE)
    assert log.index("the other one") > log.index(f"{'COMMIT' if end is transaction.atomic else 'ROLLBACK'} default")
