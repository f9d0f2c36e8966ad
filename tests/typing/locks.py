"""Types of `locks`, grants and test helpers, checked by `make types` with mypy and pyright. This file isn't run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from django.test import TestCase

from django_redis_locks import Grant, Holder, Lock, current_grant, locks
from django_redis_locks.testing import assert_locked, capture_locks, hold_lock, override_locks

lock = locks.lock("order:42", expire=timedelta(seconds=5), wait=3)
assert_type(lock, Lock)
assert_type(locks["payments"].rlock("order:42"), Lock)
assert_type(lock.acquire(), Grant)
assert_type(lock.acquire(timeout=0.5), Grant | None)
assert_type(lock.acquire(False), Grant | None)
assert_type(lock.holder(), Holder | None)
assert_type(current_grant(), Grant | None)

with lock as grant:
    assert_type(grant, Grant)
    assert_type(grant.fence, int | None)


assert_type(locks.latch("import").try_set(3, expire=timedelta(hours=1)), bool)
assert_type(locks["payments"].latch("import").count_down("a"), int)
assert_type(locks.latch("import").wait(timeout=5), bool)


async def awaits() -> None:
    assert_type(await locks.latch("import").await_(), bool)
    async with lock as grant:
        assert_type(grant, Grant)
    assert_type(await lock.aacquire(), Grant)
    assert_type(await lock.aacquire(timeout=1), Grant | None)


locks.latch("import", expire=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", expire="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", timeout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", on_lost="raise")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", hold="response")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", on_backend_error="opne")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
lock.acquire(timeout=5).release()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]


# Helpers for tests

with hold_lock("order:42", expire=5) as grant, capture_locks() as seen:
    assert_type(grant, Grant)
    assert_type(seen.acquired, list[str])
    assert_locked("order:42")


async def awaits_in_a_test() -> None:
    async with hold_lock("order:42", using="payments") as grant:
        assert_type(grant, Grant)


with override_locks(WAIT=0):
    pass


@override_locks()
class CheckoutTest(TestCase):
    @override_locks(WAIT=0)
    def test_checkout_takes_one_lock(self) -> None: ...


hold_lock(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
