"""[D12] Fenced writes and transaction snapshots, on three databases at two isolation levels."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_redis_locks import Grant, LockLost, StaleGrant, locks
from django_redis_locks.fencing import fenced_update
from tests.databases import elsewhere
from tests.django.account_models import Account, before_update, create_tables, stored_row
from tests.django.helpers import PATIENCE
from tests.probes.django import empty_store

LOCK = "account:1"
ONE = Account.objects.filter(pk=1)
LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


@pytest.fixture(params=LEVELS)
def isolation_level(request: pytest.FixtureRequest, database: str) -> str:
    """The isolation level of all connections. SQLite has only one, with a snapshot per transaction."""
    options = connections.settings["default"].setdefault("OPTIONS", {})
    if database == "postgresql":
        from psycopg import IsolationLevel

        options["isolation_level"] = IsolationLevel[request.param.replace(" ", "_")]
    elif database == "mariadb":
        options["isolation_level"] = request.param.lower()
    elif request.param == LEVELS[0]:
        pytest.skip("SQLite has no READ COMMITTED")
    create_tables()
    Account.objects.create()
    return str(request.param)


def balance() -> int:
    return stored_row()[0]


@contextmanager
def grant_of_other_thread() -> Iterator[Grant]:
    """A grant of another thread, for use in this one."""
    grant = elsewhere(locks.lock(LOCK).acquire).result(PATIENCE)
    with grant:
        yield grant


def withdraw() -> None:
    """Acquire, BEGIN, write, COMMIT, release."""
    with locks.lock(LOCK), transaction.atomic():
        account = Account.objects.get()
        account.balance -= 10
        account.save()


def test_next_holder_reads_what_was_committed(isolation_level: str) -> None:
    """Both acquire before BEGIN and release after COMMIT."""

    def second() -> int:
        with locks.lock(LOCK, wait=PATIENCE), transaction.atomic():
            return balance()

    with locks.lock(LOCK):
        with transaction.atomic():
            ONE.update(balance=90)
            next_holder = elsewhere(second)
            assert elsewhere(balance).result(PATIENCE) == 100  # not committed
        assert not next_holder.done()
    assert next_holder.result(PATIENCE) == 90


def test_write_from_a_snapshot_older_than_the_lock_is_refused(isolation_level: str, database: str) -> None:
    """The transaction began before the lock was acquired, so that it reads old rows. Its write is refused by the fence,
    or by the database."""
    stale = isolation_level == "REPEATABLE READ"
    refusals: dict[str, Any] = {"mariadb": StaleGrant, "postgresql": OperationalError, "sqlite": OperationalError}

    def write() -> None:
        with transaction.atomic():
            assert balance() == 100
            elsewhere(withdraw).result(PATIENCE)
            with locks.lock(LOCK):
                account = Account.objects.get()
                assert account.balance == (100 if stale else 90)
                account.balance -= 50
                account.save()

    if stale:
        with pytest.raises(refusals[database]) as caught:
            write()
        assert balance() == 90
        if database == "mariadb":
            assert caught.value.stored == stored_row()[1] > 0  # the committed fence, not that of the snapshot
    else:
        write()
        assert balance() == 40


def test_fenced_update_sees_a_later_holder_beyond_the_snapshot(isolation_level: str, database: str) -> None:
    """[L2] One of two rows is refused, although the snapshot has its old fence; so is the other one."""
    Account.objects.create()
    grant = locks.lock(LOCK).acquire()

    def take_over() -> None:
        empty_store()
        with locks.lock(LOCK) as later:
            fenced_update(ONE, later, balance=1)

    @transaction.atomic
    def write() -> None:
        assert balance() == 100
        elsewhere(take_over).result(PATIENCE)
        fenced_update(Account.objects.all(), grant, balance=0)

    refused = OperationalError if isolation_level == "REPEATABLE READ" and database != "mariadb" else StaleGrant
    with pytest.raises(refused) as caught:
        write()
    if refused is StaleGrant:
        assert "a later holder has written" in str(caught.value)
    assert (stored_row(1)[0], stored_row(2)[0]) == (1, 100)
    with pytest.raises(LockLost):
        grant.release()


def test_late_write_that_waits_for_the_row_is_refused(isolation_level: str, database: str) -> None:
    """[L2] The later holder has written but not committed. The fence is compared with the committed one."""
    grant = locks.lock(LOCK).acquire()
    asked: Future[None] = Future()

    def late() -> None:
        with before_update(lambda: asked.set_result(None)):
            fenced_update(ONE, grant, balance=0)

    empty_store()
    with grant_of_other_thread() as later, transaction.atomic():
        fenced_update(ONE, later, balance=1)
        waiting = elsewhere(late)
        asked.result(PATIENCE)
    # PostgreSQL itself refuses the write if the UPDATE came before the other COMMIT
    snapshot = (isolation_level, database) == ("REPEATABLE READ", "postgresql")
    with pytest.raises((StaleGrant, OperationalError) if snapshot else StaleGrant):
        waiting.result(PATIENCE)
    assert balance() == 1
    with pytest.raises(LockLost):
        grant.release()
