"""Synchronous calls of a wrapped cache in a thread that runs an event loop.

Django's caches allow them, and block the loop. Locks don't; so what asks their store is done in a thread of its own while
this one waits. It is for code that works today and isn't made for the a-twins yet.
"""

from __future__ import annotations

import contextvars
import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from ...core.owners import running_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def anywhere(fence: AbstractContextManager[T]) -> AbstractContextManager[T]:
    """A fence that can be entered in a loop, too."""
    return fence if running_loop() is None else _elsewhere(fence)


@contextmanager
def _elsewhere(fence: AbstractContextManager[T]) -> Iterator[T]:
    entered = _in_thread(fence.__enter__)
    try:
        yield entered
    finally:
        _in_thread(lambda: fence.__exit__(None, None, None))


def _in_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    failures: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            results.append(context.run(call))
        except BaseException as error:  # noqa: BLE001 - raised where somebody waits for it
            failures.append(error)

    thread = threading.Thread(target=work, name="django-redis-locks fence", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
