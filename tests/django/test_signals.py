"""Signals and the log: events and their values; and receivers that fail, which change nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from django.dispatch import Signal

from django_redis_locks import LockBackendError, LockLost, LockNotAcquired, locks, redis_lock, signals
from django_redis_locks.testing import ManualClock, override_locks
from tests.django.conftest import SIGNALS
from tests.django.helpers import AT_ONCE, LEASE, PATIENCE, Events, held_elsewhere, in_thread, until
from tests.probes.django import events

Acquired, Contended, Event, ForceReleased, Lost, Released = (
    events.Acquired,
    events.Contended,
    events.Event,
    events.ForceReleased,
    events.Lost,
    events.Released,
)
LOGGERS = {
    Acquired: ("django_redis_locks.acquire", "DEBUG"),
    Contended: ("django_redis_locks.acquire", "INFO"),
    Released: ("django_redis_locks.release", "DEBUG"),
    Lost: ("django_redis_locks.lost", "ERROR"),
    ForceReleased: ("django_redis_locks.release", "WARNING"),
    events.BackendFailed: ("django_redis_locks.backend", "ERROR"),
}
ABOUT = {"key": "order:5", "name": "order", "alias": "default"}


def lock(**terms: Any) -> Any:
    return locks.lock("order:5", **terms)


def lose() -> None:
    with lock(expire=LEASE, wait=PATIENCE) as grant:
        until(lambda: grant.lost)
        until(lambda: not lock().locked())


def lose_by_force() -> None:
    with lock():
        in_thread(lambda: lock().force_release(reason="stuck"))


def about(event: Event) -> dict[str, Any]:
    return asdict(event)


class TestEvents:
    def test_each_kind_of_event_has_one_signal(self) -> None:
        kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}
        assert set(SIGNALS) == kinds - {Event}
        public = {value for value in vars(signals).values() if isinstance(value, Signal)}
        assert public == set(SIGNALS.values())

    def test_section_sends_acquired_and_released(self, seen: Events, store: str) -> None:
        """With the fence and the times; a receiver can't change them."""
        with lock() as grant:
            assert seen.kinds() == ["Acquired"]
        acquired, released = seen
        assert about(acquired) == {**ABOUT, "fence": grant.fence, "waited": acquired.waited}
        assert about(released) == {**ABOUT, "fence": grant.fence, "held": released.held, "confirmed": True}
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

    @pytest.mark.parametrize("blocking", [True, False])
    def test_refusal_sends_contended_with_the_time_spent(self, seen: Events, blocking: bool) -> None:
        """Whether it raises or returns None."""
        with held_elsewhere("order:5"):
            seen.clear()
            if blocking:
                with pytest.raises(LockNotAcquired) as raised:
                    lock(wait=0.05).acquire()
            else:
                assert lock().acquire(blocking=False) is None
            (event,) = seen
        assert about(event) == {**ABOUT, "waited": event.waited}
        if blocking:
            assert 0.05 <= event.waited == raised.value.waited < PATIENCE
        else:
            assert event.waited < AT_ONCE

    def test_expired_lease_sends_lost_once(self, seen: Events, store: str) -> None:
        """And no release."""
        with pytest.raises(LockLost):
            lose()
        acquired, lost = seen
        assert about(lost) == {**ABOUT, "fence": acquired.fence, "held": lost.held, "why": "expired"}
        assert LEASE * 0.9 < lost.held < PATIENCE

    def test_force_release_sends_forced_at_once_and_lost_later(self, seen: Events, store: str) -> None:
        with pytest.raises(LockLost):
            lose_by_force()
        acquired, forced, lost = seen
        assert about(forced) == {**ABOUT, "reason": "stuck", "actor": ""}
        assert about(lost) == {**ABOUT, "fence": acquired.fence, "held": lost.held, "why": "taken"}

    def test_lock_beyond_MAX_HOLD_sends_lost_when_its_lease_ends(self, seen: Events) -> None:
        """[F13]"""
        with override_locks(MAX_HOLD=60), ManualClock() as clock:
            grant = lock(expire=30, renew=True).acquire()
            clock.advance(59)
            assert not grant.lost
            clock.advance(31)
            assert grant.lost
            assert [event.why for event in seen.of(Lost)] == ["max_hold"]
            assert not lock().locked()
            with pytest.raises(LockLost, match="max_hold"):
                grant.release()

    def test_force_release_that_frees_nothing_sends_nothing(self, seen: Events) -> None:
        assert lock().force_release(reason="stuck") is False
        with lock() as grant:
            assert lock().force_release(fence=(grant.fence or 0) - 1) is False
        assert "ForceReleased" not in seen.kinds()

    def test_store_that_is_down_sends_backend_failed_without_a_password(self, seen: Events, store_down: str) -> None:
        """Unless the failure is raised."""
        with pytest.raises(LockBackendError):
            lock(wait=0).acquire()
        assert seen == []
        with lock(on_backend_error="open", wait=0):
            pass
        failed = seen[0]
        assert about(failed) == {**ABOUT, "doing": "acquire, going on unlocked", "problem": failed.problem}
        assert "can't reach redis://operator:***@" in failed.problem
        assert "hunter2" not in failed.problem


class BadReceiver(Exception):
    pass


@pytest.fixture
def failing() -> Iterator[list[type[Event]]]:
    """A receiver of every signal that raises, and what it was called for."""
    called: list[type[Event]] = []

    def fail(sender: type[Event], **_: object) -> None:
        called.append(sender)
        raise BadReceiver(sender)

    for signal in SIGNALS.values():
        signal.connect(fail)
    yield called
    for signal in SIGNALS.values():
        signal.disconnect(fail)


class TestReceivers:
    def test_receiver_that_raises_is_logged_and_changes_nothing(
        self, failing: list[type[Event]], seen: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Locks are acquired, refused, forced, released and lost as ever, and the other receivers are called."""
        with lock() as grant:
            assert grant.held
        with held_elsewhere("order:5"), pytest.raises(LockNotAcquired):
            lock(wait=0).acquire()
        with pytest.raises(LockLost):
            lose_by_force()
        assert set(failing) == {Acquired, Released, Contended, ForceReleased, Lost}
        assert failing == [type(event) for event in seen]
        ours = [record for record in caplog.records if record.name == "django_redis_locks"]
        assert len(ours) == len(failing)
        assert all(record.exc_info and record.exc_info[0] is BadReceiver for record in ours)

    def test_async_receiver_in_a_running_loop_harms_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """It can't be awaited there."""
        called = []

        async def areceive(**_: object) -> None:
            called.append("async")

        def receive(**_: object) -> None:
            called.append("sync")

        async def scenario() -> bool:
            async with lock() as grant:
                return grant.held

        signals.lock_acquired.connect(areceive)
        signals.lock_acquired.connect(receive)
        try:
            assert asyncio.run(scenario()) is True
            assert "sync" in called
            called.clear()
            with lock():
                pass
            assert sorted(called) == ["async", "sync"]
        finally:
            signals.lock_acquired.disconnect(areceive)
            signals.lock_acquired.disconnect(receive)

    def test_receiver_may_use_locks(self) -> None:
        found = []

        def receive(event: Acquired, **_: object) -> None:
            if event.key == "order:5":
                with locks.lock("other"):
                    found.append(lock().locked())

        signals.lock_acquired.connect(receive)
        try:
            with lock():
                pass
        finally:
            signals.lock_acquired.disconnect(receive)
        assert found == [True]


class TestLog:
    @pytest.fixture(autouse=True)
    def everything(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        with caplog.at_level(logging.DEBUG, "django_redis_locks"):
            yield

    def test_each_event_is_one_log_line_with_its_values(self, caplog: pytest.LogCaptureFixture, seen: Events) -> None:
        """At its level; extras have `lock_` before their names."""
        with held_elsewhere("order:5"):
            assert lock().acquire(blocking=False) is None
        with pytest.raises(LockLost):
            lose_by_force()
        ours = [record for record in caplog.records if record.name.startswith("django_redis_locks")]
        assert len(ours) == len(seen)
        assert {type(event) for event in seen} == {Acquired, Contended, Released, Lost, ForceReleased}
        for record, event in zip(ours, seen, strict=True):
            assert (record.name, record.levelname) == LOGGERS[type(event)]
            extras = {name: value for name, value in vars(record).items() if name.startswith("lock_")}
            assert extras == {f"lock_{field}": value for field, value in about(event).items()}
            assert "order" in record.getMessage()
            assert "order:5" not in record.getMessage()

    def test_store_that_is_down_is_logged_as_an_error(self, caplog: pytest.LogCaptureFixture, store_down: str) -> None:
        with lock(on_backend_error="open", wait=0):
            pass
        (record,) = [record for record in caplog.records if record.name == "django_redis_locks.backend"]
        assert record.levelname == "ERROR"
        assert record.__dict__["lock_doing"] == "acquire, going on unlocked"
        assert "order:5" not in record.getMessage()
        assert "hunter2" not in record.getMessage()

    def test_section_is_silent_at_INFO(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "django_redis_locks"), lock():
            pass
        assert caplog.records == []
