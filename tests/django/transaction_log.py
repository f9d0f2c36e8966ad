"""A log of what locks and databases do, and helpers of tests of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections, transaction
from django.db.utils import ConnectionHandler

from django_redis_locks import LockNotAcquired, redis_lock, signals
from tests.databases import ALIAS
from tests.django.helpers import in_thread, wait_until
from tests.probes.django import events


class TransactionLog(list[str]):
    """Entries such as `BEGIN default`, `acquire key`, `COMMIT default`, `release key`, and those that bodies append."""

    def wait_for(self, entry: str) -> None:
        """Wait for an entry, such as a release by the maintenance thread after a rollback."""
        wait_until(lambda: entry in self)

    def assert_begins_with(self, *entries: str) -> None:
        """Assert that the log begins with these entries. Waits for the last one."""
        wait_until(lambda: len(self) >= len(entries))
        assert self[: len(entries)] == list(entries)

    def assert_equals(self, *entries: str) -> None:
        self.assert_begins_with(*entries)
        assert self == list(entries)


@contextmanager
def record_log(*aliases: str, log: TransactionLog | None = None) -> Iterator[TransactionLog]:
    """Record the transactions of this thread and the locks of all threads."""
    log = TransactionLog() if log is None else log
    log.clear()

    def on_lock(sender: object, event: events.Event, **_: object) -> None:
        log.append(f"{'acquire' if isinstance(event, events.Acquired) else 'release'} {event.key}")

    for alias in aliases:
        _watch(connections[alias], log)
    for signal in (signals.lock_acquired, signals.lock_released):
        signal.connect(on_lock)
    try:
        yield log
    finally:
        for signal in (signals.lock_acquired, signals.lock_released):
            signal.disconnect(on_lock)


def _watch(connection: Any, log: TransactionLog) -> None:
    """Patch a connection, which belongs to the test and ends with it."""
    connection.ensure_connection()
    begin = connection.set_autocommit

    def set_autocommit(autocommit: bool, *args: Any, **kwargs: Any) -> None:
        if not autocommit and connection.autocommit:
            log.append(f"BEGIN {connection.alias}")
        begin(autocommit, *args, **kwargs)

    connection.set_autocommit = set_autocommit
    for name, what in (("_commit", "COMMIT"), ("_rollback", "ROLLBACK"), ("_savepoint_rollback", "ROLLBACK TO")):
        setattr(connection, name, _logged(getattr(connection, name), log, f"{what} {connection.alias}"))


def _logged(call: Callable[..., Any], log: TransactionLog, what: str) -> Callable[..., Any]:
    def logged(*args: Any) -> None:
        call(*args)
        log.append(what)

    return logged


@contextmanager
def other_database(entry: dict[str, Any]) -> Iterator[None]:
    """A second alias, `other`."""
    connections.settings["other"] = ConnectionHandler({ALIAS: entry}).settings[ALIAS]
    try:
        yield
    finally:
        connections["other"].close()
        del connections["other"], connections.settings["other"]


class UserError(Exception):
    """An exception of a project's code."""


@redis_lock("service")
def service() -> str:
    return "served"


def is_busy() -> bool:
    """Whether a call in another thread is refused."""
    try:
        in_thread(service)
    except LockNotAcquired:
        return True
    return False


@contextmanager
def rolled_back(**options: Any) -> Iterator[None]:
    with suppress(UserError), transaction.atomic(**options):
        yield
        raise UserError
