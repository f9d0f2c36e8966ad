"""A stopped process with several waiters in the line of a fair lock, request by request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from django_redis_locks import inspection, locks
from django_redis_locks.core.queue_entry import Entry
from django_redis_locks.core.queue_values import Attempt
from django_redis_locks.primitives.shared.requests import Busy, Granted

STOPPED, OTHER = "stopped", "other"
"""The inboxes of two processes."""


class Line:
    """The line of a fair lock: a holder, and behind it stopped 1, other 1, stopped 2, 3 and 4, other 2."""

    def __init__(self, end_lease: Callable[[str], object]) -> None:
        lock = locks.fair_lock("turns")
        self.steps, self.call = lock.spec.steps, lock.spec.performer.backend.call
        self._end_lease, self._key = end_lease, lock.keys.lock
        self.places: dict[str, int] = {}
        assert isinstance(self.ask("other 0"), Granted)
        for waiter in ("stopped 1", "other 1", "stopped 2", "stopped 3", "stopped 4", "other 2"):
            self.places[waiter] = self.ask(waiter).position.enqueued_at

    def ask(self, waiter: str) -> Any:
        """Send the request of a waiter."""
        token = waiter.replace(" ", "-")
        entry = Entry(f"{waiter} {token} 3000 ", token, 3000)
        command = self.steps.acquire(token, "", Attempt(entry, self.places.get(waiter, 0)))
        return command.parse(self.call(command))

    def release(self, waiter: str) -> None:
        self.call(self.steps.release(waiter.replace(" ", "-")))

    def end_lease(self) -> None:
        """Let the lease of the holder end."""
        self._end_lease(self._key)


@pytest.fixture(params=["memory", "redis"])
def line(request: pytest.FixtureRequest, settings: Any) -> Iterator[Line]:
    if request.param == "memory":
        backend = "django_redis_locks.backends.memory.MemoryBackend"
        settings.REDIS_LOCKS = {"default": {"BACKEND": backend, "LOCATION": request.node.name}}
        store = locks["default"].engine.backend._store
        for process in (STOPPED, OTHER):
            store.inboxes[process] = lambda word, lock: None
        yield Line(store.records.pop)
        return
    url = request.getfixturevalue("redis_url")
    settings.REDIS_LOCKS = {"default": {"LOCATION": url}}
    with redis.Redis.from_url(url) as direct, direct.pubsub() as inboxes:
        inboxes.subscribe(STOPPED, OTHER)
        for _ in range(2):
            inboxes.get_message(timeout=10)
        yield Line(direct.delete)


def test_stopped_process_costs_two_leases_however_many_waiters_it_has(line: Line) -> None:
    """[L32] [L33] The one of its first grant, and that of the next one, which follows the end of a lease."""
    line.release("other 0")  # grants the lock to stopped 1
    line.end_lease()
    assert isinstance(line.ask("other 2"), Busy)  # grants it to other 1
    line.release("other 1")  # grants it to stopped 2
    line.end_lease()
    line.ask("other 2")  # grants it to stopped 3
    line.end_lease()
    assert isinstance(line.ask("other 2"), Granted)


def test_waiters_of_a_process_that_was_skipped_keep_their_places(line: Line) -> None:
    """[L32] [L34] They send their requests when it goes on."""
    line.release("other 0")
    line.release("stopped 1")
    line.release("other 1")  # grants the lock to stopped 2
    line.end_lease()
    line.ask("other 2")  # grants it to stopped 3
    line.end_lease()
    assert isinstance(line.ask("other 2"), Granted)
    for waiter in ("stopped 4", "stopped 3", "stopped 2"):
        assert line.ask(waiter).position.enqueued_at == line.places[waiter]
    line.release("other 2")
    for waiter in ("stopped 2", "stopped 3", "stopped 4"):
        assert isinstance(line.ask(waiter), Granted)
        line.release(waiter)


def test_process_whose_waiter_asks_is_not_skipped(line: Line) -> None:
    """[L32] It runs, perhaps with sections that outlast a fixed lease."""
    line.release("other 0")
    line.end_lease()
    line.ask("other 2")  # grants the lock to other 1
    assert inspection.find("turns").waiting == 4
    line.end_lease()
    assert isinstance(line.ask("other 2"), Busy)  # it is granted to stopped 2
    line.end_lease()
    assert isinstance(line.ask("stopped 3"), Granted)
    assert inspection.find("turns").waiting == 2


def test_release_after_such_a_grant_grants_the_lock_to_the_next_waiter(line: Line) -> None:
    """[L32] The mark of the grant isn't a waiter."""
    line.release("other 0")
    line.end_lease()
    line.ask("other 2")  # grants the lock to other 1, and leaves a mark
    line.release("other 1")
    assert isinstance(line.ask("stopped 2"), Granted)
