"""The helper around memcached; that it works is shown by the tests that use it."""

from __future__ import annotations

import pytest

from tests.servers import unavailable
from tools import memcached_server, processes
from tools.memcached_server import Memcached
from tools.processes import ServerFailed, ServerNotFound


def test_missing_memcached_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memcached_server.shutil, "which", lambda _: None)
    with pytest.raises(ServerNotFound, match="Install the package memcached"):
        Memcached()


def test_failed_start_shows_the_log() -> None:
    try:
        server = Memcached()
    except ServerNotFound as error:
        unavailable(str(error))
    server._command.append("--no-such-option")
    with pytest.raises(ServerFailed, match=r"(?s)didn't start on port \d+:.*no-such-option"):
        server.__enter__()


def test_port_taken_by_another_server_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would answer in ours' place, and both flushed what the other one's tests have."""
    try:
        other = Memcached()
    except ServerNotFound as error:
        unavailable(str(error))
    with other:
        ports = iter([other.port, processes.free_port()])
        monkeypatch.setattr(processes, "free_port", lambda: next(ports))
        with Memcached() as server:
            assert server.port != other.port
