"""Signals listen to the engine's events only once there is a receiver."""

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
def fresh(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the signals as in a process that has just begun: there is no receiver yet."""
    monkeypatch.setattr(events, "_listeners", [])
    spec = signals.__spec__
    assert spec is not None
    assert spec.loader is not None
    fresh = module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


def test_signals_listen_from_the_first_receiver_of_any_on(fresh: ModuleType) -> None:
    assert events._listeners == []
    assert not events.wanted(Acquired)
    heard: list[Event] = []

    @receiver([fresh.lock_released, fresh.lock_acquired])
    def subscribed_channel(event: Event, **about: Any) -> None:
        heard.append(event)

    assert events._listeners == [fresh.send]
    assert events.wanted(Acquired)
    with locks.lock("order:5"):
        pass
    assert [type(event) for event in heard] == [Acquired, Released]


def test_receiver_that_disconnects_leaves_the_others(fresh: ModuleType) -> None:
    heard: list[Event] = []

    def subscribed_channel(event: Event, **about: Any) -> None:
        heard.append(event)

    fresh.lock_acquired.connect(subscribed_channel)
    fresh.lock_acquired.disconnect(subscribed_channel)
    fresh.lock_released.connect(subscribed_channel, sender=Released)
    with locks.lock("order:5"):
        pass
    assert [type(event) for event in heard] == [Released]


def test_setting_django_up_again_listens_once() -> None:
    events.listen(signals.send)
    before = list(events._listeners)
    events.listen(signals.send)
    assert events._listeners == before
    assert before.count(signals.send) == 1
