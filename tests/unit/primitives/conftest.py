"""Fixtures: two processes with a virtual clock, and the events of their locks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_redis_locks.core import clock, events
from tests.unit.primitives.scenario import Scenario, VirtualClock


@pytest.fixture
def time() -> Iterator[VirtualClock]:
    time = VirtualClock()
    clock.install(time)
    yield time
    clock.install(clock.SYSTEM)


@pytest.fixture
def scenario(time: VirtualClock) -> Iterator[Scenario]:
    scenario = Scenario(time)
    yield scenario
    scenario.forget()


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[events.Event]:
    """The events that were emitted during the test."""
    emitted: list[events.Event] = []
    monkeypatch.setattr(events, "listeners", [emitted.append])
    return emitted
