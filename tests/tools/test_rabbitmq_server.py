"""The helper around RabbitMQ; that it works is shown by the tests that use it."""

from __future__ import annotations

import pytest

from tools import rabbitmq_server
from tools.processes import ServerNotFound
from tools.rabbitmq_server import RabbitMQ


def test_missing_rabbitmq_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_server.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ServerNotFound, match="rabbitmq-server"):
        RabbitMQ().start()
