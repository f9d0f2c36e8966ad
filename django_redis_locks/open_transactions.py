"""The open database transactions of this thread, and warnings about locks that are released inside of one."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections
from django.db.backends.signals import connection_created

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("django_redis_locks")

MAX_NAMES_WARNED = 1000
"""Each warning is logged for at most this number of names: a name may be a whole key."""


def open_now() -> list[Any]:
    """The connections of this thread that are inside ``atomic()``; opens none. The transaction that ``TestCase`` puts
    around a test doesn't count: it is never committed, and the lock would stay busy until the test ends."""
    return [connection for connection in _initialized() if connection.in_atomic_block and not _of_test_case(connection)]


def around_call(name: str, *, new: bool) -> list[Any]:
    """The connections whose transactions surround a call, at its end. Logs a warning if there are any: the transaction
    may have read before the lock was acquired.

    Args:
        name: the name of the lock.
        new: False if the thread held the lock already, and the warning was logged then.
    """
    found = _committing(_initialized(), name)
    if found and new:
        _warn(_LATE, name)
    return found


def of_database(alias: str, name: str) -> list[Any]:
    """The connection to this database, if it is inside ``atomic()`` now."""
    return _committing([connection for connection in _initialized() if connection.alias == alias], name)


def _committing(initialized: Iterable[Any], name: str) -> list[Any]:
    """The connections inside an ``atomic()`` that commits at its end. Logs a warning if autocommit is off."""
    found = []
    for connection in initialized:
        if _is_by_hand(connection):
            _warn(_BY_HAND, name)
        elif connection.in_atomic_block and not _of_test_case(connection):
            found.append(connection)
    return found


def warn_if_open(name: str) -> None:
    """Log a warning if a transaction is open while a lock of this name is released. Called at each release, so it calls
    nothing of Django unless a transaction is open."""
    for reference in _here.connections:
        connection: Any = reference()
        if connection is not None and connection.in_atomic_block and not _of_test_case(connection):
            using = "" if connection.alias == "default" else f', hold_using="{connection.alias}"'
            _warn(_EARLY, name, using)
            return


def warn_asynchronous(name: str) -> None:
    """Log that asynchronous code has no transactions."""
    _warn(_ASYNC, name)


def _initialized() -> Iterable[Any]:
    return connections.all(initialized_only=True) if settings.configured else ()


def _of_test_case(connection: Any) -> bool:
    return any(block._from_testcase for block in connection.atomic_blocks)


def _is_by_hand(connection: Any) -> bool:
    """Whether autocommit is off, or was when ``atomic()`` began, which then doesn't commit."""
    if connection.in_atomic_block:
        return not connection.commit_on_exit
    return connection.connection is not None and not connection.autocommit


class _ThreadLocal(threading.local):
    """The connections of this thread. Reading them from Django's handler takes ten times as long."""

    def __init__(self) -> None:
        self.connections: list[Callable[[], object]] = [weakref.ref(connection) for connection in _initialized()]


_here = _ThreadLocal()


def _note(*, connection: object, **_: object) -> None:
    known = [reference for reference in _here.connections if reference() not in (None, connection)]
    _here.connections = [*known, weakref.ref(connection)]


connection_created.connect(_note, dispatch_uid="django_redis_locks")

_warned: dict[str, set[str]] = {}


def _warn(text: str, name: str, *more: str) -> None:
    """Log a warning once for each name."""
    names = _warned.setdefault(text, set())
    if name not in names and len(names) < MAX_NAMES_WARNED:
        names.add(name)
        _log.warning(text, name, *more)


_EARLY = (
    "Lock %s was released inside an open transaction: until its COMMIT, the next holder reads what was there before. "
    'Put atomic() inside the lock, or hold the lock until the transaction ends: locks.lock(key, hold="transaction"%s). '
    'Where it protects no rows of a database, hold="block" says so'
)
_LATE = (
    "Lock %s is taken inside an open transaction. It is held until that ends; but what the transaction has read, or its "
    "snapshot, may be older than the lock. Put the lock where the transaction begins: on the view or its dispatch(), or "
    "around atomic()"
)
_BY_HAND = (
    "Lock %s is released at the end of its call or block, because autocommit is off: whether the transaction was "
    "committed by then can't be known. Use atomic() with autocommit on, or hold a lock object around COMMIT"
)
_ASYNC = (
    'Lock %s has hold="transaction" and is released at the end of its block: Django has no transactions in asynchronous '
    "code. Hold it in the synchronous function that opens the transaction"
)
