"""Two transactions, a row and a lock, taken in opposite order: neither the database nor the store sees the circle."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from django_redis_locks import LockNotAcquired, locks
from tests.databases import elsewhere
from tests.django.account_models import Account, create_tables
from tests.django.helpers import PATIENCE

ONE = Account.objects.filter(pk=1)


def take() -> None:
    with locks.lock("account:1", wait=0.05):
        pytest.fail("it ran beside the holder")


@pytest.mark.usefixtures("database")
def test_deadlock_of_row_and_lock_ends_with_the_wait() -> None:
    """[D13] One has the row and wants the lock, the other has the lock and wants the row: the wait for a lock ends, its
    transaction is rolled back, and the other one goes on."""
    create_tables()
    Account.objects.create()
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
