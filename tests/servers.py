"""Skips a test whose server or other program is missing on this machine; in CI the test fails instead."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tools.redis_server import RedisServer

UNHURRIED = 20.0
"""Timeout in seconds for replies that do arrive, even if the machine pauses for some seconds."""


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def needs_version(server: RedisServer, version: tuple[int, ...]) -> None:
    """Skip if the server is older. Such tests have the marker `servers`: one CI run uses the oldest supported
    server."""
    if server.version < version:
        unavailable(f"needs Redis {'.'.join(map(str, version))}, {server.executable} is older: {server.version}")
