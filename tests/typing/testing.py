"""What type checkers make of the helpers for tests. Nothing runs this: `make types` reads it with mypy and pyright."""

from __future__ import annotations

from typing import assert_type

from django.test import TestCase

from django_redis_locks import Grant
from django_redis_locks.testing import assert_locked, capture_locks, hold_lock, override_locks

with hold_lock("order:42", expire=5) as grant, capture_locks() as seen:
    assert_type(grant, Grant)
    assert_type(seen.acquired, list[str])
    assert_locked("order:42")


async def story() -> None:
    async with hold_lock("order:42", using="payments") as grant:
        assert_type(grant, Grant)


with override_locks(WAIT=0):
    pass


@override_locks()
class CheckoutTest(TestCase):
    @override_locks(WAIT=0)
    def test_checkout_takes_one_lock(self) -> None: ...


hold_lock(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
