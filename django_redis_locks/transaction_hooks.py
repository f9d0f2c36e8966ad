"""Functions that Django calls when a transaction commits, and that notice when it is rolled back.

Django calls back after COMMIT, but not after ROLLBACK: it drops the functions that were given to ``on_commit`` with the
transaction, whichever way that ends. So a hook that is dropped without a call belongs to a transaction that was rolled
back.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Container

NO_SAVEPOINTS: frozenset[str] = frozenset()
"""For a hook that stays when a savepoint is rolled back."""


class TransactionHook:
    """Calls ``on_commit`` when it is called, at COMMIT. Whatever belongs to ``owner`` lives at least as long as the
    hook.

    Args:
        owner: the object that ``is_added`` finds the hook by.
        on_commit: called after COMMIT.
        description: how Django names the hook in its log if ``on_commit`` raises.
        on_rollback: called once the hook is dropped without a call, by a finalizer: in any thread and at any moment.
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
        return partial, (bool,)  # a cache pickles responses with the hooks that close them; the copy does nothing

    def __call__(self) -> None:
        """Run the hook after COMMIT. Called by Django."""
        self._on_commit()
        if self._finalizer is not None:
            self._finalizer.detach()


def add(connection: Any, hook: TransactionHook, savepoints: Container[str]) -> int:
    """Have a hook called when the open transaction of a connection commits.

    Args:
        connection: inside ``atomic()``.
        hook: an error that it raises is logged, and keeps no later hook from running.
        savepoints: the ids of those that drop the hook when they are rolled back. ``on_commit()`` names all open ones.

    Returns:
        The index of the hook in ``run_on_commit``, for ``is_added``.
    """
    hooks = connection.run_on_commit
    hooks.append((savepoints, hook, True))
    return len(hooks) - 1


def is_added(connection: Any, owner: object, index: int) -> bool:
    """Whether the transaction of a connection still has the hook of an owner that was added at this index. A rollback
    to a savepoint, which removes hooks, may have moved it to a smaller one."""
    hooks = connection.run_on_commit
    last = min(index, len(hooks) - 1)
    return any(getattr(hooks[at][1], "owner", None) is owner for at in range(last, -1, -1))
