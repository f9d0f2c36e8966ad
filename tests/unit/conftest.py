"""Fixtures: local wait queues, and a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_redis_locks.engine import local_queues
from django_redis_locks.testing import ManualClock
from tests.unit.engine.queue_fixtures import StandaloneQueues


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch, virtual_time: ManualClock) -> StandaloneQueues:
    """Local wait queues without random delays."""
    monkeypatch.setattr(local_queues, "random", lambda: 0.0)
    return StandaloneQueues()


@pytest.fixture
def virtual_time() -> Iterator[ManualClock]:
    """A clock that only the test's own waits advance."""
    with ManualClock() as clock:
        yield clock
