"""A synchronous call in a running loop would block every task of it: it is refused and names what to write. [F17]"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from django_redis_locks import Lock, LockAlreadyHeld, current_grant, locks, redis_lock
from tests.django.helpers import PATIENCE, in_thread


@redis_lock("order")
def decorated() -> str:
    return "done"


CALLS: dict[str, Callable[[Lock], object]] = {
    "acquire": lambda lock: lock.acquire(timeout=-1),
    "acquire-non-blocking": lambda lock: lock.acquire(blocking=False),
    "with": lambda lock: lock.__enter__(),
    "locked": lambda lock: lock.locked(),
    "holder": lambda lock: lock.holder(),
    "force_release": lambda lock: lock.force_release(),
    "decorated": lambda lock: decorated(),
}
ON_A_GRANT: dict[str, Callable[[Any], object]] = {
    "extend": lambda grant: grant.extend(60),
    "ensure_held": lambda grant: grant.ensure_held(confirm=True),
    "release": lambda grant: grant.release(),  # which comes last: it ends the hold all the same
}


def test_synchronous_call_in_a_loop_raises_and_names_its_async_twin(
    redis_locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[F17] Every one that asks the store; nothing is left locked. An empty variable allows nothing, as for Django."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "")

    async def of_a_lock() -> None:
        for name, call in CALLS.items():
            lock = locks.lock("order")
            with pytest.raises(SynchronousOnlyOperation, match=r"async context - use the a-twin .*acquire: aacquire"):
                pytest.fail(f"{name} returned {call(lock)!r}")

    async def of_a_grant() -> None:
        lock = locks.lock("order")
        grant = await lock.aacquire()
        for name, call in ON_A_GRANT.items():
            assert await lock.alocked(), name
            with pytest.raises(SynchronousOnlyOperation):
                call(grant)
        await grant.arelease()

    for story in (of_a_lock, of_a_grant):
        asyncio.run(story())
        in_thread(lambda: locks.lock("order").acquire(timeout=PATIENCE).release())


def test_synchronous_call_without_io_or_in_a_thread_is_allowed(redis_locks: str) -> None:
    """[F5] [F17] A task that holds the lock gets LockAlreadyHeld without a question to the store."""

    async def story() -> None:
        lock = locks.lock("order")
        async with lock as grant:
            assert lock.owned()
            assert grant.remaining() > 0
            assert not grant.lost
            grant.ensure_held()
            assert current_grant() is grant
            assert "order" in repr(lock)
            with pytest.raises(LockAlreadyHeld):
                lock.acquire()
        assert await asyncio.to_thread(decorated) == "done"

    asyncio.run(story())
