"""``hold_lock``: holds a lock as another owner, so that the code under test finds it busy."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ..core.errors import LockLost
from ..handler import DEFAULT, locks
from .other_thread import by_test_helper, in_other_thread

if TYPE_CHECKING:
    from types import TracebackType

    from ..core.grant import Grant
    from ..primitives.lock import Lock


class hold_lock:  # noqa: N801 - read as a function, as in: with hold_lock("order:1")
    """``with hold_lock("order:1"):`` or ``async with``: another owner holds this lock until the block ends.

    The owner is another thread or task of this process, so the thread of the test, and views that it calls, find the
    lock busy. ``capture_locks`` ignores this lock. ``as`` returns the grant. It isn't an error if the lock is released
    by force or its lease ends within the block.

    Raises:
        AssertionError: at the beginning of the block, if the lock is busy.
    """

    def __init__(self, key: str, using: str = DEFAULT, **options: Any) -> None:
        """
        Args:
            key: the filled key.
            using: the alias.
            options: as for ``locks.lock``, such as ``expire``, in seconds.
        """
        self._arguments = key, using, options
        self._grant: Grant | None = None

    def __enter__(self) -> Grant:
        """Acquire the lock in another thread.

        Returns:
            The grant.

        Raises:
            AssertionError: the lock is busy.
        """
        lock = self._lock()
        self._grant = self._granted(lock, in_other_thread(lambda: lock.acquire(False)))
        return self._grant

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Release the lock, unless it was released or lost."""
        grant, self._grant = self._grant, None
        if grant is not None:
            with suppress(LockLost):
                in_other_thread(grant.release)

    async def __aenter__(self) -> Grant:
        """Acquire the lock in another task.

        Returns:
            The grant.

        Raises:
            AssertionError: the lock is busy.
        """
        lock = self._lock()
        self._grant = self._granted(lock, await self._task(lock.aacquire(False)))
        return self._grant

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the lock, unless it was released or lost."""
        grant, self._grant = self._grant, None
        if grant is not None:
            with suppress(LockLost):
                await self._task(grant.arelease())

    def _lock(self) -> Lock:
        key, using, options = self._arguments
        return locks[using].lock(key, **options)

    @staticmethod
    def _task(coroutine: Any) -> asyncio.Task[Any]:
        context = Context()
        context.run(by_test_helper.set, True)
        return asyncio.get_running_loop().create_task(coroutine, name="hold_lock", context=context)

    @staticmethod
    def _granted(lock: Lock, grant: Grant | None) -> Grant:
        if grant is None:
            raise AssertionError(f"{lock.key!r} can't be held for the test: {in_other_thread(lock.holder)} holds it.")
        return grant
