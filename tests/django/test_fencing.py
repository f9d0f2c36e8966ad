"""Rows with a fence, on three databases: which writes are done, which are refused, and with which error."""

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
from tests.django.account_models import Account, Branch, Pooled, Savings, Till, before_update, create_tables, stored
from tests.django.helpers import PATIENCE
from tests.probes.django import empty_store, remember_rows

ROOT = Path(__file__).resolve().parents[2]
ONE = Account.objects.filter(pk=1)


@pytest.fixture
def account(database: str) -> Account:
    """The row with the primary key 1, as read; not yet written under a lock."""
    create_tables()
    Account.objects.create()
    return Account.objects.get()


@pytest.fixture
def grant() -> Any:
    """Of the lock that guards the account; a test may take it away."""
    grant = locks.lock("account:1").acquire()
    yield grant
    with suppress(LockLost):
        grant.release()


def later_holder_writes(balance: int = 50) -> int:
    """Another holder takes the lock away and writes. Its fence."""

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


# The late holder


@WRITES
def test_late_write_raises_StaleGrant(account: Account, grant: Grant, write: Callable[..., None]) -> None:
    """[L2] [F22] Paused between the last look at its lock and its write; another holder writes meanwhile."""
    fences = []
    with before_update(lambda: fences.append(later_holder_writes())), pytest.raises(StaleGrant) as caught:
        write(account, grant)
    assert stored() == (50, fences[0])
    error = caught.value
    assert (error.fence, error.stored) == (grant.fence, fences[0])
    assert (error.key, error.name, error.alias) == ("account:1", "account", "default")
    assert str(error) == (
        "lock 'account' doesn't cover this write: a later holder has written this accounts.Account: "
        f"its fence is {fences[0]}, that of this lock is {grant.fence}"
    )
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


@WRITES
def test_holder_may_write_more_than_once(account: Account, grant: Grant, write: Callable[..., None]) -> None:
    """[F22] The condition is `stored <= mine`: with `<` the second write of one holder would fail."""
    write(account, grant)
    write(account, grant)
    assert stored() == (0, grant.fence)
    ONE.delete()
    with pytest.raises(StaleGrant, match=r"there is no such accounts.Account$") as caught:
        write(account, grant)
    assert caught.value.stored is None


@pytest.mark.databases("sqlite")
def test_write_with_a_released_grant_or_one_without_fence_raises(account: Account, store_down: str) -> None:
    """Without a query. [F14] A section may go on without a lock, but no fenced row is written in it."""
    with override_locks(), locks.lock("account:1") as released:
        pass
    with locks.lock("account:1", wait=0, on_backend_error="open") as opened:
        for grant, error in ((released, LockLost), (opened, LockBackendError)):
            for write in (save, update):
                with CaptureQueriesContext(connection) as queries, pytest.raises(error):
                    write(account, grant)
                assert len(queries) == 0
    assert stored() == (100, 0)


def test_refused_write_leaves_the_transaction_usable(account: Account, grant: Grant) -> None:
    """Nothing was written, so nothing has to be rolled back."""
    later_holder_writes()
    with transaction.atomic():
        Branch.objects.create(town="Ulm")
        for write in (save, update):
            with pytest.raises(StaleGrant):
                write(account, grant)
        assert Branch.objects.count() == 1
    assert Branch.objects.count() == 1


def write_of_a_stopped_process(url: str, stop: str, expire: float) -> str:
    """The outcome of a write whose process is stopped at this point while the next holder writes."""
    entry = {**connections.settings["default"]}
    terms = {"DATABASES": {"default": entry}, "REDIS_LOCKS": {"default": {"LOCATION": url}}}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.django.writer_process", json.dumps({**terms, "stop": stop, "expire": expire})],
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
        assert stored() == (50, grant.fence)
        return process.communicate(timeout=PATIENCE)[0].strip()


def test_write_of_a_process_stopped_before_its_update_is_refused(account: Account, redis_locks: str) -> None:
    """[L2] SIGSTOP, the lease runs out at the server, the next holder writes, SIGCONT."""
    assert write_of_a_stopped_process(redis_locks, "before UPDATE", expire=600) == "StaleGrant"
    assert stored()[0] == 50


@pytest.mark.databases("sqlite")
def test_write_of_a_process_stopped_beyond_its_lease_is_refused_by_itself(account: Account, redis_locks: str) -> None:
    """[L2] Its own clock says that the lease is over."""
    assert write_of_a_stopped_process(redis_locks, "after reading", expire=2) == "LockLost"
    assert stored()[0] == 50


# save()


def test_save_of_a_row_read_before_another_holder_wrote_it_raises_StaleGrant(account: Account) -> None:
    """Read, then locked: the lock is good, what was read isn't. Read again, by a holder whose lock is gone: neither."""
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
        assert stored() == (0, grant.fence) == (account.balance, account.fence)
        later_holder_writes()
        account.refresh_from_db()
        with pytest.raises(StaleGrant, match="a later holder has written"):
            save(account, grant)
        assert stored()[0] == 50


@pytest.mark.databases("sqlite")
def test_save_uses_the_lock_that_the_caller_holds(account: Account) -> None:
    """Also inside a re-entry."""
    lock = locks.rlock("account:1")
    with lock as grant:
        for balance, entry in ((1, nullcontext()), (2, lock)):
            with entry:
                account.balance = balance
                account.save()
            assert stored() == (balance, grant.fence)


@pytest.mark.databases("sqlite")
def test_save_under_no_or_several_locks_raises_LockNotOwned(account: Account) -> None:
    """Written past the lock, the row would silently go back to what was read; the fence of another key is no better
    than a chance number."""
    with CaptureQueriesContext(connection) as queries, pytest.raises(LockNotOwned, match="none is held here") as caught:
        account.save()
    assert len(queries) == 0
    assert "save(grant=...)" in str(caught.value)
    with locks.lock("account:1") as grant, locks.lock("mail:1"):
        with pytest.raises(LockNotOwned, match=r"several are held here \('mail', 'account'\): pass the right one"):
            account.save()
        account.save(grant=grant)
    assert stored() == (100, grant.fence)


@pytest.mark.databases("sqlite")
def test_new_row_needs_no_lock_and_takes_the_fence_of_one(account: Account) -> None:
    assert Account.objects.create().fence == 0
    with locks.lock("account:9") as grant:
        assert Account.objects.create().fence == grant.fence
        with locks.lock("mail:1"):
            assert Account.objects.create().fence == 0
            (new := Account()).save(grant=grant)
    assert stored(new.pk) == (100, grant.fence)


def test_new_instance_with_an_existing_key_raises_IntegrityError(account: Account, grant: Grant) -> None:
    """Django would write all fields of a row that has this key already."""
    with pytest.raises(IntegrityError), transaction.atomic():
        Account(pk=1, balance=0).save()
    assert stored() == (100, 0)
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
    assert stored() == (7, latest.fence)


@pytest.mark.databases("sqlite")
def test_update_fields_or_loaded_fields_and_the_fence_are_written(account: Account, grant: Grant) -> None:
    """What a read leaves out isn't written."""
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
    """[D4] Whatever wrote: another instance, one of a proxy model, a claim; from the first write on, when the fence that was
    read is the grant's own; also after a part of it was read again. Read again, it is written."""

    def by_twin() -> None:
        twin = Pooled.objects.get()
        twin.note += "!"
        twin.save()

    for write in (lambda: fenced_update(ONE, grant, note=""), by_twin, by_twin):
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
    by_twin = Account.objects.get(pk=created.pk)
    created.save()
    with pytest.raises(StaleGrant):
        by_twin.save()


@pytest.mark.databases("sqlite")
def test_instance_read_without_its_fence_raises_ValueError(account: Account, grant: Grant) -> None:
    """[D4] Later than the row, the fence that is loaded with the attribute says nothing."""
    for queryset in (Account.objects.only("balance"), Account.objects.defer("fence")):
        unfenced = queryset.get()
        later = unfenced.fence
        with pytest.raises(ValueError, match=r"name fence in only\(\)"):
            unfenced.save()
        assert stored() == (100, later)


@pytest.mark.databases("sqlite")
def test_instance_whose_row_a_post_save_handler_wrote_raises_StaleGrant(account: Account, grant: Grant) -> None:
    """[D4] Also after an insert. Its own values are as old as its own write."""

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
        assert stored(instance.pk) == (150, grant.fence)


@pytest.mark.databases("sqlite")
def test_unpickled_instance_of_a_row_that_the_grant_has_written_raises_StaleGrant(
    account: Account, grant: Grant
) -> None:
    """[D4] It may come from another process, whose moments can't be compared."""

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
def test_moments_of_many_rows_are_forgotten(account: Account, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """And locks the row until COMMIT."""
    savings = Savings.objects.create()
    with locks.lock("savings:1") as grant:
        savings.balance, savings.rate = 5, 6
        savings.save()
        assert stored(savings.pk) == (5, grant.fence)
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


def test_save_that_the_database_refuses_leaves_the_fence_alone(account: Account, grant: Grant) -> None:
    account.branch_id = 99
    account.balance = None
    with pytest.raises(IntegrityError):
        account.save()
    assert account.fence == 0
    assert stored() == (100, 0)
    account.branch_id, account.balance = None, 1
    with CaptureQueriesContext(connection) as queries:
        account.save()
    assert [query["sql"].split()[0] for query in queries if "UPDATE" in query["sql"]] == ["UPDATE", "UPDATE"]
    assert not any("SELECT" in query["sql"] for query in queries)


# fenced_update


def test_fenced_update_writes_all_rows_or_none(account: Account, grant: Grant) -> None:
    """A condition is part of the write."""
    other = Account.objects.create()
    with pytest.raises(StaleGrant, match="no such"):
        fenced_update(ONE.filter(balance__gte=500), grant, balance=F("balance") - 500)
    assert fenced_update(Account.objects.filter(balance__gte=50), grant, balance=F("balance") - 1) == 2
    later_holder_writes()
    with pytest.raises(StaleGrant):
        fenced_update(Account.objects.all(), grant, balance=0)
    assert stored(other.pk) == (99, grant.fence)


def test_fenced_update_without_values_claims_the_row(account: Account) -> None:
    """From then on earlier holders are refused, also before anything is written."""
    early = elsewhere(locks.lock("account:1").acquire).result(PATIENCE)

    def claim() -> None:
        empty_store()
        with locks.lock("account:1") as grant:
            fenced_update(ONE, grant)

    with before_update(lambda: elsewhere(claim).result(PATIENCE)), pytest.raises(StaleGrant):
        save(account, early)
    assert stored()[0] == 100


@pytest.mark.databases("sqlite")
def test_fenced_update_of_two_tables_raises_ValueError(account: Account, grant: Grant) -> None:
    """In a subquery the database would compare the fence that the row had before it waited for it."""
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


def test_asynchronous_writes_of_a_late_holder_raise_StaleGrant(account: Account) -> None:
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

    with pytest.raises(LockLost):  # at the end of the block: it was taken away
        async_to_sync(run)()
    assert stored()[0] == 50


# A row and a lock, taken in opposite order: neither the database nor the store sees the circle


def take() -> None:
    with locks.lock("account:1", wait=0.05):
        pytest.fail("it ran beside the holder")


def test_deadlock_of_row_and_lock_ends_with_the_wait(account: Account) -> None:
    """[D13] One has the row and wants the lock, the other has the lock and wants the row: the wait for a lock ends, its
    transaction is rolled back, and the other one goes on."""
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
