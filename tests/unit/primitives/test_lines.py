"""The line of waiters in a store, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from django_redis_locks import locks
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import Attempt
from django_redis_locks.primitives.shared.requests import Busy, Granted
from tests.unit.primitives.scenario import VirtualClock


@pytest.fixture(params=["memory", "redis"], autouse=True)
def store(request: pytest.FixtureRequest, settings: Any) -> None:
    if request.param == "redis":
        settings.REDIS_LOCKS = {"default": {"LOCATION": request.getfixturevalue("redis_url")}}
    else:
        settings.REDIS_LOCKS = {
            "default": {"BACKEND": "django_redis_locks.backends.memory.MemoryBackend", "LOCATION": request.node.name}
        }


class Line:
    """The requests of callers with one kind of lock. No process subscribes to their channels unless it ``hears``."""

    def __init__(self, lock: Any) -> None:
        self.steps = lock.spec.steps
        self.backend = lock.spec.performer.backend
        self.call = self.backend.call

    def hears(self, token: str) -> None:
        """Subscribe to the channel of a caller, on a memory store."""
        self.backend._store.inboxes[f"channel:{token}"] = lambda *message: None

    def ask(self, token: str, place: int = 0, *, registers: bool = True, steps: Any = None) -> Any:
        """Send the acquire of a caller, and return its parsed reply."""
        steps = steps or self.steps
        entry = Entry(f"channel:{token} 1 {token} 3000{steps.grant_terms} ", token, 3000) if registers else None
        command = steps.acquire(token, "", Attempt(entry, place))
        return command.parse(self.call(command))


LOCKS = {
    "fair": lambda: locks.fair_lock("line"),
    "semaphore": lambda: locks.semaphore("line", limit=1),
    "rwlock": lambda: locks.rwlock("line").write,
}


@pytest.mark.parametrize("kind", LOCKS)
def test_repetition_of_the_first_request_keeps_its_place(kind: str) -> None:
    """[L32] [L34] Its reply was lost, so the caller doesn't know the place at which it is registered."""
    line = Line(LOCKS[kind]())
    assert isinstance(line.ask("holder", registers=False), Granted)
    first, second, again = line.ask("first"), line.ask("second"), line.ask("first")
    assert first.position.enqueued_at == again.position.enqueued_at < second.position.enqueued_at


def test_dead_waiter_that_knows_a_smaller_limit_keeps_no_other_waiting() -> None:
    """[L37] [L33] A permit is free for callers that know the larger limit."""
    line, old = Line(locks.semaphore("line", limit=4)), Line(locks.semaphore("line", limit=3))
    assert isinstance(line.ask("holder", registers=False, steps=line.steps.with_permits(3)), Granted)
    assert isinstance(old.ask("dead"), Busy)
    assert isinstance(line.ask("newcomer"), Granted)


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_silent_writer_keeps_readers_waiting_for_four_seconds(time: VirtualClock) -> None:
    """[L33] [L34] Its process is stopped, so it has a connection. One that asks in time keeps them waiting."""
    lock = locks.rwlock("line", expire=60)
    line, reading = Line(lock.write), lock.read.spec.steps
    line.hears("writer")
    assert isinstance(line.ask("reader", registers=False, steps=reading), Granted)
    place = line.ask("writer").position.enqueued_at
    for _ in range(3):
        time.time += 3.9
        assert isinstance(line.ask("behind", steps=reading), Busy)
        assert isinstance(line.ask("writer", place), Busy)
    time.time += 3.9
    assert isinstance(line.ask("behind", steps=reading), Busy)
    time.time += 0.2
    assert isinstance(line.ask("behind", steps=reading), Granted)
