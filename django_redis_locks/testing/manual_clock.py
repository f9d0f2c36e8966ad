"""``ManualClock``: a clock that tests move, for all locks of this process."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from contextlib import suppress
from math import inf, nextafter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..core import clock
from ..core.owners import running_loop
from ..core.wait_events import TaskEvent
from ..engine.maintenance import maintenance_threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

_PACKAGE = str(Path(__file__).parent.parent)

_MAX_WORK_TIME = 5.0
"""Real seconds that a woken thread may work before the clock continues."""

_LOOP_ITERATIONS = 8
"""Iterations of an event loop after which a woken task sleeps again, or has returned to its caller."""


class ManualClock:
    """A clock that stands still until it is moved. Inside its block all locks of this process use it: for leases in
    memory, renewal, waits, and the holder's view of its lease.

    For locks in memory, as in ``with override_locks(), ManualClock() as clock:``; the locks of a server follow its own
    clock. A wait in the thread that entered the block moves the clock forward until it ends, since no other thread
    would move it; other threads and tasks that wait sleep until the clock is moved.

    Example::

        with override_locks(), ManualClock() as clock:
            grant = locks.lock("import", expire=30).acquire()
            clock.advance(31)
            assert grant.lost
    """

    def __init__(self) -> None:
        self._now = clock.now()
        self._ahead = clock.wall() - self._now
        self._mutex = threading.RLock()
        self._sleepers: dict[int, tuple[float, threading.Lock]] = {}
        """By the id of a sleeping thread: the end of its sleep, and the lock that it waits for."""

    def __enter__(self) -> Self:
        """Install the clock for all locks of this process."""
        self._owner = threading.get_ident()
        self._previous = clock.install(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Install the previous clock, and wake all threads that sleep by this one."""
        clock.install(self._previous)
        self._wake(inf)

    def now(self) -> float:
        """Return the seconds since some fixed moment."""
        return self._now

    def wall(self) -> float:
        """Return the seconds since 1970."""
        return self._now + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock forward. Everything that is due happens in order, each at its time, before this returns.

        Args:
            seconds: 0 or more.

        Raises:
            ValueError: time doesn't go back.
        """
        end = self._end(seconds)
        self._wait_until_idle()
        while self._step(end):
            self._wait_until_idle()

    async def aadvance(self, seconds: float) -> None:
        """Move the clock forward. Everything that is due, also in tasks of the running loop, happens in order, each at
        its time, before this returns.

        Args:
            seconds: 0 or more.

        Raises:
            ValueError: time doesn't go back.
        """
        end = self._end(seconds)
        await self._await_until_idle()
        while self._step(end):
            await self._await_until_idle()

    def wait(self, lock: threading.Lock, seconds: float) -> None:
        """Sleep until the lock is acquired, or for this many seconds of this clock."""
        if lock.acquire(blocking=False) or seconds <= 0:
            return
        thread = threading.get_ident()
        with self._mutex:
            # rounding must not end the sleep early, repeatedly
            self._sleepers[thread] = max(self._now + seconds, nextafter(self._now, inf)), lock
        try:
            if thread == self._owner:
                self._pass_until_woken(lock)
            else:
                lock.acquire()
        finally:
            with self._mutex:
                del self._sleepers[thread]

    def _pass_until_woken(self, lock: threading.Lock) -> None:
        until = self._sleepers[self._owner][0]
        self._wait_until_idle()
        while not lock.acquire(blocking=False) and self._now < until:
            self._step(until)
            self._wait_until_idle()

    def _end(self, seconds: float) -> float:
        if not seconds >= 0:
            raise ValueError(f"time doesn't go back: seconds must be 0 or more, not {seconds!r}")
        return self._now + seconds

    def _step(self, end: float) -> bool:
        """Move the clock to the next end of a sleep, or to ``end``. Returns False if it is at ``end`` already."""
        if self._now >= end:
            return False
        with self._mutex:
            first = min((until for until, _ in self._sleepers.values()), default=inf)
        self._now = min(max(first, self._now), end)
        self._wake(self._now)
        return True

    def _wake(self, now: float) -> None:
        with self._mutex:
            for until, lock in self._sleepers.values():
                if until <= now:
                    with suppress(RuntimeError):  # it has just been woken
                        lock.release()

    # Woken threads and tasks have to work before the clock continues.

    def _wait_until_idle(self) -> None:
        for _ in range(2):  # threads and tasks may submit work to the maintenance threads, which may wake them
            self._wait_for_maintenance()
            self._wait_for_threads()
            self._wait_for_loops()
        self._wait_for_maintenance()

    async def _await_until_idle(self) -> None:
        for _ in range(2):
            self._wait_until_idle()
            for _ in range(_LOOP_ITERATIONS):
                await asyncio.sleep(0)
        self._wait_until_idle()

    def _wait_for_maintenance(self) -> None:
        for maintenance in maintenance_threads():
            if maintenance.busy(self._sleeps):
                maintenance.wait_until_idle(_MAX_WORK_TIME)
                self._until(lambda: not maintenance.busy(self._sleeps))  # noqa: B023 - called here

    def _wait_for_threads(self) -> None:
        """Wait until each thread sleeps by this clock, runs code outside this package, or has ended: a thread inside
        the package may be about to sleep, and has read the clock already. Background threads of this package don't
        count: they read from a server or wait for work."""
        others = [thread for thread in threading.enumerate() if not thread.name.startswith("django-redis-locks")]
        threads = {thread.ident or 0 for thread in others} - {threading.get_ident()}
        self._until(lambda: all(self._sleeps(thread) or not _in_package(thread) for thread in threads))

    @staticmethod
    def _until(condition: Callable[[], bool]) -> None:
        end = clock.system_now() + _MAX_WORK_TIME
        while not condition() and clock.system_now() < end:
            time.sleep(0.0001)

    def _sleeps(self, thread: int) -> bool:
        with self._mutex:
            until, lock = self._sleepers.get(thread, (-inf, None))
        return lock is not None and lock.locked() and until > self._now

    def _wait_for_loops(self) -> None:
        for loop in list(TaskEvent.loops):
            if loop is not running_loop() and loop.is_running():
                with suppress(RuntimeError):  # it is just being closed
                    self._wait_for_iterations(loop)

    def _wait_for_iterations(self, loop: asyncio.AbstractEventLoop) -> None:
        left = _LOOP_ITERATIONS

        def count_iteration() -> None:
            nonlocal left
            left -= 1
            if left:
                loop.call_soon(count_iteration)

        loop.call_soon_threadsafe(count_iteration)
        self._until(lambda: left == 0 or not loop.is_running())


def _in_package(thread: int) -> bool:
    """Whether a thread executes code of this package, or of the standard library called by it."""
    frame = _frames().get(thread)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("threading", "asyncio"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_PACKAGE)


def _frames() -> dict[int, FrameType]:
    """The frame of each thread. The garbage collector is disabled, since CPython 3.11 hangs if it frees a
    ``threading.local`` during this call (python/cpython#106883)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()
