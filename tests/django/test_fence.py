"""What a fence is for: a store that takes it refuses a writer whose lock is another's by now."""

from __future__ import annotations

import pytest
from django.db import connection

from django_redis_locks import Grant, LockLost, locks
from tests.django.helpers import LEASE, PATIENCE, until


@pytest.fixture
def account(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE account (id INTEGER, balance INTEGER, fence BIGINT)")
        cursor.execute("INSERT INTO account VALUES (1, 100, 0)")


def write(grant: Grant, balance: int) -> bool:
    """Write unless a later holder has written."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE account SET balance = %s, fence = %s WHERE id = 1 AND fence <= %s",
            [balance, grant.fence, grant.fence],
        )
        return cursor.rowcount == 1


def test_one_grant_writes_more_than_once(account: None, store: str) -> None:
    """[F22] The condition is `stored <= mine`: with `<` the second write of one holder would fail."""
    with locks.lock("account:1") as grant:
        assert write(grant, 90)
        assert write(grant, 80)


def test_a_late_writer_is_refused(account: None, store: str) -> None:
    """[L2] [F22] Its lease ran out unnoticed and another one has written: what it writes now changes nothing."""
    late = locks.lock("account:1", expire=LEASE, wait=PATIENCE).acquire()
    until(lambda: late.lost)
    with locks.lock("account:1", wait=20) as grant:
        assert write(grant, 50)
    assert not write(late, 0)
    with pytest.raises(LockLost):
        late.release()


def test_fences_of_two_keys_have_nothing_to_say_to_each_other(store: str) -> None:
    """[F21] Each grant has the fence of its own key; a grant on several keys at once has yet to come."""
    with locks.lock("a") as first, locks.lock("b") as second:
        assert isinstance(first.fence, int)
        assert isinstance(second.fence, int)
    assert not hasattr(locks, "multi_lock")
