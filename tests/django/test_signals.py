"""Signals: events and their values, and receivers that fail."""

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


def lock(**options: Any) -> Any:
    return locks.lock("order:5", **options)


def lose_by_force() -> None:
    with pytest.raises(LockLost), lock():
        in_thread(lambda: lock().force_release(reason="stuck"))
    report_losses()


@pytest.fixture
def connect() -> Iterator[Any]:
    """`connect(receiver)`: connect it until the end of the test."""
    with ExitStack() as stack:

        def connected(receiver: Any, *wanted: Signal) -> None:
            for signal in wanted:
                signal.connect(receiver)
                stack.callback(signal.disconnect, receiver)

        yield connected


class TestEvents:
    def test_each_kind_of_event_has_one_signal(self) -> None:
        kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)}
        assert set(SIGNALS) == kinds - {events.Event, events.Vanished}  # without a signal, only logged
        public = {value for value in vars(signals).values() if isinstance(value, Signal)}
        assert public == set(SIGNALS.values())

    def test_with_block_sends_acquired_and_released(self, received: Events, store: str) -> None:
        """With fence and times, which a receiver can't change."""
        with lock() as grant:
            assert received.kinds() == ["Acquired"]
        acquired, released = received
        assert asdict(acquired) == {**ABOUT, "fence": grant.fence, "waited": acquired.waited}
        assert asdict(released) == {**ABOUT, "fence": grant.fence, "held": released.held, "confirmed": True}
        assert 0 <= acquired.waited < PATIENCE
        assert 0 < released.held < PATIENCE
        with pytest.raises(AttributeError):
            acquired.key = "other"

    def test_decorated_call_sends_key_template_and_alias(self, received: Events, store: str) -> None:
        """Also an async one. An rlock sends each entry, and one release at the last exit."""

        async def awork(pk: int) -> None: ...

        decorate = redis_lock("order:{pk}")
        for call in (decorate(lambda pk: None), lambda pk: asyncio.run(decorate(awork)(pk))):
            call(5)
            assert received.kinds() == ["Acquired", "Released"]
            assert {(event.key, event.name, event.alias) for event in received} == {
                ("order:5", "order:{pk}", "default")
            }
            received.clear()
        with locks.rlock("order:5"), locks.rlock("order:5"):
            pass
        assert received.kinds() == ["Acquired", "Acquired", "Released"]

    def test_refused_acquire_sends_contended_with_the_time_waited(self, received: Events) -> None:
        """Whether acquire raises or returns None."""
        with held_elsewhere("order:5"):
            received.clear()
            with pytest.raises(LockNotAcquired) as raised:
                lock(wait=0.05).acquire()
            assert lock().acquire(blocking=False) is None
            waited, at_once = received
        for event in (waited, at_once):
            assert asdict(event) == {**ABOUT, "waited": event.waited}
        assert 0.05 <= waited.waited == raised.value.waited < PATIENCE
        assert at_once.waited < AT_ONCE

    def test_loss_is_sent_once_without_a_release(self, received: Events, store: str) -> None:
        """After a forced release, which is sent itself if it released a lock."""
        assert lock().force_release() is False
        assert received == []
        lose_by_force()
        (acquired,), (forced,), (lost,) = (
            received.of(kind) for kind in (events.Acquired, events.ForceReleased, events.Lost)
        )
        assert asdict(forced) == {**ABOUT, "reason": "stuck", "actor": ""}
        assert asdict(lost) == {**ABOUT, "fence": acquired.fence, "held": lost.held, "why": "taken"}


class TestReceivers:
    def test_receiver_that_raises_is_logged_and_changes_nothing(
        self, connect: Any, received: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        """[D8] Locks work as before, and the other receivers are called. Each failure is logged once."""

        def fail(**_: object) -> None:
            raise LookupError

        connect(fail, *SIGNALS.values())
        with lock() as grant:
            assert grant.held
        with held_elsewhere("order:5"), pytest.raises(LockNotAcquired):
            lock(wait=0).acquire()
        lose_by_force()
        locks.attach(lock().acquire().detach()).release()
        assert {*map(type, received)} == set(SIGNALS) - {events.BackendFailed}
        failures = [record for record in caplog.records if record.exc_info and record.exc_info[0] is LookupError]
        assert [record.name for record in failures] == ["django.dispatch"] * len(received)

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
