"""Rows with a fence, on three databases: which writes succeed, and the errors of refused ones."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync, sync_to_async
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import F, Q
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from django_redis_locks import Grant, LockBackendError, LockLost, LockNotAcquired, LockNotOwned, StaleGrant, locks
from django_redis_locks.fencing import afenced_update, fenced_update
from django_redis_locks.testing import override_locks
from tests.databases import elsewhere
from tests.django.account_models import Account, Branch, Pooled, Savings, Till, before_update, create_tables, stored_row
from tests.django.helpers import PATIENCE
from tests.probes.django import empty_store, remember_rows

ROOT = Path(__file__).resolve().parents[2]
ONE = Account.objects.filter(pk=1)


@pytest.fixture
def account(database: str) -> Account:
    """The row with the primary key 1, as read, and not written under a lock."""
    create_tables()
    Account.objects.create()
    return Account.objects.get()


@pytest.fixture
def grant() -> Any:
    """The grant of the lock of the account; a test may force its release."""
    grant = locks.lock("account:1").acquire()
    yield grant
    with suppress(LockLost):
        grant.release()


def later_holder_writes(balance: int = 50) -> int:
    """Another holder forces the release, acquires, and writes. Return its fence."""

    def write() -> int:
        empty_store()
        with locks.lock("account:1") as grant:
            fenced_update(ONE, grant, balance=balance)
            assert grant.fence is not None
            return grant.fence

    return elsewhere(write).result(PATIENCE)


def save(account: Account, grant: Grant) -> None:
    account.balance = 0
    account.save(grant=grant)


def update(account: Account, grant: Grant) -> None:
    fenced_update(ONE, grant, balance=0)


WRITES = pytest.mark.parametrize("write", [save, update])


# A holder that has lost its lock


@WRITES
def test_late_write_raises_StaleGrant(account: Account, grant: Grant, write: Callable[..., None]) -> None:
    """[L2] [F22] The holder is paused between the last check of its lock and its write, and another holder writes."""
    fences = []
    with before_update(lambda: fences.append(later_holder_writes())), pytest.raises(StaleGrant) as caught:
        write(account, grant)
    assert stored_row() == (50, fences[0])
    error = caught.value
    assert (error.fence, error.stored) == (grant.fence, fences[0])
    assert (error.key, error.name, error.alias) == ("account:1", "account", "default")
    assert str(error) == (
        "lock 'account' doesn't cover this write: a later holder has written this accounts.Account: "
        f"its fence is {fences[0]}, that of this lock is {grant.fence}"
    )
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


@WRITES
def test_holder_may_write_a_row_more_than_once(account: Account, grant: Grant, write: Callable[..., None]) -> None:
    """[F22] The condition is `stored <= mine`; with `<` the second write would fail."""
    write(account, grant)
    write(account, grant)
    assert stored_row() == (0, grant.fence)
    ONE.delete()
    with pytest.raises(StaleGrant, match=r"there is no such accounts.Account$") as caught:
        write(account, grant)
    assert caught.value.stored is None


@pytest.mark.databases("sqlite")
def test_write_with_a_released_grant_or_one_without_fence_raises(account: Account, store_down: str) -> None:
    """Without a query. [F14] A block that continues without a lock can't write fenced rows."""
    with override_locks(), locks.lock("account:1") as released:
        pass
    with locks.lock("account:1", wait=0, on_backend_error="open") as opened:
        for grant, error in ((released, LockLost), (opened, LockBackendError)):
            for write in (save, update):
                with CaptureQueriesContext(connection) as queries, pytest.raises(error):
                    write(account, grant)
                assert len(queries) == 0
    assert stored_row() == (100, 0)


def test_refused_write_leaves_the_transaction_usable(account: Account, grant: Grant) -> None:
    """The refused UPDATE has written nothing."""
    later_holder_writes()
    with transaction.atomic():
        Branch.objects.create(town="Ulm")
        for write in (save, update):
            with pytest.raises(StaleGrant):
                write(account, grant)
        assert Branch.objects.count() == 1
    assert Branch.objects.count() == 1


def write_of_a_stopped_process(url: str, stop: str, expire: float) -> str:
    """Stop a process at this point of its write while the next holder writes. Return the outcome of its write."""
    entry = {**connections.settings["default"]}
    options = {"DATABASES": {"default": entry}, "REDIS_LOCKS": {"default": {"LOCATION": url}}}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.django.writer_process", json.dumps({**options, "stop": stop, "expire": expire})],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.stdout.read()
        try:
            if expire > PATIENCE:
                with redis.Redis.from_url(url) as server:
                    server.pexpire("lock:{0}:k:account:1", 1)
            with locks.lock("account:1", wait=PATIENCE) as grant:
                fenced_update(ONE, grant, balance=F("balance") - 50)
        finally:
            process.send_signal(signal.SIGCONT)
        assert stored_row() == (50, grant.fence)
        return process.communicate(timeout=PATIENCE)[0].strip()


def test_write_of_a_process_stopped_before_its_update_is_refused(account: Account, redis_locks: str) -> None:
    """[L2] The lease expires at the server while the process is stopped."""
    assert write_of_a_stopped_process(redis_locks, "before UPDATE", expire=600) == "StaleGrant"
    assert stored_row()[0] == 50


@pytest.mark.databases("sqlite")
def test_write_of_a_process_stopped_beyond_its_lease_is_refused_locally(account: Account, redis_locks: str) -> None:
    """[L2] Without a query: by its own clock the lease has ended."""
    assert write_of_a_stopped_process(redis_locks, "after reading", expire=2) == "LockLost"
    assert stored_row()[0] == 50


# save()


def test_save_of_a_row_read_before_another_holder_wrote_it_raises_StaleGrant(account: Account) -> None:
    """The row was read before the lock was acquired, so that it may be outdated."""
    fence = later_holder_writes()
    with pytest.raises(LockLost), locks.lock("account:1") as grant:  # noqa: PT012
        with pytest.raises(
            StaleGrant, match=f"read before another holder wrote it: fence 0 was read, {fence} is stored"
        ):
            save(account, grant)
        assert account.fence == 0
        account.refresh_from_db()
        assert (account.balance, account.fence) == (50, fence)
        save(account, grant)
        assert stored_row() == (0, grant.fence) == (account.balance, account.fence)
        later_holder_writes()
        account.refresh_from_db()
        with pytest.raises(StaleGrant, match="a later holder has written"):
            save(account, grant)
        assert stored_row()[0] == 50


@pytest.mark.databases("sqlite")
def test_save_uses_the_lock_that_the_caller_holds(account: Account) -> None:
    """Also inside a re-entered lock."""
    lock = locks.rlock("account:1")
    with lock as grant:
        for balance, entry in ((1, nullcontext()), (2, lock)):
            with entry:
                account.balance = balance
                account.save()
            assert stored_row() == (balance, grant.fence)


@pytest.mark.databases("sqlite")
def test_save_under_no_or_several_locks_raises_LockNotOwned(account: Account) -> None:
    """Without a lock the write could silently restore old values. With several locks it is unknown which fence to
    use."""
    with CaptureQueriesContext(connection) as queries, pytest.raises(LockNotOwned, match="none is held here") as caught:
        account.save()
    assert len(queries) == 0
    assert "save(grant=...)" in str(caught.value)
    with locks.lock("account:1") as grant, locks.lock("mail:1"):
        with pytest.raises(LockNotOwned, match=r"several are held here \('mail', 'account'\): pass the right one"):
            account.save()
        account.save(grant=grant)
    assert stored_row() == (100, grant.fence)


@pytest.mark.databases("sqlite")
def test_new_row_needs_no_lock_and_takes_the_fence_of_one(account: Account) -> None:
    assert Account.objects.create().fence == 0
    with locks.lock("account:9") as grant:
        assert Account.objects.create().fence == grant.fence
        with locks.lock("mail:1"):
            assert Account.objects.create().fence == 0
            (new := Account()).save(grant=grant)
    assert stored_row(new.pk) == (100, grant.fence)


def test_new_instance_with_an_existing_key_raises_IntegrityError(account: Account, grant: Grant) -> None:
    """Otherwise Django would overwrite all fields of the existing row."""
    with pytest.raises(IntegrityError), transaction.atomic():
        Account(pk=1, balance=0).save()
    assert stored_row() == (100, 0)
    copy = Account.objects.get()
    copy.pk = None
    copy.save()
    assert Account.objects.count() == 2


def test_save_of_fields_of_an_unread_row_compares_the_stored_fence(account: Account, grant: Grant) -> None:
    later_holder_writes()
    with pytest.raises(StaleGrant):
        Account(pk=1, balance=8).save(update_fields=["balance"], grant=grant)
    with locks.lock("account:1 of tomorrow") as latest:
        Account(pk=1, balance=7).save(update_fields=["balance"], grant=latest)
    assert stored_row() == (7, latest.fence)


@pytest.mark.databases("sqlite")
def test_save_writes_the_fence_with_update_fields_and_deferred_fields(account: Account, grant: Grant) -> None:
    """Deferred fields aren't written."""
    some = Account.objects.only("balance", "fence").get()
    ONE.update(note="by hand")
    account.balance = F("balance") - 1
    account.save(update_fields=["balance"])
    account.refresh_from_db()
    assert (account.balance, account.note, account.fence) == (99, "by hand", grant.fence)
    some.refresh_from_db()
    save(some, grant)
    assert ONE.values_list("balance", "note", "fence").get() == (0, "by hand", grant.fence)


@pytest.mark.databases("sqlite")
def test_instance_read_before_a_write_of_the_same_grant_raises_StaleGrant(account: Account, grant: Grant) -> None:
    """[D4] After a write by another instance, a proxy model, or a claim; also after a partial refresh of the instance.
    After a full refresh it can be saved."""

    def by_another_instance() -> None:
        twin = Pooled.objects.get()
        twin.note += "!"
        twin.save()

    for write in (lambda: fenced_update(ONE, grant, note=""), by_another_instance, by_another_instance):
        write()
        for fields in ([], ["balance"], ["fence"]):
            account.refresh_from_db(fields=fields)
            with pytest.raises(StaleGrant, match="read before the last write under this lock: read it again"):
                account.save()
        account.refresh_from_db()
        account.balance -= 1
        account.save()
        account.save()
    assert ONE.values_list("balance", "note", "fence").get() == (97, "!!", grant.fence)
    created = Account.objects.create()
    by_another_instance = Account.objects.get(pk=created.pk)
    created.save()
    with pytest.raises(StaleGrant):
        by_another_instance.save()


@pytest.mark.databases("sqlite")
def test_instance_read_without_its_fence_raises_ValueError(account: Account, grant: Grant) -> None:
    """[D4] A deferred fence would be loaded later than the row, and couldn't show that the row is outdated."""
    for queryset in (Account.objects.only("balance"), Account.objects.defer("fence")):
        unfenced = queryset.get()
        later = unfenced.fence
        with pytest.raises(ValueError, match=r"name fence in only\(\)"):
            unfenced.save()
        assert stored_row() == (100, later)


@pytest.mark.databases("sqlite")
def test_instance_whose_row_a_post_save_handler_wrote_raises_StaleGrant(account: Account, grant: Grant) -> None:
    """[D4] Also after an insert. Its values are older than the write of the handler."""

    def write_once(sender: object, instance: Account, **_: object) -> None:
        post_save.disconnect(write_once, sender=Account)
        other = Account.objects.get(pk=instance.pk)
        other.balance += 50
        other.save()

    for instance in (account, Account()):
        post_save.connect(write_once, sender=Account, weak=False)
        instance.save()
        with pytest.raises(StaleGrant, match="read before the last write under this lock"):
            instance.save()
        assert stored_row(instance.pk) == (150, grant.fence)


@pytest.mark.databases("sqlite")
def test_unpickled_instance_of_a_row_that_the_grant_has_written_raises_StaleGrant(
    account: Account, grant: Grant
) -> None:
    """[D4] It may come from another process, with other read times."""

    def unpickled() -> Account:
        copy = Account()
        copy.__setstate__(account.__reduce__()[2])  # type: ignore[attr-defined]
        return copy

    unpickled().save()
    account.refresh_from_db()
    with pytest.raises(StaleGrant):
        unpickled().save()
    account.save()


@pytest.mark.databases("sqlite")
def test_writes_of_many_rows_are_forgotten(account: Account, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D4] The oldest first."""
    remember_rows(monkeypatch, 2)
    rows = [Account.objects.create() for _ in range(3)]
    stale = [Account.objects.get(pk=row.pk) for row in rows]
    for row in rows:
        row.save()
    stale[0].save()
    with pytest.raises(StaleGrant):
        stale[2].save()


def test_fence_of_a_parent_in_another_table_is_compared_first(account: Account) -> None:
    """This locks the row until COMMIT."""
    savings = Savings.objects.create()
    with locks.lock("savings:1") as grant:
        savings.balance, savings.rate = 5, 6
        savings.save()
        assert stored_row(savings.pk) == (5, grant.fence)
        Account.objects.filter(pk=savings.pk).update(fence=F("fence") + 1)
        savings.rate = 7
        with pytest.raises(StaleGrant):
            savings.save()
    assert Savings.objects.get().rate == 6


def test_parent_without_a_fence_is_written_with_its_child_or_not_at_all(account: Account) -> None:
    till = Till.objects.create(town="Ulm")
    with locks.lock("till:1") as grant:
        till.town = "Bern"
        till.save()
        assert Till.objects.values_list("town", "fence").get() == ("Bern", grant.fence)
        Till.objects.update(fence=F("fence") + 1)
        till.town = "Graz"
        with pytest.raises(StaleGrant):
            till.save()
    assert Branch.objects.get().town == "Bern"


def test_save_that_the_database_refuses_does_not_change_the_fence(account: Account, grant: Grant) -> None:
    account.branch_id = 99
    account.balance = None
    with pytest.raises(IntegrityError):
        account.save()
    assert account.fence == 0
    assert stored_row() == (100, 0)
    account.branch_id, account.balance = None, 1
    with CaptureQueriesContext(connection) as queries:
        account.save()
    assert [query["sql"].split()[0] for query in queries if "UPDATE" in query["sql"]] == ["UPDATE", "UPDATE"]
    assert not any("SELECT" in query["sql"] for query in queries)


# fenced_update


def test_fenced_update_writes_all_rows_or_none(account: Account, grant: Grant) -> None:
    """A condition is part of the UPDATE."""
    other = Account.objects.create()
    with pytest.raises(StaleGrant, match="no such"):
        fenced_update(ONE.filter(balance__gte=500), grant, balance=F("balance") - 500)
    assert fenced_update(Account.objects.filter(balance__gte=50), grant, balance=F("balance") - 1) == 2
    later_holder_writes()
    with pytest.raises(StaleGrant):
        fenced_update(Account.objects.all(), grant, balance=0)
    assert stored_row(other.pk) == (99, grant.fence)


def test_fenced_update_without_values_claims_the_row(account: Account) -> None:
    """It stores the fence, so that earlier holders are refused."""
    early = elsewhere(locks.lock("account:1").acquire).result(PATIENCE)

    def claim() -> None:
        empty_store()
        with locks.lock("account:1") as grant:
            fenced_update(ONE, grant)

    with before_update(lambda: elsewhere(claim).result(PATIENCE)), pytest.raises(StaleGrant):
        save(account, early)
    assert stored_row()[0] == 100


@pytest.mark.databases("sqlite")
def test_fenced_update_of_two_tables_raises_ValueError(account: Account, grant: Grant) -> None:
    """With a subquery the database would compare the fence from before the wait for the row."""
    values: dict[str, Any]
    for queryset, values in (
        (Account.objects.filter(branch__town="Ulm"), {"balance": 0}),
        (Account.objects.filter(Q(pk=1) | Q(branch__town="Ulm")), {"balance": 0}),
        (Savings.objects.filter(pk=1), {"rate": 0}),
        (Savings.objects.filter(pk=1), {"balance": 0}),
        (Till.objects.filter(pk=1), {"town": "Ulm"}),
    ):
        with CaptureQueriesContext(connection) as queries, pytest.raises(ValueError, match=r"save\(\) the instance"):
            fenced_update(queryset, grant, **values)
        assert len(queries) == 0


# Tasks


def test_async_writes_of_a_late_holder_raise_StaleGrant(account: Account) -> None:
    async def run() -> None:
        async with locks.lock("account:1") as grant:
            account.balance = 1
            await account.asave()
            assert await afenced_update(ONE, grant, note="a") == 1
            await account.asave(grant=grant, update_fields=["balance"])
            await sync_to_async(later_holder_writes)()
            with pytest.raises(StaleGrant):
                await afenced_update(ONE, grant, balance=0)
            with pytest.raises(StaleGrant):
                await account.asave()
        with pytest.raises(LockNotOwned):
            await account.asave()

    with pytest.raises(LockLost):  # at the end of the block, because its release was forced
        async_to_sync(run)()
    assert stored_row()[0] == 50


# A row and a lock, acquired in opposite order: neither database nor store detects this deadlock


def take() -> None:
    with locks.lock("account:1", wait=0.05):
        pytest.fail("it ran beside the holder")


def test_deadlock_of_row_and_lock_ends_with_the_wait(account: Account) -> None:
    """[D13] One thread has the row and waits for the lock, the other one has the lock and waits for the row. The wait
    for the lock ends, its transaction is rolled back, and the other thread continues."""
    written, locked = threading.Event(), threading.Event()

    def other() -> None:
        assert written.wait(PATIENCE)
        with locks.lock("account:1"):
            locked.set()
            ONE.update(note="other")

    def one() -> None:
        with transaction.atomic():
            ONE.update(balance=0)
            written.set()
            assert locked.wait(PATIENCE)
            take()

    going_on = elsewhere(other)
    with pytest.raises(LockNotAcquired):
        one()
    going_on.result(PATIENCE)
    assert ONE.values_list("balance", "note").get() == (100, "other")
    assert not locks.lock("account:1").locked()
