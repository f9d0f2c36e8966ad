"""The helpers around memcached and RabbitMQ; that they work is shown by the tests that use them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import unavailable
from tools import memcached_server, processes, rabbitmq_server
from tools.memcached_server import Memcached
from tools.processes import ServerFailed, ServerNotFound
from tools.rabbitmq_server import RabbitMQ


def test_missing_server_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, make, package in (
        (memcached_server, Memcached, "memcached"),
        (rabbitmq_server, lambda: RabbitMQ().start(), "rabbitmq-server"),
    ):
        monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
        with pytest.raises(ServerNotFound, match=package):
            make()
        monkeypatch.undo()


@pytest.fixture
def other() -> Iterator[Memcached]:
    try:
        with Memcached() as server:
            yield server
    except ServerNotFound as error:
        unavailable(str(error))


def test_port_taken_by_another_server_is_left_to_it(other: Memcached, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would answer in ours' place, and both flushed what the other one's tests have. A failed start shows the log."""
    ports = iter([other.port, processes.free_port()])
    monkeypatch.setattr(processes, "free_port", lambda: next(ports))
    with Memcached() as server:
        assert server.port != other.port
    monkeypatch.undo()
    server._command.append("--no-such-option")
    with pytest.raises(ServerFailed, match=r"(?s)didn't start on port \d+:.*no-such-option"):
        server.__enter__()
