"""Background loads: in threads of a pool, or in tasks that outlive the caller."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import queue
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone, translation

from ...core import clock, forks
from ...core.background_thread import BackgroundThread, end_process_on_exit
from ...core.errors import LockBackendError
from ...core.owners import running_loop
from .. import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

THREADS: Final = 4

MAX_WAITING: Final = 64
"""The number of loads that may wait for a thread; further ones run in the caller."""

THREADS_AT_ONCE: Final = 32
"""The number of loads with a ``load_timeout`` that may run at once, each in a thread; further ones run in the
caller."""

EXIT_WAIT: Final = 1.0
"""The seconds for which running loads may delay the exit of the interpreter."""


class _Pool:
    """Daemon threads, which start on demand: a loader that never returns doesn't keep the process alive. The child of a
    fork starts its own.

    Args:
        threads: the number of threads at most.
        limit: the number of jobs that may run or wait for a thread.
    """

    def __init__(self, threads: int, limit: int) -> None:
        self.limit = limit
        self._max_threads = threads
        self.after_fork_in_child()
        forks.reset_in_child(self)

    def after_fork_in_child(self) -> None:
        self._mutex = threading.RLock()
        self._threads: list[BackgroundThread] = []
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.unfinished = 0

    def submit(self, job: Callable[[], object]) -> bool:
        """Have a thread call ``job``. Returns False if too many jobs are unfinished, or no thread can be started."""
        forks.pid()
        with self._mutex:
            if self.unfinished >= self.limit:
                return False
            if len(self._threads) <= self.unfinished and len(self._threads) < self._max_threads:
                thread = BackgroundThread(self._work, "django-redis-locks loads")
                try:
                    thread.start()
                except LockBackendError:
                    return False
                if not thread.runs:  # the interpreter is shutting down
                    return False
                self._threads.append(thread)
            self.unfinished += 1
            self._jobs.put(job)
            return True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - the thread serves other loads, too
                end_process_on_exit(error)
            del job
            with self._mutex:
                self.unfinished -= 1


_pool = _Pool(THREADS, THREADS + MAX_WAITING)
_pool_at_once = _Pool(THREADS_AT_ONCE, THREADS_AT_ONCE)


@atexit.register
def _wait_at_exit() -> None:
    """Let loads end that are almost done."""
    end = clock.system_now() + EXIT_WAIT
    while (_pool.unfinished or _pool_at_once.unfinished) and clock.system_now() < end:
        time.sleep(0.01)


_tasks: set[asyncio.Task[Any]] = set()
"""Strong references to running tasks: an event loop keeps weak ones only."""


def in_thread(job: Callable[[], object], *, at_once: bool = False) -> bool:
    """Run a job in a thread of a pool, with the caller's context variables, language and time zone.

    If too many jobs are waiting, the job runs in the caller's thread. ``at_once``: the job isn't queued.

    Returns:
        False, without running the job, if the pool is full and the caller runs an event loop.
    """
    context = contextvars.copy_context()
    locale = _caller_locale()

    def work() -> None:
        try:
            _close_connections()
        except Exception:  # noqa: BLE001 - if the database is down, the job raises for the callers that wait
            metrics.log.exception("Connections of a database couldn't be closed")
        try:
            context.run(_with_locale, job, locale)
        except Exception:  # noqa: BLE001 - no caller waits for it
            metrics.log.exception("A load in the background failed")
        finally:
            _close_connections()

    if (_pool_at_once if at_once else _pool).submit(work):
        return True
    if running_loop() is not None:
        return False
    context.run(job)
    return True


def _caller_locale() -> tuple[str | None, Any]:
    """Return the language and time zone of the caller: Django keeps part of them per thread, not per context."""
    if not settings.configured:
        return None, None
    return translation.get_language(), timezone.get_current_timezone()


def _with_locale(job: Callable[[], object], locale: tuple[str | None, Any]) -> None:
    """Run a job with a language and time zone, or without them if they can't be activated: callers wait for it."""
    language, zone = locale
    with ExitStack() as stack:
        try:
            if zone is not None:
                stack.enter_context(translation.override(language))
                stack.enter_context(timezone.override(zone))
        except Exception:  # noqa: BLE001 - whatever translations or unloaded apps raise
            metrics.log.exception("A load in the background runs without its caller's language or time zone")
        job()


def in_task(work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
    """Run a coroutine in a task of its own."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_done)
    return task


def _done(task: asyncio.Task[Any]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        metrics.log.error("A load in the background failed", exc_info=task.exception())


def _close_connections() -> None:
    if settings.configured:
        close_old_connections()
