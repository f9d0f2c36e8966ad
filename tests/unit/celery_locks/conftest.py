"""Fixtures for the unit tests of the Celery package: apps without workers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import freezegun
import pytest
from celery import Celery, _state

from celery_locks import beat
from tests.unit.celery_locks.beat_harness import NOON, BeatHarness

HERE = Path(__file__).parent
IGNORED = [
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",  # left open by Celery's clients
    "ignore:Call to deprecated setex:DeprecationWarning",  # by Celery's result backend
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for warning in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture
def project_app() -> Iterator[Celery]:
    """The default app of every thread, with a broker in memory and no worker."""
    default, current = _state.default_app, _state._tls.current_app
    app = Celery("project", broker="memory://")
    app.set_default()
    app.conf.task_default_queue = uuid.uuid4().hex
    yield app
    app.close()
    _state.default_app, _state._tls.current_app = default, current


MEMORY = {"default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": "beats"}}


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[BeatHarness]:
    """Beats at noon, with a store of their own: its fences rise with the clock, which some tests advance by years."""
    monkeypatch.setattr(beat, "_down", {})
    settings.REDIS_LOCKS = MEMORY
    with freezegun.freeze_time(NOON) as frozen:
        yield BeatHarness(frozen)
