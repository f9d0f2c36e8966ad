"""A scene whose clock stands still, and what happened to its locks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_redis_locks.core import clock, events
from tests.unit.primitives.scene import Scene, StoppedClock


@pytest.fixture
def time() -> Iterator[StoppedClock]:
    time = StoppedClock()
    clock.install(time)
    yield time
    clock.install(clock.SYSTEM)


@pytest.fixture
def scene(time: StoppedClock) -> Iterator[Scene]:
    scene = Scene(time)
    yield scene
    scene.forget()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[events.Event]:
    """Every event while the test runs."""
    heard: list[events.Event] = []
    monkeypatch.setattr(events, "_listeners", [heard.append])
    return heard
