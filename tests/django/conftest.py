"""Fixtures of the Django tests: stores, databases, recorded signals; and a check that no test leaves a lock held."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.dispatch import Signal

from django_redis_locks import current_grant, signals
from django_redis_locks.testing import ManualClock, override_locks
from tests import databases
from tests.django.helpers import MEMORY, Events, wait_until
from tests.django.transaction_log import TransactionLog, other_database, record_log
from tests.probes import django as probes
from tests.probes.django import events
from tests.servers import unavailable
from tools.database_servers import DatabaseServer
from tools.processes import ServerNotFound

SIGNALS: dict[type[events.Event], Signal] = {
    events.Acquired: signals.lock_acquired,
    events.Contended: signals.lock_contended,
    events.Released: signals.lock_released,
    events.Lost: signals.lock_lost,
    events.ForceReleased: signals.lock_force_released,
    events.BackendFailed: signals.lock_backend_failed,
    events.Detached: signals.lock_detached,
}


@pytest.fixture(autouse=True)
def nothing_left_held() -> Iterator[None]:
    """Assert that a test leaves no lock held, once the maintenance thread has released its own."""
    yield
    try:
        wait_until(lambda: not probes.keys_held_in_memory(), seconds=10)
    except AssertionError:
        pytest.fail(f"left held: {probes.keys_held_in_memory()[:5]}")
    assert current_grant() is None


@pytest.fixture(autouse=True)
def urlconf(request: pytest.FixtureRequest, settings: Any) -> None:
    """Use a test module with `urlpatterns` as the urlconf of its tests."""
    if hasattr(request.module, "urlpatterns"):
        settings.ROOT_URLCONF = request.module.__name__


@pytest.fixture
def memory_locks(settings: Any) -> Any:
    """`memory_locks(EXPIRE=5)`: set the alias `default`, with the memory backend."""

    def configure(**entry: Any) -> None:
        settings.REDIS_LOCKS = {"default": {"BACKEND": MEMORY, **entry}}

    return configure


@pytest.fixture
def manual_clock() -> Iterator[ManualClock]:
    """Locks in memory with a clock that the test moves."""
    with override_locks(), ManualClock() as clock:
        yield clock


@pytest.fixture
def redis_locks(settings: Any, redis_url: str) -> str:
    """The alias `default` on the shared Redis server, which is empty."""
    settings.REDIS_LOCKS = {"default": {"LOCATION": redis_url}}
    return redis_url


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> str:
    """The alias `default` in memory, and on Redis."""
    if request.param == "redis":
        request.getfixturevalue("redis_locks")
    return str(request.param)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections, because it is bound and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def store_down(settings: Any, closed_port: int) -> str:
    """The alias `default` on a server that refuses connections."""
    url = f"redis://operator:hunter2@127.0.0.1:{closed_port}/0"
    settings.REDIS_LOCKS = {"default": {"LOCATION": url}}
    return url


@pytest.fixture
def received() -> Iterator[Events]:
    """The events that all six signals have sent."""
    found = Events()

    def receive(sender: object, event: events.Event, **_: object) -> None:
        assert sender is type(event)
        found.append(event)

    for signal in SIGNALS.values():
        signal.connect(receive)
    yield found
    for signal in SIGNALS.values():
        signal.disconnect(receive)


@pytest.fixture(scope="session")
def database_server() -> Iterator[Callable[[str], DatabaseServer]]:
    """`database_server("mariadb")`: starts the server at the first call; it ends with the session."""
    running: dict[str, DatabaseServer] = {}
    with ExitStack() as stack:

        def get(name: str) -> DatabaseServer:
            if name not in running:
                try:
                    driver = import_module(databases.DRIVERS[name])
                    running[name] = stack.enter_context(databases.SERVERS[name]())
                except (ImportError, ServerNotFound) as error:
                    unavailable(str(error))
                if name == "mariadb":
                    driver.install_as_MySQLdb()
            return running[name]

        yield get


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.databases("sqlite")` runs a test, or a module, on these databases; without it, on all of them."""
    if "database" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("databases")
        metafunc.parametrize("database", mark.args if mark else databases.NAMES, indirect=True)


@pytest.fixture
def database(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    django_db_blocker: Any,
    database_server: Callable[[str], DatabaseServer],
) -> Iterator[str]:
    """The alias `default` on an empty database of each kind, without the transaction of a test case. Tests with this
    fixture don't need the mark `django_db`."""
    with ExitStack() as stack:
        stack.enter_context(django_db_blocker.unblock())
        if request.param == "sqlite":
            entry = databases.sqlite(tmp_path / "db.sqlite3")
        else:
            entry = stack.enter_context(databases.new_database(database_server(request.param)))
        stack.enter_context(databases.as_default(entry))
        assert connection.vendor == {"mariadb": "mysql"}.get(request.param, request.param)
        yield str(request.param)


@pytest.fixture
def two_databases(
    database: str, tmp_path: Path, database_server: Callable[[str], DatabaseServer]
) -> Iterator[dict[str, Any]]:
    """The aliases `default` and `other` on two databases of one kind, without the transaction of a test case."""
    with ExitStack() as stack:
        if database == "sqlite":
            entry = databases.sqlite(tmp_path / "other.sqlite3")
        else:
            entry = stack.enter_context(databases.new_database(database_server(database)))
        stack.enter_context(other_database(entry))
        yield entry


@pytest.fixture
def log(two_databases: object, redis_locks: str) -> Iterator[TransactionLog]:
    """A log of what both databases and the locks on Redis do. Resets the warnings that are logged once."""
    probes.repeat_warnings()
    with record_log("default", "other") as found:
        yield found
