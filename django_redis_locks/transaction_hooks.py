"""Transaction hooks: call functions after COMMIT, and also after ROLLBACK, for which Django has no callback.

At the end of a transaction, Django drops the functions that were passed to ``on_commit``, after a COMMIT and after a
ROLLBACK. So a hook that is garbage-collected without having been called belongs to a transaction that was rolled back.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Container

NO_SAVEPOINTS: frozenset[str] = frozenset()
"""The ``savepoints`` of a hook that no rollback to a savepoint removes."""


class TransactionHook:
    """A function for ``on_commit`` that also detects a rollback. It keeps a reference to its owner.

    Args:
        owner: the object for which ``is_added`` finds the hook.
        on_commit: called after COMMIT.
        description: the name of the hook in Django's log if ``on_commit`` raises.
        on_rollback: called when the hook is dropped without a call. A finalizer calls it, in any thread at any moment.
    """

    def __init__(
        self,
        owner: object,
        on_commit: Callable[[], object],
        description: str,
        on_rollback: Callable[[], object] | None = None,
    ) -> None:
        self.owner = owner
        self._on_commit = on_commit
        self._finalizer = None if on_rollback is None else weakref.finalize(self, on_rollback)
        if self._finalizer is not None:
            self._finalizer.atexit = False
        self.__qualname__ = description

    def __reduce__(self) -> tuple[Any, ...]:
        # A cache may pickle a response with the hooks that its close() calls; the unpickled hook does nothing
        return partial, (bool,)

    def __call__(self) -> None:
        """Run the hook after COMMIT. Called by Django."""
        self._on_commit()
        if self._finalizer is not None:
            self._finalizer.detach()


def add(connection: Any, hook: TransactionHook, savepoints: Container[str]) -> int:
    """Add a hook to the open transaction of a connection.

    Args:
        connection: a connection inside ``atomic()``.
        hook: the hook. An error that it raises is logged, and doesn't prevent later hooks.
        savepoints: the ids of the savepoints whose rollback removes the hook. Django's ``on_commit()`` passes the ids
            of all open savepoints.

    Returns:
        The index of the hook in ``run_on_commit``, for ``is_added``.
    """
    hooks = connection.run_on_commit
    hooks.append((savepoints, hook, True))
    return len(hooks) - 1


def is_added(connection: Any, owner: object, index: int) -> bool:
    """Return whether the transaction of a connection still has the hook of an owner that was added at this index. A
    rollback to a savepoint, which removes other hooks, may have moved it to a smaller index."""
    hooks = connection.run_on_commit
    last = min(index, len(hooks) - 1)
    return any(getattr(hooks[at][1], "owner", None) is owner for at in range(last, -1, -1))
