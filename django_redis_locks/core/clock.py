"""The only clock of the engine: what it reads, and what it sleeps on.

The machine's own clock counts through a suspended laptop or virtual machine, as the server's lease does (CLOCK_BOOTTIME,
Linux), and no test's frozen time stops it: freezegun replaces ``time.monotonic``, on which a wait would then never end
and a lease never run out.

``install`` puts another clock in its place, such as ``testing.ManualClock``. Sockets stay with the machine's clock: how
long a server is silent is a matter of real time.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

system_now: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))
)
"""Seconds since some fixed moment, of the machine."""


class Clock(Protocol):
    """What a program lives by."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def wall(self) -> float:
        """Seconds since 1970."""

    def wait(self, lock: threading.Lock, seconds: float) -> None:
        """Sleep until the lock is acquired, or for this many seconds of this clock."""


class SystemClock:
    """The machine's."""

    now = staticmethod(system_now)
    wall = staticmethod(partial(time.clock_gettime, getattr(time, "CLOCK_REALTIME", 0)))

    @staticmethod
    def wait(lock: threading.Lock, seconds: float) -> None:
        lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


SYSTEM: Clock = SystemClock()

_installed = SYSTEM
_on_install: list[Callable[[], object]] = []

now: Callable[[], float] = SYSTEM.now
"""Seconds since some fixed moment."""

wall: Callable[[], float] = SYSTEM.wall
"""Seconds since 1970, to compare other machines' clocks with ours. Nothing is measured with it."""


def wait(lock: threading.Lock, seconds: float) -> None:
    """Sleep until the lock is acquired, or for this many seconds."""
    _installed.wait(lock, seconds)


def sleep(seconds: float) -> None:
    """Sleep for this many seconds."""
    lock = threading.Lock()
    lock.acquire()
    _installed.wait(lock, seconds)


def monotonic() -> float:
    """``time.monotonic()``, which freezegun moves; the installed clock's time where there is one."""
    return time.monotonic() if _installed is SYSTEM else now()


def timestamp() -> float:
    """``time.time()``, which freezegun moves; the installed clock's time where there is one."""
    return time.time() if _installed is SYSTEM else wall()


def install(clock: Clock) -> Clock:
    """Put another clock in the place of the present one, which is returned."""
    global _installed, now, wall
    previous, _installed = _installed, clock
    now, wall = clock.now, clock.wall
    for adapt in _on_install:
        adapt()
    return previous


def on_install(adapt: Callable[[], object]) -> Callable[[], object]:
    """Call this whenever another clock is installed: what sleeps on the one before has to look again. A decorator."""
    _on_install.append(adapt)
    return adapt
