"""Forks: reset the state that a child process has copied from its parent, such as connections and held locks.

``os.fork`` resets it in the child. C code that forks by itself doesn't, so ``pid()`` also compares the process id with
the known one. It is called before a token, thread or connection is created.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

known_pid = os.getpid()
"""The id of the process for which the state was reset last. The state of this package belongs to it."""


class ForkAware(Protocol):
    """An object with state that a child must not share with its parent."""

    def after_fork_in_child(self) -> object:
        """Reset that state. Another thread of the parent may have been changing it, with its mutex held."""


_aware: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_mutex = threading.RLock()


def reset_in_child(aware: ForkAware) -> None:
    """Call ``aware.after_fork_in_child()`` in every forked child, for as long as the object lives. The order of the
    calls is undefined, so the method must not use other such objects."""
    _aware.add(aware)


class ForkSafeLock:
    """A mutex that is free in a forked child, even if another thread of the parent held it.

    Use it by ``with lock.rlock:``. A context manager written in Python may be interrupted by an exception of a signal
    handler between its ``acquire()`` and the block, and then never release the lock.
    """

    def __init__(self) -> None:
        self.after_fork_in_child()
        reset_in_child(self)

    def after_fork_in_child(self) -> None:
        """Replace the mutex, which a thread of the parent may hold."""
        self.rlock = threading.RLock()


def pid() -> int:
    """Return the process id. In a child of a fork without hooks, reset the state first."""
    found = os.getpid()
    if found != known_pid:
        _reset()
    return found


def _reset() -> None:
    """Reset all objects once per process, even if one fails, because shared state would be worse. Raise the first
    error.

    ``known_pid`` changes last, so that no other thread of the child continues with the parent's state. If a signal
    handler interrupts the reset, it doesn't change, and the next call of ``pid()`` repeats the reset."""
    global known_pid  # noqa: PLW0603 - one per process
    failures = []
    with _mutex:
        found = os.getpid()
        if found != known_pid:
            for aware in list(_aware):
                try:
                    aware.after_fork_in_child()
                except Exception as failure:  # noqa: BLE001 - raised when all are done
                    failures.append(failure)
            known_pid = found
    if failures:
        raise failures[0]


def _after_fork_in_child() -> None:
    global _mutex  # noqa: PLW0603 - another thread of the parent may have held it
    _mutex = threading.RLock()
    _reset()


os.register_at_fork(after_in_child=_after_fork_in_child)
