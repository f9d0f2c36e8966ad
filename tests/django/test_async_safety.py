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
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_refused(self, call: Callable[[Lock], object]) -> None:
        """[F17] Every synchronous call that asks the store raises, names the a-twin, and leaves nothing locked."""
        lock = locks.lock("order")
        with pytest.raises(SynchronousOnlyOperation, match=r"async context - use the a-twin .*acquire: aacquire"):
            in_loop(lambda: call(lock))
        in_thread(lambda: lock.acquire(timeout=PATIENCE).release())

    @pytest.mark.parametrize("call", ON_A_GRANT.values(), ids=ON_A_GRANT)
    def test_refused_on_a_grant(self, call: Callable[[Lock], object]) -> None:
        """[F17] So do those of a grant; it stays held, and its a-methods work."""

        async def story() -> None:
            lock = locks.lock("order")
            async with lock as grant:
                with pytest.raises(SynchronousOnlyOperation):
                    call(lock)
                await grant.aextend(60)
                await grant.aensure_held(confirm=True)
                assert await lock.alocked()

        asyncio.run(story())

    @pytest.mark.parametrize("release", [lambda lock, grant: lock.release(), lambda lock, grant: grant.release()])
    def test_a_release_is_refused_too(self, release: Callable[..., object]) -> None:
        """[F17] A synchronous release raises; the lock comes free all the same."""

        async def story() -> None:
            lock = locks.lock("order")
            grant = await lock.aacquire()
            with pytest.raises(SynchronousOnlyOperation):
                release(lock, grant)
            await grant.arelease()

        asyncio.run(story())
        in_thread(lambda: locks.lock("order").acquire(timeout=PATIENCE).release())

    def test_in_a_thread(self) -> None:
        """[F17] `asyncio.to_thread` is the way to call it."""
        assert asyncio.run(asyncio.to_thread(decorated)) == "done"

    def test_what_asks_nobody_is_fine(self) -> None:
        """[F17] Calls without I/O are allowed: a loop isn't blocked by them."""

        async def story() -> None:
            lock = locks.lock("order")
            async with lock as grant:
                assert lock.owned()
                assert grant.remaining() > 0
                assert not grant.lost
                grant.ensure_held()
                assert current_grant() is grant
                assert "order" in repr(lock)

        asyncio.run(story())

    def test_who_holds_it_is_told_that_instead(self) -> None:
        """[F5] A task that holds the lock already gets to know, without the store."""

        async def story() -> None:
            lock = locks.lock("order")
            async with lock:
                with pytest.raises(LockAlreadyHeld):
                    lock.acquire()

        asyncio.run(story())


@pytest.mark.usefixtures("store")
def test_allowed_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """[F17] DJANGO_ALLOW_ASYNC_UNSAFE lets them pass, as in notebooks."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

    def story() -> str:
        lock = locks.lock("order")
        with lock as grant:
            grant.extend(60)
            assert lock.locked()
        assert not lock.locked()
        return decorated()

    assert in_loop(story) == "done"


def test_django_says_it_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """[F17] An empty DJANGO_ALLOW_ASYNC_UNSAFE is no permission, as for Django itself."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "")
    with pytest.raises(SynchronousOnlyOperation):
        in_loop(decorated)
