"""Somebody else holds a lock, so that the code under test meets contention."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ..core.errors import LockLost
from ..handler import DEFAULT, locks
from .other_thread import elsewhere, staged

if TYPE_CHECKING:
    from types import TracebackType

    from ..core.grant import Grant
    from ..primitives.lock import Lock


class hold_lock:  # noqa: N801 - read as a function, as in: with hold_lock("order:1")
    """``with hold_lock("order:1"):`` or ``async with``: somebody else holds this lock until the block ends.

    That is another owner in the same process, a thread or a task: the thread of the test and the views that it calls are
    refused, or wait. Of what it does ``capture_locks`` tells nothing. The block gets the grant; if the code under test
    took the lock away, or its lease ended, that isn't an error here.
    """

    def __init__(self, key: str, using: str = DEFAULT, **terms: Any) -> None:
        """
        Args:
            key: the filled key.
            using: the alias.
            terms: what ``locks.lock`` takes, such as ``expire``, in seconds.
        """
        self._wish = key, using, terms
        self._grant: Grant | None = None

    def __enter__(self) -> Grant:
        lock = self._lock()
        self._grant = self._of(lock, elsewhere(lambda: lock.acquire(False)))
        return self._grant

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        grant, self._grant = self._grant, None
        if grant is not None:
            with suppress(LockLost):
                elsewhere(grant.release)

    async def __aenter__(self) -> Grant:
        lock = self._lock()
        self._grant = self._of(lock, await self._task(lock.aacquire(False)))
        return self._grant

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        grant, self._grant = self._grant, None
        if grant is not None:
            with suppress(LockLost):
                await self._task(grant.arelease())

    def _lock(self) -> Lock:
        key, using, terms = self._wish
        return locks[using].lock(key, **terms)

    @staticmethod
    def _task(coroutine: Any) -> asyncio.Task[Any]:
        context = Context()
        context.run(staged.set, True)
        return asyncio.get_running_loop().create_task(coroutine, name="somebody else", context=context)

    @staticmethod
    def _of(lock: Lock, grant: Grant | None) -> Grant:
        if grant is None:
            raise AssertionError(f"{lock.key!r} can't be held by somebody else: {elsewhere(lock.holder)} has it.")
        return grant
