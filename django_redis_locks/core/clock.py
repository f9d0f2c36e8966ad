"""The clock of the engine: all its times and sleeps use it.

By default it is the machine's clock. On Linux that is CLOCK_BOOTTIME, which also counts while a laptop or virtual
machine is suspended, as the server's lease does. freezegun doesn't stop it, as it stops ``time.monotonic``: on a
stopped clock a wait never ends and a lease never expires.

``install`` replaces the clock, for example by ``testing.ManualClock``. Socket timeouts always use the machine's clock.
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
"""Return the machine's seconds since a fixed moment."""


class Clock(Protocol):
    """The interface of a clock."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def wall(self) -> float:
        """Seconds since 1970."""

    def wait(self, lock: threading.Lock, seconds: float) -> None:
        """Sleep until the lock is acquired, or for this many seconds of this clock."""


class SystemClock:
    """The machine's clock."""

    now = staticmethod(system_now)
    wall = staticmethod(partial(time.clock_gettime, getattr(time, "CLOCK_REALTIME", 0)))

    @staticmethod
    def wait(lock: threading.Lock, seconds: float) -> None:
        """Sleep until the lock is acquired, or for this many seconds."""
        lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


SYSTEM: Clock = SystemClock()

_installed = SYSTEM
_on_install: list[Callable[[], object]] = []

now: Callable[[], float] = SYSTEM.now
"""Return the seconds since some fixed moment."""

wall: Callable[[], float] = SYSTEM.wall
"""Return the seconds since 1970, to compare with the clocks of other machines. It may jump, so durations aren't
measured with it."""


def wait(lock: threading.Lock, seconds: float) -> None:
    """Sleep until the lock is acquired, or for this many seconds."""
    _installed.wait(lock, seconds)


def sleep(seconds: float) -> None:
    """Sleep for this many seconds."""
    lock = threading.Lock()
    lock.acquire()
    _installed.wait(lock, seconds)


def installed() -> bool:
    """Return whether another clock than the machine's is installed."""
    return _installed is not SYSTEM


def monotonic() -> float:
    """Return ``time.monotonic()``, which freezegun controls, or the time of an installed clock."""
    return time.monotonic() if _installed is SYSTEM else now()


def timestamp() -> float:
    """Return ``time.time()``, which freezegun controls, or the time of an installed clock."""
    return time.time() if _installed is SYSTEM else wall()


def install(clock: Clock) -> Clock:
    """Replace the clock, and return the previous one."""
    global _installed, now, wall
    previous, _installed = _installed, clock
    now, wall = clock.now, clock.wall
    for adapt in _on_install:
        adapt()
    return previous


def on_install(adapt: Callable[[], object]) -> Callable[[], object]:
    """Call ``adapt`` whenever another clock is installed, to wake threads that sleep on the previous one. A
    decorator."""
    _on_install.append(adapt)
    return adapt
