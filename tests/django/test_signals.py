"""Signals and the log: what is told, with which values, and that nobody who listens can break a lock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from django.dispatch import Signal

from django_redis_locks import LockLost, LockNotAcquired, locks, redis_lock, signals
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
    def test_every_event_has_a_signal(self) -> None:
        """Each kind of event has one signal, and each signal one kind."""
        kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}
        assert set(SIGNALS) == kinds - {Event}
        public = {value for value in vars(signals).values() if isinstance(value, Signal)}
        assert public == set(SIGNALS.values())

    def test_acquired_and_released(self, seen: Events, store: str) -> None:
        """An ordinary section is two signals, with the fence and the times."""
        with lock() as grant:
            assert seen.kinds() == ["Acquired"]
        acquired, released = seen
        assert about(acquired) == {**ABOUT, "fence": grant.fence, "waited": acquired.waited}
        assert about(released) == {**ABOUT, "fence": grant.fence, "held": released.held, "confirmed": True}
        assert 0 <= acquired.waited < PATIENCE
        assert 0 < released.held < PATIENCE

    def test_of_a_decorated_call(self, seen: Events) -> None:
        """A decorated call's events have the filled key, the template as the name, and the alias."""
        redis_lock("order:{pk}")(lambda pk: None)(5)
        assert seen.kinds() == ["Acquired", "Released"]
        assert {(event.key, event.name, event.alias) for event in seen} == {("order:5", "order:{pk}", "default")}

    def test_of_an_async_section(self, seen: Events, store: str) -> None:
        """An async section tells the same."""

        async def story() -> None:
            async with lock():
                pass

        asyncio.run(story())
        assert seen.kinds() == ["Acquired", "Released"]

    def test_re_entry(self, seen: Events) -> None:
        """Each entry is told; the release once, with the last exit."""
        with locks.rlock("order:5"), locks.rlock("order:5"):
            pass
        assert seen.kinds() == ["Acquired", "Acquired", "Released"]

    @pytest.mark.parametrize("blocking", [True, False])
    def test_contended(self, seen: Events, blocking: bool) -> None:
        """Giving up is told, with the time spent, whether it raises or answers None."""
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

    def test_lost_by_expiry(self, seen: Events, store: str) -> None:
        """A lease that ran out is told once, with "expired"; there is no release then."""
        with pytest.raises(LockLost):
            lose()
        acquired, lost = seen
        assert about(lost) == {**ABOUT, "fence": acquired.fence, "held": lost.held, "why": "expired"}
        assert LEASE * 0.9 < lost.held < PATIENCE

    def test_lost_by_force(self, seen: Events, store: str) -> None:
        """A lock that an operator took away is told to him at once and to its holder when he finds out."""
        with pytest.raises(LockLost):
            lose_by_force()
        acquired, forced, lost = seen
        assert about(forced) == {**ABOUT, "reason": "stuck", "actor": ""}
        assert about(lost) == {**ABOUT, "fence": acquired.fence, "held": lost.held, "why": "taken"}

    @pytest.mark.usefixtures("often")
    def test_lost_by_max_hold(self, seen: Events, memory_locks: Any) -> None:
        """[F13] A lock that reached its MAX_HOLD is lost when the lease ends."""
        memory_locks(EXPIRE=0.05, MAX_HOLD=0.1)
        grant = lock(expire=3, renew=True).acquire()
        until(lambda: seen.of(Lost))
        assert grant.lost
        assert [event.why for event in seen.of(Lost)] == ["max_hold"]
        until(lambda: not lock().locked())
        with pytest.raises(LockLost, match="max_hold"):
            grant.release()

    def test_nothing_to_force(self, seen: Events) -> None:
        """A force release that freed nothing tells nothing."""
        assert lock().force_release(reason="stuck") is False
        with lock() as grant:
            assert lock().force_release(fence=(grant.fence or 0) - 1) is False
        assert "ForceReleased" not in seen.kinds()

    def test_backend_failed(self, seen: Events, store_down: str) -> None:
        """A section that runs although the store is down is told, without a password."""
        with lock(on_backend_error="open", wait=0):
            pass
        failed = seen[0]
        assert about(failed) == {**ABOUT, "doing": "acquire, going on unlocked", "problem": failed.problem}
        assert "can't reach redis://operator:***@" in failed.problem
        assert "hunter2" not in failed.problem

    def test_closed_raises_and_tells_nothing(self, seen: Events, store_down: str) -> None:
        """What raises is the caller's to report."""
        from django_redis_locks import LockBackendError

        with pytest.raises(LockBackendError):
            lock(wait=0).acquire()
        assert seen == []

    def test_events_are_frozen(self, seen: Events) -> None:
        """A receiver can't change what the next one gets."""
        with lock():
            pass
        with pytest.raises(AttributeError):
            seen[0].key = "other"  # type: ignore[misc]


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
    """A receiver that fails is logged and changes nothing."""

    def test_that_raise(self, failing: list[type[Event]], seen: Events, caplog: pytest.LogCaptureFixture) -> None:
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

    def test_async_receivers_in_a_loop(self, caplog: pytest.LogCaptureFixture) -> None:
        """An async receiver can't be awaited from inside a running loop: it harms neither lock nor other receivers."""
        called = []

        async def areceive(**_: object) -> None:
            called.append("async")

        def receive(**_: object) -> None:
            called.append("sync")

        async def story() -> bool:
            async with lock() as grant:
                return grant.held

        signals.lock_acquired.connect(areceive)
        signals.lock_acquired.connect(receive)
        try:
            assert asyncio.run(story()) is True
            assert "sync" in called
            called.clear()
            with lock():
                pass
            assert sorted(called) == ["async", "sync"]
        finally:
            signals.lock_acquired.disconnect(areceive)
            signals.lock_acquired.disconnect(receive)

    def test_that_use_locks(self) -> None:
        """A receiver may use another lock, and look at this one."""
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

    def test_every_event(self, caplog: pytest.LogCaptureFixture, seen: Events) -> None:
        """Each event is one line at its level, whose extras are the event's values with `lock_` before them."""
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

    def test_backend_failed(self, caplog: pytest.LogCaptureFixture, store_down: str) -> None:
        """A store that is down is an ERROR."""
        with lock(on_backend_error="open", wait=0):
            pass
        (record,) = [record for record in caplog.records if record.name == "django_redis_locks.backend"]
        assert record.levelname == "ERROR"
        assert record.__dict__["lock_doing"] == "acquire, going on unlocked"
        assert "order:5" not in record.getMessage()
        assert "hunter2" not in record.getMessage()

    def test_sections_are_silent_at_info(self, caplog: pytest.LogCaptureFixture) -> None:
        """At INFO an ordinary section says nothing."""
        with caplog.at_level(logging.INFO, "django_redis_locks"), lock():
            pass
        assert caplog.records == []
