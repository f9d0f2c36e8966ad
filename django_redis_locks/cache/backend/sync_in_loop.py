"""Synchronous calls of a wrapped cache in a thread that runs an event loop.

Django's caches allow such calls, and block the loop. Locks refuse them. So the guard of a write is entered and left in
a thread of its own while the calling thread waits; code that doesn't use the a-twins yet keeps working.
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


def allowed_in_loop(guard: AbstractContextManager[T]) -> AbstractContextManager[T]:
    """Return the guard of a write in a form that can be entered in a thread with a running loop, too."""
    return guard if running_loop() is None else _entered_in_thread(guard)


@contextmanager
def _entered_in_thread(guard: AbstractContextManager[T]) -> Iterator[T]:
    entered = _run_in_thread(guard.__enter__)
    try:
        yield entered
    finally:
        _run_in_thread(lambda: guard.__exit__(None, None, None))


def _run_in_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    failures: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            results.append(context.run(call))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failures.append(error)

    thread = threading.Thread(target=work, name="django-redis-locks write guard", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
