"""Allows synchronous writes to a ``StampedeCache`` in a thread that runs an event loop.

Django's caches allow such calls, which block the loop; locks refuse them. The guard of a write is therefore entered and
exited in another thread, while the calling thread waits. So code that calls ``set`` instead of ``aset`` keeps working.
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
    """Return a write's guard; in a thread with a running loop, one that enters and exits it in another thread."""
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
