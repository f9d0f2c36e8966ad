"""Forks: a child has the memory of its parent, and none of its threads, connections and locks.

Python runs hooks in the child; C code that forks by itself runs none, so whoever begins something compares the number of
the process with the one that is known here.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

known = os.getpid()
"""The process that everything here belongs to."""

_hooks: list[Callable[[], object]] = []
_mutex = threading.RLock()


def in_child(hook: Callable[[], object]) -> None:
    """Call this in every child, to begin anew."""
    _hooks.append(hook)


def pid() -> int:
    """The number of this process, which is a child no longer once it has asked."""
    found = os.getpid()
    if found != known:
        _run_hooks()
    return found


def _run_hooks() -> None:
    """Known is the child only when all is renewed: no other thread of it goes on with what is its parent's."""
    global known  # noqa: PLW0603 - one process has one
    with _mutex:
        found = os.getpid()
        if found != known:
            try:
                run_all(_hooks)
            finally:
                known = found


def run_all(renewals: Iterable[Callable[[], object]]) -> None:
    """One that fails keeps none of the others from beginning anew: what is shared with a parent is worse."""
    failures = []
    for hook in renewals:
        try:
            hook()
        except Exception as failure:  # noqa: BLE001 - raised when all are done
            failures.append(failure)
    if failures:
        raise failures[0]


def _after_fork_in_child() -> None:
    global _mutex  # noqa: PLW0603 - another thread of the parent may have had it
    _mutex = threading.RLock()
    _run_hooks()


os.register_at_fork(after_in_child=_after_fork_in_child)
