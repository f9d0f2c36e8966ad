"""A task that is cancelled ends, wherever it is."""

from __future__ import annotations

import asyncio

import pytest

from django_redis_locks.client import Locks


def test_a_waiter_is_cancelled_at_any_step(proxied: Locks) -> None:
    """[L16] [E7] Whichever turn of the loop it comes in: a waiter that ignores it would wait on, with -1 for ever.
    `asyncio.wait_for` of Python 3.11 returns a result in the place of a cancellation: nothing may send with it."""

    async def main() -> None:
        lock = proxied.lock("a", expire=60)
        async with proxied.lock("warm up"):
            pass
        holder = await asyncio.create_task(lock.aacquire())
        for turns in range(20):
            waiter = asyncio.create_task(lock.aacquire(timeout=60))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        await holder.arelease()

    asyncio.run(main())
