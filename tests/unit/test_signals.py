"""Django signals listen to the engine's events from the first receiver on."""

from __future__ import annotations

from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

import pytest
from django.dispatch import receiver

from django_redis_locks import locks, signals
from django_redis_locks.core import events
from django_redis_locks.core.events import Acquired, Event, Released


@pytest.fixture
def fresh_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The signals module as in a new process, without receivers."""
    monkeypatch.setattr(events, "listeners", [])
    spec = signals.__spec__
    assert spec is not None
    assert spec.loader is not None
    fresh_module = module_from_spec(spec)
    spec.loader.exec_module(fresh_module)
    return fresh_module


def test_signals_listen_to_events_from_the_first_receiver_on(fresh_module: ModuleType) -> None:
    assert events.listeners == []
    received: list[Event] = []

    @receiver([fresh_module.lock_released, fresh_module.lock_acquired])
    def receive(event: Event, **about: Any) -> None:
        received.append(event)

    assert events.listeners == [fresh_module.send]
    with locks.lock("order:5"):
        pass
    assert [type(event) for event in received] == [Acquired, Released]


def test_receiver_that_disconnects_leaves_the_others(fresh_module: ModuleType) -> None:
    received: list[Event] = []

    def receive(event: Event, **about: Any) -> None:
        received.append(event)

    fresh_module.lock_acquired.connect(receive)
    fresh_module.lock_acquired.disconnect(receive)
    fresh_module.lock_released.connect(receive, sender=Released)
    with locks.lock("order:5"):
        pass
    assert [type(event) for event in received] == [Released]


def test_setting_django_up_again_listens_once() -> None:
    events.listen(signals.send)
    before = list(events.listeners)
    events.listen(signals.send)
    assert events.listeners == before
    assert before.count(signals.send) == 1
