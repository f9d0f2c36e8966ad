"""Loads and invalidations inside database transactions: values are stored, and invalidations carried out, at COMMIT.

Only the hooks given to ``on_commit`` reference the values to store, since Django drops those hooks at a rollback.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from asgiref.sync import sync_to_async
from django.db import Error

from ...core.owners import running_loop
from ...open_transactions import open_now
from ...transaction_hooks import TransactionHook, add, is_added
from ..results import MISSING
from ..values import CachedValue
from .effects import Run
from .loader import has_waiting_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.commands import Program
    from ...core.keys import LockId
    from .coordinator import CacheCoordinator
    from .request import LoadRequest

__all__ = [
    "Isolation",
    "after_commit",
    "any_pending",
    "connections_around",
    "defer_store",
    "forget",
    "forget_all",
    "may_store",
    "never_leaves_transactions",
    "open_now",
    "pending_value",
]

OPEN_NOW_IN_SYNC_THREAD: Final = Run(open_now, sync_to_async(open_now, thread_sensitive=True))
"""Finds the open transactions of the thread that runs the ``sync_to_async`` calls of a task."""


class _ThreadLocal(threading.local):
    """The values that this thread has loaded in open transactions, by lock."""

    def __init__(self) -> None:
        self.pending: WeakValueDictionary[LockId, UncommittedValue] = WeakValueDictionary()


_in_thread = _ThreadLocal()


class UncommittedValue:
    """A value that was loaded inside transactions, until the last of them is committed or one is rolled back."""

    ever_made = False
    """Whether this process has ever loaded a value inside transactions."""

    def __init__(
        self, connections: list[Any], request: LoadRequest, value: Any, data: Any, store: Callable[[], object] | None
    ) -> None:
        UncommittedValue.ever_made = True
        self.coordinator = request.coordinator
        self.group_keys = request.group_keys
        self._lock_id = request.lock_id
        self.value = value
        self.data = data
        self._store = store
        self._uncommitted = len(connections)
        hook = TransactionHook(self, self.committed, "the store of a loaded value")
        self._added = [(each, add(each, hook, _Savepoints(each.savepoint_state))) for each in connections]

    def is_open(self) -> bool:
        """Whether all its transactions still have its hook; a rollback to a savepoint drops it."""
        return all(is_added(connection, self, index) for connection, index in self._added)

    def committed(self) -> None:
        self._uncommitted -= 1
        if self._uncommitted == 0:
            store, self._store = self._store, None
            if _in_thread.pending.get(self._lock_id) is self:
                del _in_thread.pending[self._lock_id]
            if store is not None:
                store()

    def drop(self) -> None:
        self._store = None


class _Savepoints:
    """The set of savepoints under which a hook was added. At a rollback to one of them, Django drops the hook.

    It contains all savepoints made before the hook, and those with a name that Django didn't generate. Django's own set
    lacks the savepoints of ``transaction.savepoint()``.
    """

    def __init__(self, made_before: int) -> None:
        self._made_before = made_before

    def __contains__(self, sid: Any) -> bool:
        number = sid.rpartition("_x")[2]
        return not number.isdecimal() or int(number) <= self._made_before


def connections_around(store_in_atomic: str = "on_commit") -> Program[list[Any]]:
    """Return the connections with open transactions around this caller, which must commit before a value may be stored;
    none if the option ``store_in_atomic`` is "now"."""
    if store_in_atomic == "now":
        return []
    if running_loop() is None:
        return open_now()
    return (yield OPEN_NOW_IN_SYNC_THREAD) if has_waiting_thread() else []


def never_leaves_transactions(request: LoadRequest, connections: list[Any]) -> bool:
    """Whether a value that is loaded inside these transactions will never be stored, not even at COMMIT, so that no
    other caller should wait for it."""
    return bool(connections) and request.options.store_in_atomic != "now" and not may_store(request, connections)


def may_store(request: LoadRequest, connections: list[Any]) -> bool:
    """Whether the value may be stored when these transactions commit, according to the settings.

    Not in a task, which has no COMMIT of its own. Not unless the isolation level is READ COMMITTED: other levels read
    from a snapshot, which may be older than an invalidation before the load.
    """
    commits = request.cacheable and request.options.store_in_atomic == "on_commit" and running_loop() is None
    return commits and all(_is_set_to_read_committed(connection) for connection in connections)


def _is_set_to_read_committed(connection: Any) -> bool:
    level = getattr(connection, "isolation_level", None)
    return getattr(level, "name", str(level)).replace("_", " ").upper() == "READ COMMITTED"


class Isolation:
    """The isolation level of the transactions around one loader call, queried once even if the call loads many
    values."""

    def __init__(self) -> None:
        self._read_committed: bool | None = None

    def is_read_committed(self, connections: list[Any]) -> bool:
        """Whether each statement of these transactions sees all commits before it.

        PostgreSQL is queried, since its server, role or transaction may have another isolation level than the settings.
        """
        if self._read_committed is None:
            self._read_committed = all(
                _is_set_to_read_committed(each) and _reports_read_committed(each) for each in connections
            )
        return self._read_committed


def _reports_read_committed(connection: Any) -> bool:
    if connection.vendor != "postgresql":
        return True
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            return bool(cursor.fetchone() == ("read committed",))
    except Error:  # the transaction, or its connection, is broken, and will be rolled back
        return False


def any_pending() -> bool:
    """Return whether this thread has loaded a value in a transaction that may still be open."""
    return UncommittedValue.ever_made and bool(_in_thread.pending)


def pending_value(request: LoadRequest) -> CachedValue | None:
    """Return the value that this thread has loaded in a transaction that is still open, or None."""
    pending = _in_thread.pending.get(request.lock_id) if UncommittedValue.ever_made else None
    if pending is None or not pending.is_open():
        return None
    stored = request.decode(-1, pending.data)
    return CachedValue(pending.value if stored.value is MISSING else stored.value, inf)


def defer_store(
    connections: list[Any], request: LoadRequest, value: Any, data: Any, store: Callable[[], object] | None = None
) -> None:
    """Return this value to later reads inside these transactions, and call ``store`` when the last of them commits."""
    _in_thread.pending[request.lock_id] = UncommittedValue(connections, request, value, data, store)


def forget(lock_id: LockId) -> None:
    """Drop an uncommitted value after an invalidation: it isn't stored."""
    found = _in_thread.pending.pop(lock_id, None)
    if found is not None:
        found.drop()


def forget_group(coordinator: CacheCoordinator, stored_key: str) -> None:
    """Drop the uncommitted values of a group after an invalidation. ``stored_key``: the key of its stamp."""
    for lock_id, found in list(_in_thread.pending.items()):
        if found.coordinator is coordinator and any(stored_key == each for _, each in found.group_keys):
            forget(lock_id)


def forget_all(coordinator: CacheCoordinator) -> None:
    """Drop all uncommitted values that a clear of this cache concerns."""
    for lock_id, found in list(_in_thread.pending.items()):
        other = found.coordinator
        if lock_id.store == coordinator.load("", "").lock_id.store and other.generations() == coordinator.generations():
            forget(lock_id)


def after_commit(connections: list[Any], job: Callable[[], object]) -> None:
    """Run a job when all these transactions are committed, or at once if there are none. A failure after COMMIT is
    logged: it neither raises out of ``atomic()`` nor prevents later hooks."""
    if not connections:
        job()
        return
    rest = connections[1:]
    connections[0].on_commit(lambda: after_commit([each for each in rest if each.in_atomic_block], job), robust=True)
