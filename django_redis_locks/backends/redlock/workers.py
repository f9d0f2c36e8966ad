"""Threads that send the requests of synchronous callers to the members, each request in one of them."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from ...core import patching
from ...core.clock import system_now
from ..redis import timers

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_THREADS: Final = 64
"""The largest number of threads. A silent server keeps one for ``socket_timeout``; more requests wait in line."""

IDLE_SECONDS: Final = 60.0
"""How long a thread without work lives."""


class Starter(Protocol):
    """Runs jobs beside the caller. Tests replace the threads by one that runs them in an order of its own."""

    def start(self, job: Callable[[], object]) -> None:
        """Run a job soon, in any thread."""

    def wait(self, done: threading.Lock, seconds: float) -> None:
        """Return when the lock is free, at the latest after this many seconds."""

    def start_later(self, seconds: float, job: Callable[[], object]) -> None:
        """Run a job after this many seconds."""

    def after_fork_in_child(self) -> None:
        """Forget the threads and jobs of the parent."""


class Threads:
    """Daemon threads, started on demand."""

    def __init__(self) -> None:
        self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        self._mutex = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._free = 0
        """The number of threads that wait for a job, minus the jobs in the queue for them."""
        self._in_line = 0
        """The jobs in the queue for which there is no thread yet."""
        self._running = 0

    def start(self, job: Callable[[], object]) -> None:
        self._jobs.put(job)
        with self._mutex:
            if self._free:
                self._free -= 1
                return
            if self._running >= MOST_THREADS:
                self._in_line += 1
                return
            self._running += 1
        try:
            patching.check()
            threading.Thread(target=self._work, name="django-redis-locks redlock", daemon=True).start()
        except RuntimeError:  # a limit of threads, or the end of the interpreter
            with self._mutex:
                self._running -= 1
                last = self._running == 0
            if last:
                self._run_all()

    def wait(self, done: threading.Lock, seconds: float) -> None:
        done.acquire(timeout=seconds)

    def start_later(self, seconds: float, job: Callable[[], object]) -> None:
        timers.call_at(system_now() + seconds, lambda: self.start(job))

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._mutex:
                    if self._free:
                        self._free -= 1
                        self._running -= 1
                        return
                continue  # a job is on its way
            job()
            del job  # else it stays in memory until the next one
            with self._mutex:
                if self._in_line:
                    self._in_line -= 1
                else:
                    self._free += 1

    def _run_all(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            job()
