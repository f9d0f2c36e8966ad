"""What type checkers make of `locks` and grants. Nothing runs this: `make types` reads it with mypy and pyright."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from django_redis_locks import Grant, Holder, Lock, current_grant, locks

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


async def story() -> None:
    async with lock as grant:
        assert_type(grant, Grant)
    assert_type(await lock.aacquire(), Grant)
    assert_type(await lock.aacquire(timeout=1), Grant | None)


locks.lock(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", expire="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", timeout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
locks.lock("order", on_lost="raise")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
lock.acquire(timeout=5).release()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
