"""The alias `default` on a real database: without a surrounding test transaction, and with one connection per
thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from django.db import connections
from django.db.utils import ConnectionHandler

from tools.database_servers import DatabaseServer, MariaDB, PostgreSQL

T = TypeVar("T")

ALIAS = "default"
SERVERS: dict[str, type[DatabaseServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}
DRIVERS = {"postgresql": "psycopg", "mariadb": "pymysql"}
NAMES = ("sqlite", *SERVERS)

_numbers = count(1)


def sqlite(file: object) -> dict[str, Any]:
    """An entry for SQLite in WAL mode, in which readers and the writer don't block each other, as in the other
    databases."""
    options = {"timeout": 20, "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF"}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": options}


@contextmanager
def new_database(server: DatabaseServer) -> Iterator[dict[str, Any]]:
    """Create an empty database on this server, and drop it in the end. Yields its entry for `DATABASES`."""
    name = f"test_{next(_numbers)}"
    admin = ConnectionHandler({ALIAS: server.settings()})[ALIAS]
    with admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield server.settings(name)
    finally:
        with admin.cursor() as cursor:
            force = " WITH (FORCE)" if isinstance(server, PostgreSQL) else ""  # ends open connections
            cursor.execute(f"DROP DATABASE {name}{force}")
        admin.close()


@contextmanager
def as_default(entry: dict[str, Any]) -> Iterator[None]:
    """Use this database as `default` in every thread that starts inside the block. This thread's previous connection
    stays open, because an SQLite database in memory would end with it."""
    before, mine = connections.settings[ALIAS], connections[ALIAS]
    connections.settings[ALIAS] = ConnectionHandler({ALIAS: entry}).settings[ALIAS]
    del connections[ALIAS]
    try:
        yield
    finally:
        connections[ALIAS].close()
        connections.settings[ALIAS] = before
        connections[ALIAS] = mine


def elsewhere(call: Callable[[], T]) -> Future[T]:
    """Call the function in a thread with a database connection of its own, which is closed in the end:
    `elsewhere(f).result(timeout=10)`."""

    def run() -> T:
        try:
            return call()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(1)
    done = pool.submit(run)
    pool.shutdown(wait=False)
    return done
