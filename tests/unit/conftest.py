"""Queues to sit in, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_redis_locks.engine import local_queue as queues
from django_redis_locks.testing import ManualClock
from tests.unit.engine.queue_fixtures import Line


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, virtual_time: ManualClock) -> Line:
    """Queues without the spread of their retries."""
    monkeypatch.setattr(queues, "random", lambda: 0.0)
    return Line()


@pytest.fixture
def virtual_time() -> Iterator[ManualClock]:
    """The test's own waits move the clock, and nothing else does."""
    with ManualClock() as clock:
        yield clock
