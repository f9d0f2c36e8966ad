"""Finds the open database transactions of this thread, and warns about locks that are acquired or released inside of
one."""

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
"""Each warning is logged for at most this number of names. It bounds the memory, since a name may be a whole key."""


def open_now() -> list[Any]:
    """Return the connections of this thread that are inside ``atomic()``; opens none. The transaction of a ``TestCase``
    around a test doesn't count: it is never committed, so the lock would stay held until the test ends."""
    found = []
    for reference in _here.connections:
        connection: Any = reference()
        if connection is not None and connection.in_atomic_block and not _of_test_case(connection):
            found.append(connection)
    return found


def around_call(name: str, *, new: bool) -> list[Any]:
    """Return the connections whose transactions surround a call; used at the end of the call. Logs a warning if there
    are any, because such a transaction may have read data before the lock was acquired.

    Args:
        name: the name of the lock.
        new: False if the thread had the lock before the call, so that the warning has been logged already.
    """
    found = _committing(_initialized(), name)
    if found and new:
        _warn(_LATE, name)
    return found


def of_database(alias: str, name: str) -> list[Any]:
    """Return the connection to this database in a list, if it is inside ``atomic()`` now; else an empty list."""
    return _committing([connection for connection in _initialized() if connection.alias == alias], name)


def _committing(initialized: Iterable[Any], name: str) -> list[Any]:
    """Return the connections inside an ``atomic()`` that commits at its end. Logs a warning if autocommit is off."""
    found = []
    for connection in initialized:
        if _is_by_hand(connection):
            _warn(_BY_HAND, name)
        elif connection.in_atomic_block and not _of_test_case(connection):
            found.append(connection)
    return found


def warn_if_open(name: str) -> None:
    """Log a warning if a transaction is open while a lock of this name is released. It is called at each release, so
    for speed it calls Django only if a transaction is open."""
    for reference in _here.connections:
        connection: Any = reference()
        if connection is not None and connection.in_atomic_block and not _of_test_case(connection):
            using = "" if connection.alias == "default" else f', hold_using="{connection.alias}"'
            _warn(_EARLY, name, using)
            return


def warn_asynchronous(name: str) -> None:
    """Log a warning that asynchronous code has no transactions."""
    _warn(_ASYNC, name)


def _initialized() -> Iterable[Any]:
    return connections.all(initialized_only=True) if settings.configured else ()


def _of_test_case(connection: Any) -> bool:
    return any(block._from_testcase for block in connection.atomic_blocks)


def _is_by_hand(connection: Any) -> bool:
    """Return whether autocommit is off, or was off when ``atomic()`` began, which then doesn't commit."""
    if connection.in_atomic_block:
        return not connection.commit_on_exit
    return connection.connection is not None and not connection.autocommit


class _ThreadLocal(threading.local):
    """The connections of this thread. Django's handler would take ten times as long to list them."""

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
    "Lock %s was released inside an open transaction: until its COMMIT, the next holder reads the old data. "
    'Put atomic() inside the lock, or hold the lock until the transaction ends: locks.lock(key, hold="transaction"%s). '
    'If it protects no rows of a database, pass hold="block"'
)
_LATE = (
    "Lock %s was acquired inside an open transaction. It is held until the transaction ends; but data that the transaction "
    "has read, or its snapshot, may be older than the lock. Put the lock where the transaction begins: on the view or its "
    "dispatch(), or around atomic()"
)
_BY_HAND = (
    "Lock %s is released at the end of its call or block although autocommit is off, so the transaction may not be "
    "committed by then. Use atomic() with autocommit on, or hold a lock object around COMMIT"
)
_ASYNC = (
    'Lock %s has hold="transaction", but is released at the end of its block, because Django has no transactions in '
    "asynchronous code. Acquire it in the synchronous function that opens the transaction"
)
