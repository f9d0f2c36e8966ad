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


def enter(lock: Lock) -> None:
    with lock:
        pytest.fail("it was let in")


CALLS: dict[str, Callable[[Lock], object]] = {
    "acquire": lambda lock: lock.acquire(),
    "acquire-for-ever": lambda lock: lock.acquire(timeout=-1),
    "acquire-with-timeout": lambda lock: lock.acquire(timeout=0.5),
    "acquire-non-blocking": lambda lock: lock.acquire(blocking=False),
    "with": enter,
    "locked": lambda lock: lock.locked(),
    "holder": lambda lock: lock.holder(),
    "force_release": lambda lock: lock.force_release(),
    "decorated": lambda lock: decorated(),
}
ON_A_GRANT: dict[str, Callable[[Lock], object]] = {
    "extend": lambda lock: current_grant().extend(60),  # type: ignore[union-attr]
    "ensure_held": lambda lock: current_grant().ensure_held(confirm=True),  # type: ignore[union-attr]
}


def in_loop(call: Callable[[], Any]) -> Any:
    async def story() -> Any:
        return call()

    return asyncio.run(story())


@pytest.mark.usefixtures("store")
class TestInALoop:
    def test_synchronous_call_in_a_loop_raises_and_names_its_async_twin(self) -> None:
        """[F17] Every one that asks the store; nothing is left locked."""
        for name, call in CALLS.items():
            lock = locks.lock("order")
            with pytest.raises(SynchronousOnlyOperation, match=r"async context - use the a-twin .*acquire: aacquire"):
                in_loop(lambda: call(lock))  # noqa: B023 - called at once
            assert in_thread(lambda: lock.acquire(timeout=PATIENCE).release()) is None, name  # noqa: B023

    def test_synchronous_call_of_a_grant_in_a_loop_raises(self) -> None:
        """[F17] The grant stays held, and its a-methods work."""

        async def scenario(call: Callable[[Lock], object]) -> None:
            lock = locks.lock("order")
            async with lock as grant:
                with pytest.raises(SynchronousOnlyOperation):
                    call(lock)
                await grant.aextend(60)
                await grant.aensure_held(confirm=True)
                assert await lock.alocked()

        for call in ON_A_GRANT.values():
            asyncio.run(scenario(call))

    def test_synchronous_release_in_a_loop_raises_and_frees_the_lock(self) -> None:
        """[F17]"""

        async def scenario(release: Callable[..., object]) -> None:
            lock = locks.lock("order")
            grant = await lock.aacquire()
            with pytest.raises(SynchronousOnlyOperation):
                release(lock, grant)
            await grant.arelease()

        for release in (lambda lock, grant: lock.release(), lambda lock, grant: grant.release()):
            asyncio.run(scenario(release))
            in_thread(lambda: locks.lock("order").acquire(timeout=PATIENCE).release())

    def test_synchronous_call_without_io_or_in_a_thread_is_allowed(self) -> None:
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


@pytest.mark.usefixtures("store")
def test_DJANGO_ALLOW_ASYNC_UNSAFE_lets_synchronous_calls_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """[F17] As in notebooks; if it isn't empty, as for Django itself."""

    def story() -> str:
        lock = locks.lock("order")
        with lock as grant:
            grant.extend(60)
            assert lock.locked()
        assert not lock.locked()
        return decorated()

    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "")
    with pytest.raises(SynchronousOnlyOperation):
        in_loop(decorated)
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    assert in_loop(story) == "done"
