"""Calls in another thread, as by somebody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, TypeVar

from ..core.owners import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

staged: ContextVar[bool] = ContextVar("django_redis_locks_staged", default=False)
"""What happens to locks here is the test's own doing."""


def elsewhere(call: Callable[[], T]) -> T:
    """Call in a thread of its own, with nothing of the caller's context, and wait for it."""

    def act() -> T:
        staged.set(True)
        return call()

    with ThreadPoolExecutor(1, thread_name_prefix="somebody else") as somebody:
        return somebody.submit(Context().run, act).result()


def asked(call: Callable[[], T]) -> T:
    """Call, also from a coroutine: there a question to a store would be refused, since it blocks the loop."""
    return call() if running_loop() is None else elsewhere(call)
