"""The alias `default` on a real database: no test's transaction is around it, and each thread has its own connection."""

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
    """In WAL mode: those who read and the one who writes don't block each other, as in the others."""
    options = {"timeout": 20, "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF"}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": options}


@contextmanager
def new_database(server: DatabaseServer) -> Iterator[dict[str, Any]]:
    """An empty one on this server, dropped in the end; its entry for `DATABASES`."""
    name = f"test_{next(_numbers)}"
    admin = ConnectionHandler({ALIAS: server.settings()})[ALIAS]
    with admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield server.settings(name)
    finally:
        with admin.cursor() as cursor:
            force = " WITH (FORCE)" if isinstance(server, PostgreSQL) else ""  # whoever is still connected
            cursor.execute(f"DROP DATABASE {name}{force}")
        admin.close()


@contextmanager
def as_default(entry: dict[str, Any]) -> Iterator[None]:
    """`default` is this database, in every thread that begins meanwhile; this thread's own connection is put aside,
    because an SQLite in memory ends with it."""
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
    """Call it in a thread with a connection of its own, which is closed in the end: `elsewhere(f).result(timeout=10)`."""

    def run() -> T:
        try:
            return call()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(1)
    done = pool.submit(run)
    pool.shutdown(wait=False)
    return done
