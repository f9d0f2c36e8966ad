"""[D12] What the next holder reads, by when its transaction began, on three databases at two levels of isolation."""

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
from tests.django.account_models import Account, before_update, create_tables, stored
from tests.django.helpers import PATIENCE
from tests.probes.django import empty_store

LOCK = "account:1"
ONE = Account.objects.filter(pk=1)
LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, database: str) -> str:
    """The isolation of every connection. SQLite has one level, and it is neither: a transaction reads a snapshot."""
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
    return stored()[0]


@contextmanager
def elsewhere_locked() -> Iterator[Grant]:
    """Another thread's grant, to be used here."""
    grant = elsewhere(locks.lock(LOCK).acquire).result(PATIENCE)
    with grant:
        yield grant


def withdraw() -> None:
    """What a holder does: lock, BEGIN, write, COMMIT, free."""
    with locks.lock(LOCK), transaction.atomic():
        account = Account.objects.get()
        account.balance -= 10
        account.save()


def test_next_holder_reads_what_was_committed(level: str) -> None:
    """Both lock before BEGIN and release after COMMIT. The second one waits while the first one writes."""

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


def test_write_from_a_snapshot_older_than_the_lock_is_refused(level: str, database: str) -> None:
    """The transaction began, and read something, before the lock was acquired: under the lock it reads what was
    before. The fence refuses the write, or the database itself."""
    stale = level == "REPEATABLE READ"
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
            assert caught.value.stored == stored()[1] > 0  # what is committed, not what the snapshot shows
    else:
        write()
        assert balance() == 40


def test_fenced_update_sees_a_later_holder_beyond_the_snapshot(level: str, database: str) -> None:
    """[L2] One row of two is refused, although the snapshot doesn't show why: so is the other one."""
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

    refused = OperationalError if level == "REPEATABLE READ" and database != "mariadb" else StaleGrant
    with pytest.raises(refused) as caught:
        write()
    if refused is StaleGrant:
        assert "a later holder has written" in str(caught.value)
    assert (stored(1)[0], stored(2)[0]) == (1, 100)
    with pytest.raises(LockLost):
        grant.release()


def test_late_write_that_waits_for_the_row_is_refused(level: str, database: str) -> None:
    """[L2] The later holder has written and not committed. The fence is compared with what it commits."""
    grant = locks.lock(LOCK).acquire()
    asked: Future[None] = Future()

    def late() -> None:
        with before_update(lambda: asked.set_result(None)):
            fenced_update(ONE, grant, balance=0)

    empty_store()
    with elsewhere_locked() as later, transaction.atomic():
        fenced_update(ONE, later, balance=1)
        waiting = elsewhere(late)
        asked.result(PATIENCE)
    # PostgreSQL's snapshot forbids the write by itself, if the UPDATE came before the other one's COMMIT
    snapshot = (level, database) == ("REPEATABLE READ", "postgresql")
    with pytest.raises((StaleGrant, OperationalError) if snapshot else StaleGrant):
        waiting.result(PATIENCE)
    assert balance() == 1
    with pytest.raises(LockLost):
        grant.release()
