"""Fork hooks: reset the state that a child process has copied from its parent, such as connections and held locks.

``os.fork`` runs the hooks in the child. C code that forks by itself doesn't, so ``pid()`` also compares the process id
with the known one. It is called before a token, thread or connection is created.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

known = os.getpid()
"""The id of the process for which the hooks ran last. The state of this package belongs to it."""

_hooks: list[Callable[[], object]] = []
_mutex = threading.RLock()


def in_child(hook: Callable[[], object]) -> None:
    """Call ``hook`` in every forked child, to reset state that must not be shared with the parent."""
    _hooks.append(hook)


def pid() -> int:
    """Return the process id. In a child of a fork without hooks, run the hooks first."""
    found = os.getpid()
    if found != known:
        _run_hooks()
    return found


def _run_hooks() -> None:
    """Run the hooks once. ``known`` changes last, so that no other thread of the child continues with the parent's
    state."""
    global known  # noqa: PLW0603 - one per process
    with _mutex:
        found = os.getpid()
        if found != known:
            try:
                run_all(_hooks)
            finally:
                known = found


def run_all(hooks: Iterable[Callable[[], object]]) -> None:
    """Run all hooks even if one fails, because shared state would be worse, and raise the first error."""
    failures = []
    for hook in hooks:
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
