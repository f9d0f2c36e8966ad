"""What happened to locks, for the tests of programs."""

from __future__ import annotations

import pytest

from django_redis_locks.core import events


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[events.Event]:
    """Every event while the test runs."""
    heard: list[events.Event] = []
    monkeypatch.setattr(events, "_listeners", [heard.append])
    return heard
