"""What locks and databases do, in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from django.test import Client

from django_redis_locks import LockNotAcquired, redis_lock, signals
from django_redis_locks.core import events
from tests.databases import ALIAS
from tests.django.helpers import in_thread, until


class Ledger(list[str]):
    """`BEGIN default`, `acquire key`, `COMMIT default`, `release key`, and what bodies write themselves."""

    def note(self, what: str) -> None:
        self.append(what)

    def once(self, what: str) -> None:
        """Wait for it: what was rolled back the janitor frees, in its own thread."""
        until(lambda: what in self)

    def starts(self, *entries: str) -> None:
        """That is how it began; the last of these may still be on its way."""
        until(lambda: len(self) >= len(entries))
        assert self[: len(entries)] == list(entries)

    def reads(self, *entries: str) -> None:
        """That, and nothing else."""
        self.starts(*entries)
        assert self == list(entries)


@contextmanager
def keeping(*aliases: str) -> Iterator[Ledger]:
    """Write down what this thread's connections and everybody's locks do."""
    ledger = Ledger()

    def on_lock(sender: object, event: events.Event, **_: object) -> None:
        ledger.append(f"{'acquire' if isinstance(event, events.Acquired) else 'release'} {event.key}")

    for alias in aliases:
        _watch(connections[alias], ledger)
    for signal in (signals.lock_acquired, signals.lock_released):
        signal.connect(on_lock)
    try:
        yield ledger
    finally:
        for signal in (signals.lock_acquired, signals.lock_released):
            signal.disconnect(on_lock)


def _watch(connection: Any, ledger: Ledger) -> None:
    """The connection is the test's own and ends with it, so what is put on it stays."""
    connection.ensure_connection()
    begin = connection.set_autocommit

    def set_autocommit(autocommit: bool, *args: Any, **kwargs: Any) -> None:
        if not autocommit and connection.autocommit:
            ledger.append(f"BEGIN {connection.alias}")
        begin(autocommit, *args, **kwargs)

    connection.set_autocommit = set_autocommit
    for name, what in (("_commit", "COMMIT"), ("_rollback", "ROLLBACK"), ("_savepoint_rollback", "ROLLBACK TO")):
        setattr(connection, name, _told(getattr(connection, name), ledger, f"{what} {connection.alias}"))


def _told(call: Callable[..., Any], ledger: Ledger, what: str) -> Callable[..., Any]:
    def told(*args: Any) -> None:
        call(*args)
        ledger.append(what)

    return told


def get(path: str, **headers: str) -> Any:
    """A request whose exceptions are answered with 500, as a server does."""
    return Client(raise_request_exception=False).get(path, headers=headers)


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
    """Whether somebody else is refused."""
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
