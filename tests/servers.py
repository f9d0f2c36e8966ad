"""One rule for everything that a test needs and a machine may not have: skip with the reason, but fail in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from tools.redis_server import RedisServer

UNHURRIED = 20.0
"""Seconds for which an answer is waited for that isn't lost: it comes, however long a machine stands still."""


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def needs_version(server: RedisServer, version: tuple[int, ...]) -> None:
    """Tests that call it carry the marker `servers`, because one run in CI uses the oldest server on purpose."""
    if server.version < version:
        unavailable(f"needs Redis {'.'.join(map(str, version))}, {server.executable} is older: {server.version}")
