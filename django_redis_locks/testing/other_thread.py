"""Calls functions in another thread, which is another owner of locks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, TypeVar

from ..core.owners import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

by_test_helper: ContextVar[bool] = ContextVar("django_redis_locks_by_test_helper", default=False)
"""True while a helper of this package uses locks: ``capture_locks`` ignores those events."""


def in_other_thread(call: Callable[[], T]) -> T:
    """Call a function in a new thread with an empty context, and return its result."""

    def marked_call() -> T:
        by_test_helper.set(True)
        return call()

    with ThreadPoolExecutor(1, thread_name_prefix="hold_lock") as executor:
        return executor.submit(Context().run, marked_call).result()


def off_loop(call: Callable[[], T]) -> T:
    """Call a function; inside an event loop in another thread, since locks refuse blocking requests there."""
    return call() if running_loop() is None else in_other_thread(call)
