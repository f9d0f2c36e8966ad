"""Signals: events and their values; and receivers that fail, which change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pytest
from django.dispatch import Signal

from django_redis_locks import LockLost, LockNotAcquired, locks, redis_lock, signals
from tests.django.conftest import SIGNALS
from tests.django.helpers import AT_ONCE, PATIENCE, Events, held_elsewhere, in_thread
from tests.probes.django import events
from tests.probes.engine import report_losses

ABOUT = {"key": "order:5", "name": "order", "alias": "default"}


def lock(**terms: Any) -> Any:
    return locks.lock("order:5", **terms)


def lose_by_force() -> None:
    with pytest.raises(LockLost), lock():
        in_thread(lambda: lock().force_release(reason="stuck"))
    report_losses()


@pytest.fixture
def connect() -> Iterator[Any]:
    """Receivers until the end of the test."""
    with ExitStack() as stack:

        def connected(receiver: Any, *wanted: Signal) -> None:
            for signal in wanted:
                signal.connect(receiver)
                stack.callback(signal.disconnect, receiver)

        yield connected


class TestEvents:
    def test_each_kind_of_event_has_one_signal(self) -> None:
        kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)}
        assert set(SIGNALS) == kinds - {events.Event, events.Vanished}  # which is logged only
        public = {value for value in vars(signals).values() if isinstance(value, Signal)}
        assert public == set(SIGNALS.values())

    def test_section_sends_acquired_and_released(self, seen: Events, store: str) -> None:
        """With the fence and the times; a receiver can't change them."""
        with lock() as grant:
            assert seen.kinds() == ["Acquired"]
        acquired, released = seen
        assert asdict(acquired) == {**ABOUT, "fence": grant.fence, "waited": acquired.waited}
        assert asdict(released) == {**ABOUT, "fence": grant.fence, "held": released.held, "confirmed": True}
        assert 0 <= acquired.waited < PATIENCE
        assert 0 < released.held < PATIENCE
        with pytest.raises(AttributeError):
            acquired.key = "other"

    def test_decorated_call_sends_key_template_and_alias(self, seen: Events, store: str) -> None:
        """An async one the same; each entry of an rlock is sent, and one release, with the last exit."""

        async def awork(pk: int) -> None: ...

        decorate = redis_lock("order:{pk}")
        for call in (decorate(lambda pk: None), lambda pk: asyncio.run(decorate(awork)(pk))):
            call(5)
            assert seen.kinds() == ["Acquired", "Released"]
            assert {(event.key, event.name, event.alias) for event in seen} == {("order:5", "order:{pk}", "default")}
            seen.clear()
        with locks.rlock("order:5"), locks.rlock("order:5"):
            pass
        assert seen.kinds() == ["Acquired", "Acquired", "Released"]

    def test_refusal_sends_contended_with_the_time_spent(self, seen: Events) -> None:
        """Whether it raises or returns None."""
        with held_elsewhere("order:5"):
            seen.clear()
            with pytest.raises(LockNotAcquired) as raised:
                lock(wait=0.05).acquire()
            assert lock().acquire(blocking=False) is None
            waited, at_once = seen
        for event in (waited, at_once):
            assert asdict(event) == {**ABOUT, "waited": event.waited}
        assert 0.05 <= waited.waited == raised.value.waited < PATIENCE
        assert at_once.waited < AT_ONCE

    def test_loss_is_sent_once_and_no_release(self, seen: Events, store: str) -> None:
        """Of a force release, which is sent at once itself, if it frees anything."""
        assert lock().force_release() is False
        assert seen == []
        lose_by_force()
        (acquired,), (forced,), (lost,) = (
            seen.of(kind) for kind in (events.Acquired, events.ForceReleased, events.Lost)
        )
        assert asdict(forced) == {**ABOUT, "reason": "stuck", "actor": ""}
        assert asdict(lost) == {**ABOUT, "fence": acquired.fence, "held": lost.held, "why": "taken"}


class TestReceivers:
    def test_receiver_that_raises_is_logged_and_changes_nothing(
        self, connect: Any, seen: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D8] Locks are acquired, refused, forced, released and lost as ever, and the other receivers are called. Each failure
        is logged once."""

        def fail(**_: object) -> None:
            raise LookupError

        connect(fail, *SIGNALS.values())
        with lock() as grant:
            assert grant.held
        with held_elsewhere("order:5"), pytest.raises(LockNotAcquired):
            lock(wait=0).acquire()
        lose_by_force()
        assert {*map(type, seen)} == set(SIGNALS) - {events.BackendFailed}
        failures = [record for record in caplog.records if record.exc_info and record.exc_info[0] is LookupError]
        assert [record.name for record in failures] == ["django.dispatch"] * len(seen)

    def test_async_receiver_in_a_running_loop_harms_nothing(self, connect: Any) -> None:
        """It can't be awaited there."""
        called = []

        async def areceive(**_: object) -> None:
            called.append("async")

        def receive(**_: object) -> None:
            called.append("sync")

        async def scenario() -> bool:
            async with lock() as grant:
                return grant.held

        connect(areceive, signals.lock_acquired)
        connect(receive, signals.lock_acquired)
        assert asyncio.run(scenario()) is True
        assert "sync" in called
        called.clear()
        with lock():
            pass
        assert sorted(called) == ["async", "sync"]

    def test_receiver_may_use_locks(self, connect: Any) -> None:
        found = []

        def receive(event: events.Acquired, **_: object) -> None:
            if event.key == "order:5":
                with locks.lock("other"):
                    found.append(lock().locked())

        connect(receive, signals.lock_acquired)
        with lock():
            pass
        assert found == [True]
