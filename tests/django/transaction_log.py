"""The log of what locks and databases do, in one order, and what tests of transactions share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections, transaction
from django.db.utils import ConnectionHandler

from django_redis_locks import LockNotAcquired, redis_lock, signals
from tests.databases import ALIAS
from tests.django.helpers import in_thread, until
from tests.probes.django import events


class TransactionLog(list[str]):
    """`BEGIN default`, `acquire key`, `COMMIT default`, `release key`, and what bodies append themselves."""

    def wait_for(self, entry: str) -> None:
        """The lock of a transaction that was rolled back is freed by the maintenance thread."""
        until(lambda: entry in self)

    def begins_with(self, *entries: str) -> None:
        """The last of these may still be on its way."""
        until(lambda: len(self) >= len(entries))
        assert self[: len(entries)] == list(entries)

    def equals(self, *entries: str) -> None:
        self.begins_with(*entries)
        assert self == list(entries)


@contextmanager
def recorded(*aliases: str, log: TransactionLog | None = None) -> Iterator[TransactionLog]:
    """Record what this thread's connections and the locks of all threads do."""
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
    """The connection is the test's own and ends with it, so what is put on it stays."""
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


class Boom(Exception):
    """What a user's code raises."""


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
def rolled_back(**terms: Any) -> Iterator[None]:
    with suppress(Boom), transaction.atomic(**terms):
        yield
        raise Boom
